"""Named synthetic loads. A seed gives the same requests again."""

from collections.abc import Callable, Mapping
from itertools import pairwise

import msgspec
import numpy as np

from hostelry.base.errors import TerminalError
from hostelry.sim.arrivals import (
    CHAT_LASTS_S,
    CODE_LASTS_S,
    Source,
    chat_hour,
    code_hour,
    modulate_arrivals,
    steady,
)
from hostelry.sim.trace import Block, FloatArray, IntArray, Trace, build_block

# Numbers of input and output tokens of requests, drawn from published quantiles.
#
# A length is drawn by its quantile function: straight lines, in the logarithm, between the
# published points. So the quantiles are those published, whatever the shape between them (the
# conversation trace's outputs have two humps).


class Lengths(msgspec.Struct, frozen=True):
    """Points (share of requests, tokens) of a quantile function, from 0.0 to 1.0."""

    points: tuple[tuple[float, float], ...]

    def draw(self, source: np.random.Generator, num: int) -> IntArray:
        """`num` lengths, each at least one token."""
        shares, tokens = zip(*self.points, strict=True)
        logs = np.interp(source.random(num), shares, np.log(tokens))
        return np.maximum(1, np.rint(np.exp(logs))).astype(np.int64)


class RequestLengths(msgspec.Struct, frozen=True, kw_only=True):
    """Of a kind of requests: tokens of the prompt, and of the answer."""

    input: Lengths
    output: Lengths


# Source: Azure's LLM inference traces of 2023 (conversation and code, CC-BY 4.0): p5, p50, p75,
# p90, p99 and the largest are the trace's. The points between are set so that the mean is too.
CHAT = RequestLengths(
    input=Lengths(
        (
            (0.0, 20.0), (0.05, 181.0), (0.5, 1020.0), (0.75, 1300.0),
            (0.9, 2734.0), (0.99, 4142.0), (0.997, 4600.0), (1.0, 14050.0),
        )
    ),
    output=Lengths(
        (
            (0.0, 10.0), (0.1, 40.0), (0.5, 129.0), (0.65, 330.0), (0.75, 395.0),
            (0.9, 424.0), (0.99, 601.0), (1.0, 1000.0),
        )
    ),
)  # fmt: skip
CODE = RequestLengths(
    input=Lengths(
        (
            (0.0, 3.0), (0.1, 200.0), (0.5, 1469.0), (0.75, 2900.0),
            (0.9, 5188.0), (0.99, 7300.0), (1.0, 7437.0),
        )
    ),
    output=Lengths(
        (
            (0.0, 2.0), (0.1, 6.0), (0.5, 13.0), (0.75, 23.0),
            (0.9, 55.0), (0.99, 251.0), (0.997, 330.0), (1.0, 900.0),
        )
    ),
)  # fmt: skip
SHORT = RequestLengths(
    input=Lengths(((0.0, 20.0), (0.5, 100.0), (0.9, 220.0), (1.0, 400.0))),
    output=Lengths(((0.0, 8.0), (0.5, 32.0), (0.9, 64.0), (1.0, 128.0))),
)


def zipf_shares(num: int, exponent: float) -> FloatArray:
    """Shares of calls by rank, after Zipf's law."""
    weights = 1.0 / np.arange(1, num + 1) ** exponent
    shares: FloatArray = weights / weights.sum()
    return shares


def shares_through(num: int, points: tuple[tuple[float, float], ...]) -> FloatArray:
    """Shares by rank such that the first ranks have the share that `points` say.

    Args:
        num: how many models there are.
        points: (share of the models, share of the calls that they get), rising to (1.0, 1.0).
    """
    shares = np.empty(num)
    for (from_models, from_calls), (to_models, to_calls) in pairwise(((0.0, 0.0), *points)):
        first, end = round(from_models * num), round(to_models * num)
        falling = zipf_shares(end - first, 0.5)
        shares[first:end] = (to_calls - from_calls) * falling
    shares /= shares.sum()
    return shares


# Source: Aegaeon's market of models (SOSP 2025): 94.1 % of the models get 1.35 % of the calls.
LONGTAIL_SHARES = shares_through(1000, ((0.059, 0.9865), (1.0, 1.0)))
# Source: Alibaba's GenTD26 (2026), groups of adapters: 1 % get 27.7 % of the calls, 10 % get 57 %.
ADAPTER_SHARES = shares_through(400, ((0.01, 0.277), (0.1, 0.57), (1.0, 1.0)))


