"""The statements of AWS's two blogs about hosting options, each judged by numbers. PURE.

`STATEMENTS` names the pages' claims in own words. A rule returns whether the numbers agree, and
the numbers as a sentence. Advice and features that no number contradicts are not in the list.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hostelry.advisor.axes import format_s

TENS_OF_MS, MILLISECONDS, FEW_SECONDS = (10.0, 100.0), 100.0, (1.0, 10.0)
MINUTES = (60.0, 600.0)
CLOSE = 0.0005
NEAR, SPIKE, INSTANT_S, SCALED_S = 1.25, 3.0, 20.0, 300.0
TEN_TIMES, NINE_TENTHS = 10.0, 0.9
AXES = ("latency", "cost", "isolation", "scalability", "operations")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the numbers agree with a statement, None if it was not measured, and the reason."""

    agrees: bool | None
    why: str


@dataclass(frozen=True, slots=True)
class Numbers:
    """The measured rows by option, and the advice of each mix."""

    rows: Mapping[str, Mapping[str, Any]]
    mixes: Mapping[str, Mapping[str, Any]]

    def get_value(self, option: str, key: str) -> float:
        """A measured value."""
        return float(self.rows[option][key])

    def find(self, mix: str, option: str) -> Mapping[str, Any] | None:
        """The advice's numbers of an option, or None if it was not ranked."""
        found: Mapping[str, Any] | None = self.mixes[mix]["options"].get(option)
        return found

    def explain_absence(self, mix: str, option: str) -> str:
        """The reason why an option was not ranked."""
        advice = self.mixes[mix]
        refused = advice["refused"].get(option) or advice["not_ranked"].get(option)
        return f"{option} cannot work: {refused}" if refused else f"{option} was not simulated"


Rule = Callable[[Numbers], Verdict]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement about an option, by the fitness function that it is about."""

    option: str
    about: str
    text: str
    rule: Rule


@dataclass(frozen=True, slots=True)
class Story:
    """A story of the first blog, the option that it chooses, and the mixes with it."""

    name: str
    text: str
    option: str
    mixes: tuple[str, ...]


def judge_pick(numbers: Numbers, mix: str, expected: Sequence[str]) -> Verdict:
    """Whether the advisor picks one of the options, and the largest difference if it does not."""
    pick = numbers.mixes[mix]["pick"]
    option = expected[0]
    if pick in expected:
        return Verdict(agrees=True, why=f"`hostelry fit` picks {pick}: {show_costs(numbers, mix)}")
    found = numbers.find(mix, option)
    chosen = "picks no option" if pick is None else f"picks {pick}"
    if found is None:
        why = numbers.explain_absence(mix, option)
    elif is_as_good(numbers, mix, option):
        why = f"scores {option} as high: {show_costs(numbers, mix)}"
        return Verdict(agrees=True, why=f"`hostelry fit` {chosen}, and {why}")
    elif found["unacceptable"]:
        axis = found["unacceptable"][0]
        why = f"{option} is unacceptable on {axis}: {found['texts'][axis]}"
    else:
        why = compare_axis(numbers, mix, pick, option)
    return Verdict(agrees=False, why=f"`hostelry fit` {chosen}, and {why}")


def is_as_good(numbers: Numbers, mix: str, option: str) -> bool:
    """Whether a ranked option has the shortfall of the first one, to the third digit."""
    options = numbers.mixes[mix]["options"]
    first, found = next(iter(options.values())), options[option]
    is_close = abs(found["shortfall"] - first["shortfall"]) < CLOSE
    return is_close and not found["unacceptable"] and not first["unacceptable"]


def compare_axis(numbers: Numbers, mix: str, pick: str, option: str) -> str:
    """The axis on which the pick leads most by weight, with both values."""
    better, worse = numbers.find(mix, pick), numbers.find(mix, option)
    assert better is not None, "the pick was ranked"
    assert worse is not None, "the caller has looked"
    weights = numbers.mixes[mix]["weights"]

    def get_lead(axis: str) -> float:
        scores = [it["scores"][axis] or 0.0 for it in (better, worse)]
        return float(weights[axis] * (scores[0] - scores[1]))

    axis = max(AXES, key=get_lead)
    return f"on {axis} {pick} has {better['texts'][axis]}, {option} has {worse['texts'][axis]}"


def show_costs(numbers: Numbers, mix: str) -> str:
    """The cost of each ranked option."""
    options = numbers.mixes[mix]["options"]
    shown = [f"{it} {show_cost(found)}" for it, found in options.items()]
    return f"for 1,000 calls {', '.join(shown)}"


def show_number(value: float) -> str:
    """A number with three digits, or all digits before the point."""
    return f"{value:,.0f}" if value >= 1000.0 else f"{value:.3g}"


def show_cost(found: Mapping[str, Any]) -> str:
    """A cost with three digits."""
    if found["cost"] is None:
        return "unknown"
    digits = Decimal(f"{found['cost']:.3g}")
    return f"{digits:f}"


def expect_pick(mix: str, *expected: str) -> Rule:
    """A rule: the advisor picks one of the options for a mix."""
    return lambda numbers: judge_pick(numbers, mix, expected)


def compare_options(
    mix: str, one: str, other: str, key: str, decide: Callable[[Any, Any], Verdict]
) -> Rule:
    """A rule over two options of a mix. It decides nothing if one lacks the number `key`."""

    def judge(numbers: Numbers) -> Verdict:
        found = {option: numbers.find(mix, option) for option in (one, other)}
        for option, row in found.items():
            if row is None or row[key] is None:
                return Verdict(agrees=None, why=numbers.explain_absence(mix, option))
        return decide(found[one], found[other])

    return judge


def expect_cheaper(mix: str, cheaper: str, dearer: str, times: float = 1.0) -> Rule:
    """A rule: an option costs less than another, by a factor of at least `times`."""

    def decide(low: Any, high: Any) -> Verdict:
        ratio = high["cost"] / low["cost"] if low["cost"] else 0.0
        why = (
            f"{dearer} {show_cost(high)}, {cheaper} {show_cost(low)} for 1,000 calls of "
            f"`{mix}.toml`, {show_number(ratio)} times"
        )
        return Verdict(agrees=ratio > 1.0 and ratio >= times * 0.95, why=why)

    return compare_options(mix, cheaper, dearer, "cost", decide)


def expect_saving(mix: str, cheaper: str, dearer: str) -> Rule:
    """A rule: an option saves nine tenths of the cost of another."""

    def decide(low: Any, high: Any) -> Verdict:
        saved = 1.0 - low["cost"] / high["cost"]
        why = f"{cheaper} saves {saved:.1%} of the cost of {dearer} for `{mix}.toml`"
        return Verdict(agrees=saved >= NINE_TENTHS, why=why)

    return compare_options(mix, cheaper, dearer, "cost", decide)


def expect_between(
    option: str, key: str, least: float, most: float, what: str, divided_by: float = 1.0
) -> Rule:
    """A rule: a measured value is between two others."""

    def judge(numbers: Numbers) -> Verdict:
        value = numbers.get_value(option, key) / divided_by
        unit = "s" if divided_by == 1000.0 else "ms"
        side = "" if least <= value <= most else ", less" if value < least else ", more"
        return Verdict(agrees=least <= value <= most, why=f"{what} {value:.3g} {unit}{side}")

    return judge


def expect_ratio(over: tuple[str, str], under: tuple[str, str], least: float, most: float) -> Rule:
    """A rule: the ratio of two measured values is between two others."""

    def judge(numbers: Numbers) -> Verdict:
        high, low = numbers.get_value(*over), numbers.get_value(*under)
        ratio = high / low
        why = (
            f"{over[0]} {show_number(high)}, {under[0]} {show_number(low)} ({over[1]})"
            if over[1] == under[1]
            else f"{over[1]} {show_number(high)}, {under[1]} {show_number(low)} ({over[0]})"
        )
        return Verdict(agrees=least <= ratio <= most, why=f"{why}: {show_number(ratio)} times")

    return judge


def expect_answers(mix: str, option: str) -> Rule:
    """A rule: every call is answered."""

    def judge(numbers: Numbers) -> Verdict:
        found = numbers.find(mix, option)
        if found is None:
            return Verdict(agrees=None, why=numbers.explain_absence(mix, option))
        share = found["answered"]
        why = f"{share:.4%} of the calls of `{mix}.toml` were answered"
        return Verdict(agrees=share == 1.0, why=why)

    return judge


def expect_time(mix: str, option: str, key: str, least_s: float, most_s: float, what: str) -> Rule:
    """A rule: a simulated time is between two others."""

    def judge(numbers: Numbers) -> Verdict:
        found = numbers.find(mix, option)
        if found is None or found[key] is None:
            return Verdict(agrees=None, why=numbers.explain_absence(mix, option))
        why = f"{what} {format_s(found[key])} for `{mix}.toml`"
        return Verdict(agrees=least_s <= found[key] <= most_s, why=why)

    return judge


def expect_fewer_objects(mix: str, fewer: str, more: str) -> Rule:
    """A rule: an option needs fewer objects than another."""

    def decide(low: Any, high: Any) -> Verdict:
        counts = low["num_objects"], high["num_objects"]
        why = f"{fewer} {counts[0]:g} objects, {more} {counts[1]:g}, for `{mix}.toml`"
        return Verdict(agrees=counts[0] < counts[1], why=why)

    return compare_options(mix, fewer, more, "num_objects", decide)


def skip_accelerator(numbers: Numbers) -> Verdict:
    """A rule that needs an accelerator."""
    return Verdict(agrees=None, why="the machine has no accelerator")


STORIES = (
    Story(
        "summariser",
        "a large model with sensitive data, isolated, quick answers, at a cost",
        "dedicated",
        ("summariser", "summariser-small"),
    ),
    Story(
        "chatbots",
        "small models of many customers, busy at their own hours, cold starts tolerated",
        "multi-model",
        ("chatbots", "chatbots-small", "chatbots-adapters"),
    ),
    Story(
        "images",
        "thousands of image generators, quick answers and throughput, at a cost",
        "multi-container",
        ("images", "images-small"),
    ),
)
ENDLESS = float("inf")
COLD, CALL, RATE = "cold call ms", "call ms", "calls a second"
STATEMENTS = (
    Statement(
        "real-time", "cost", "costs add up with several endpoints that are not fully used",
        expect_cheaper("many", "multi-model", "dedicated"),
    ),
    Statement(
        "real-time", "latency", "answers within milliseconds",
        expect_between("dedicated", "call p99 ms", 0.0, MILLISECONDS, "p99 of a call"),
    ),
    Statement(
        "real-time", "throughput", "asynchronous inference has a higher throughput",
        expect_ratio(("asynchronous", RATE), ("dedicated", RATE), 1.0, ENDLESS),
    ),
    Statement(
        "real-time", "throughput", "batch transform has a higher throughput",
        expect_ratio(("batch", RATE), ("dedicated", RATE), 1.0, ENDLESS),
    ),
    Statement(
        "real-time", "scaling", "auto scaling follows the traffic",
        expect_time("continuous", "dedicated", "scale_s", 0.0, SCALED_S, "a fourfold step takes"),
    ),
    Statement(
        "real-time", "traffic", "for continual or regular traffic",
        expect_pick("continuous", "dedicated", "components"),
    ),
    Statement(
        "asynchronous", "cost", "saves the cost of hours without calls",
        expect_cheaper("peaks", "asynchronous", "dedicated"),
    ),
    Statement(
        "asynchronous", "latency", "tens of milliseconds",
        expect_between("asynchronous", CALL, *TENS_OF_MS, "median from submission to answer"),
    ),
    Statement(
        "asynchronous", "throughput", "no request is dropped in a peak",
        expect_answers("peaks", "asynchronous"),
    ),
    Statement(
        "asynchronous", "scaling", "a cold start from zero takes a few minutes",
        expect_time("peaks", "asynchronous", "p99_s", *MINUTES, "p99 of all calls"),
    ),
    Statement(
        "asynchronous", "traffic", "for intermittent traffic",
        expect_pick("peaks", "asynchronous"),
    ),
    Statement(
        "batch", "cost", "only the duration of the job is paid",
        expect_cheaper("offline", "batch", "dedicated"),
    ),
    Statement(
        "batch", "latency", "the answer comes later",
        expect_time("offline", "batch", "p50_s", 60.0, ENDLESS, "median from call to answer"),
    ),
    Statement("batch", "traffic", "for offline inference", expect_pick("offline", "batch")),
    Statement(
        "serverless", "cost", "saves the cost of idle time if calls are infrequent",
        expect_cheaper("infrequent", "serverless", "dedicated"),
    ),
    Statement(
        "serverless", "cost", "an instance is cheaper once traffic is stable",
        expect_cheaper("continuous", "dedicated", "serverless"),
    ),
    Statement(
        "serverless", "latency", "milliseconds to seconds",
        expect_between("serverless", CALL, 0.0, 1000.0, "median of a call"),
    ),
    Statement(
        "serverless", "latency", "a cold start adds a few seconds",
        expect_between("serverless", COLD, *FEW_SECONDS, "a cold call takes", 1000.0),
    ),
    Statement(
        "serverless", "scaling", "scales instantly",
        expect_time("infrequent", "serverless", "scale_s", 0.0, INSTANT_S, "a fourfold step takes"),
    ),
    Statement(
        "serverless", "scaling", "no policies and no instance types to manage",
        expect_fewer_objects("infrequent", "serverless", "dedicated"),
    ),
    Statement(
        "serverless", "traffic", "for infrequent or intermittent traffic",
        expect_pick("infrequent", "serverless"),
    ),
    Statement(
        "multi-model", "cost", "a tenth of the cost for ten models",
        expect_cheaper("many", "multi-model", "dedicated", TEN_TIMES),
    ),
    Statement(
        "multi-model", "latency", "a cached model answers as fast as with a separate endpoint",
        expect_ratio(("multi-model", CALL), ("dedicated", CALL), 0.0, NEAR),
    ),
    Statement(
        "multi-model", "latency", "the first call of a model takes far longer",
        expect_ratio(("multi-model", COLD), ("multi-model", CALL), SPIKE, ENDLESS),
    ),
    Statement(
        "multi-model", "throughput", "significantly more calls need a dedicated endpoint",
        expect_ratio(("dedicated", RATE), ("multi-model", RATE), NEAR, ENDLESS),
    ),
    Statement(
        "multi-model", "scaling", "thousands of models on an endpoint",
        expect_answers("images-small", "multi-model"),
    ),
    Statement(
        "multi-model", "traffic", "for many similar models that are not called at the same time",
        expect_pick("many", "multi-model"),
    ),
    Statement(
        "multi-container", "cost", "saves up to 90 %",
        expect_saving("frameworks", "multi-container", "dedicated"),
    ),
    Statement(
        "multi-container", "latency", "low latency without a cold start",
        expect_ratio(("multi-container", CALL), ("dedicated", CALL), 0.0, NEAR),
    ),
    Statement(
        "multi-container", "traffic", "for several frameworks with little traffic each",
        expect_pick("frameworks", "multi-container"),
    ),
    Statement(
        "pipeline", "cost", "two containers on an instance take less than two endpoints",
        expect_ratio(("pipeline", "memory MB"), ("dedicated", "memory MB"), 0.0, 2.0),
    ),
    Statement(
        "pipeline", "latency", "faster than two calls, since the data stays on the instance",
        expect_ratio(("pipeline", CALL), ("dedicated", CALL), 0.0, 2.0),
    ),
    Statement(
        "multi-model on GPUs", "cost", "models share an accelerator, at a lower cost",
        expect_cheaper("chatbots", "multi-model", "dedicated"),
    ),
    Statement(
        "multi-model on GPUs", "latency", "single-digit milliseconds", skip_accelerator
    ),
)  # fmt: skip