DEFAULT_SEED = 20261121
DAY_S = 86_400.0
HOUR_S = 3600.0


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A named load: `make` draws its trace."""

    name: str
    about: str
    make: Callable[[Source], Trace]


def build_scenario(name: str, seed: int = DEFAULT_SEED) -> Trace:
    """The trace of a scenario. Raises TerminalError if no scenario has that name."""
    if name not in SCENARIOS:
        raise TerminalError(f"there is no scenario {name}. There are: {', '.join(SCENARIOS)}")
    trace = SCENARIOS[name].make(np.random.default_rng(seed))
    trace.name = f"{name} (seed {seed})"
    return trace


def build_stepped_trace(
    source: Source,
    rate: float,
    factor: float,
    *,
    at_s: float = 600.0,
    lasts_s: float = 1200.0,
    back_at_s: float | None = None,
    cv: float = 1.0,
) -> Trace:
    """A rate that is `factor` times as high from `at_s` on, until `back_at_s` if that is set."""
    ends_s = lasts_s if back_at_s is None else back_at_s
    edges_s = [0.0, at_s, ends_s, *([] if ends_s == lasts_s else [lasts_s])]
    rates = [rate, rate * factor, *([] if ends_s == lasts_s else [rate])]
    arrived = modulate_arrivals(source, np.array(edges_s), np.array(rates), cv)
    steps_s = (at_s,) if factor > 1.0 else ()
    return _trace(_requests(source, arrived, CHAT), lasts_s, steps_s=steps_s)


def _trace(
    block: Block,
    lasts_s: float,
    models: list[str] | None = None,
    steps_s: tuple[float, ...] = (),
) -> Trace:
    trace = Trace(name="", blocks=[block], lasts_s=lasts_s, steps_s=steps_s)
    if models is not None:
        trace.models = models
    return trace


def _requests(
    source: Source, at_s: FloatArray, lengths: RequestLengths, model: IntArray | None = None
) -> Block:
    num = len(at_s)
    return build_block(
        at_s, lengths.input.draw(source, num), lengths.output.draw(source, num), model
    )


def _chat_steady(source: Source) -> Trace:
    return _trace(_requests(source, chat_hour(source), CHAT), CHAT_LASTS_S)


def _code_bursty(source: Source) -> Trace:
    return _trace(_requests(source, code_hour(source), CODE), CODE_LASTS_S)


def _step_4x(source: Source) -> Trace:
    return build_stepped_trace(source, 2.0, 4.0)


def _flash_20x(source: Source) -> Trace:
    return build_stepped_trace(source, 1.0, 20.0, back_at_s=720.0, lasts_s=1800.0)


def _diurnal_3tz(source: Source) -> Trace:
    models = ["asia", "europe", "america"]
    edges_s = np.linspace(0.0, DAY_S, 24 * 12 + 1)
    middles_s = (edges_s[:-1] + edges_s[1:]) / 2
    arrived, model = list[FloatArray](), list[IntArray]()
    for place in range(len(models)):
        noon_s = DAY_S * (1 + 2 * place) / 6  # 04:00, 12:00 and 20:00 UTC
        rates = 1.0 + 0.85 * np.cos(2 * np.pi * (middles_s - noon_s) / DAY_S)
        arrived.append(modulate_arrivals(source, edges_s, rates, cv=1.09))
        model.append(np.full(len(arrived[-1]), place, dtype=np.int64))
    block = _requests(source, np.concatenate(arrived), CHAT, np.concatenate(model))
    return _trace(block, DAY_S, models)


def _longtail_1000(source: Source) -> Trace:
    arrived = steady(source, 10.0, HOUR_S, cv=1.09)
    model = source.choice(len(LONGTAIL_SHARES), size=len(arrived), p=LONGTAIL_SHARES)
    models = [f"model-{it:04}" for it in range(len(LONGTAIL_SHARES))]
    return _trace(_requests(source, arrived, SHORT, model), HOUR_S, models)


def _adapter_market(source: Source) -> Trace:
    edges_s = np.arange(0.0, HOUR_S + 1.0, 30.0)
    rates = source.gamma(0.5, 2.0, len(edges_s) - 1) * 4.0
    arrived = modulate_arrivals(source, edges_s, rates, cv=1.5)
    model = source.choice(len(ADAPTER_SHARES), size=len(arrived), p=ADAPTER_SHARES)
    models = [f"base/adapter-{it:03}" for it in range(len(ADAPTER_SHARES))]
    return _trace(_requests(source, arrived, SHORT, model), HOUR_S, models)


def _idle_then_one(source: Source) -> Trace:
    return _trace(_requests(source, np.array([5.0, 1500.0]), SHORT), 1800.0)


SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            name="chat-steady",
            about="58 min as Azure's conversation trace: 5.5 requests/s, cv 1.1, peak minute 1.5x",
            make=_chat_steady,
        ),
        Scenario(
            name="code-bursty",
            about="57 min as Azure's code trace: 2.6 requests/s, cv 13, silent half of the time",
            make=_code_bursty,
        ),
        Scenario(
            name="step-4x",
            about="20 min of chat: 2 requests/s, four times as many from minute 10 on",
            make=_step_4x,
        ),
        Scenario(
            name="flash-20x",
            about="30 min of chat: 1 request/s, twenty times as many in minutes 10 to 12",
            make=_flash_20x,
        ),
        Scenario(
            name="diurnal-3tz",
            about="a day of chat for three models whose users live in three time zones",
            make=_diurnal_3tz,
        ),
        Scenario(
            name="longtail-1000",
            about="an hour, 10 requests/s for 1,000 models: 94 % of them get 1.35 % of it",
            make=_longtail_1000,
        ),
        Scenario(
            name="adapter-market",
            about="an hour of bursts for 400 adapters of one base: 1 in 100 gets 28 % of the calls",
            make=_adapter_market,
        ),
        Scenario(
            name="idle-then-one",
            about="one request, 25 min of nothing, one more",
            make=_idle_then_one,
        ),
    )
}
