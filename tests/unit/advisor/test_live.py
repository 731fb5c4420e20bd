"""Records of a running platform: holes, service times, calls, the mix, and the forecast."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.advisor.mixes import AXES, MACHINE, build_model

from hostelry.advisor.live.calls import draw_calls
from hostelry.advisor.live.forecast import (
    LivePrices,
    build_policies_in_force,
    compare_units,
    get_present_cost,
    measure_unit,
)
from hostelry.advisor.live.mix_text import build_mix_text
from hostelry.advisor.live.names import MixNames
from hostelry.advisor.live.records import (
    SHARES,
    LiveRecords,
    NameRecords,
    PeriodTimes,
    RecordedModel,
    RecordedUnit,
)
from hostelry.advisor.live.stretch import Span, find_stretch
from hostelry.advisor.live.times import get_latency, measure_times
from hostelry.advisor.mix_file import parse_mix
from hostelry.advisor.options import HostingOption
from hostelry.advisor.values import FitMix
from hostelry.base.errors import TerminalError
from hostelry.domain.scaling import Dimension
from hostelry.domain.shape import Shape

START = 1_796_000_400.0  # 2026-11-30 01:00 UTC
MINUTES = tuple(START + 60.0 * it for it in range(20))
PRICES = LivePrices(per_hour={"ml.m5.xlarge": 0.2}, per_gb_s=0.00002)


def times(seconds: float, num: float = 12.0) -> PeriodTimes:
    """Calls that take these seconds, and twice as long at most."""
    return PeriodTimes(num, tuple(seconds * (0.9 + 1.1 * share**8) for share in SHARES))


def records(calls: float = 12.0, seconds: float = 0.05, **changes: Any) -> NameRecords:
    """Twenty minutes with as many calls."""
    usual: dict[str, Any] = {
        "calls": dict.fromkeys(MINUTES, calls),
        "failed": dict.fromkeys(MINUTES, 0.0),
        "model_s": dict.fromkeys(MINUTES, times(seconds, calls)) if calls else {},
        "overhead_s": dict.fromkeys(MINUTES, times(0.002, calls)) if calls else {},
    }
    return NameRecords(**usual | changes)


def model(name: str = "prices", **changes: Any) -> RecordedModel:
    usual: dict[str, Any] = {
        "framework": "sklearn", "memory_mb": 300.0, "start_s": 4.0, "image": 'an "image"',
        "artifact": "s3://models/prices.tar.gz", "environment": {"A": "x\ny\x7f"},
        "records": records(), "sources": {"memory_mb": "measured: a copy\nof it"},
    }  # fmt: skip
    return RecordedModel(name=name, live_name=name, **usual | changes)


def unit(*models: RecordedModel, **changes: Any) -> RecordedUnit:
    usual: dict[str, Any] = {
        "endpoint": "shop", "option": HostingOption.DEDICATED, "instance_type": "ml.m5.xlarge",
        "shape": Shape(cpus=4, memory_bytes=16 << 30), "scalings": ((),), "counts": (1,),
        "instances": dict.fromkeys(MINUTES, 1.0),
    }  # fmt: skip
    return RecordedUnit(models=models or (model(),), **usual | changes)


def live(*units: RecordedUnit, **changes: Any) -> LiveRecords:
    found = LiveRecords(
        since=START, until=MINUTES[-1] + 60, period_s=60.0, units=units or (unit(),)
    )
    return replace(found, **changes)


def without(*places: int) -> Mapping[float, float]:
    return {at: 12.0 for number, at in enumerate(MINUTES) if number not in places}


WHOLE = Span(START, MINUTES[-1] + 60)


@cases(
    "calls, used, note",
    case("no hole", [without()], (0, 20), None),
    case("the longer side of a hole is used", [without(5)], (6, 20),
         "no records of m0 from 2026-11-30 01:05 to 2026-11-30 01:06: these times are not used"),
    case("holes of one model cut the others", [without(), without(0, 1, 2)], (3, 20),
         "no records of m1 from 2026-11-30 01:00 to 2026-11-30 01:03"),
    case("holes of different models", [without(0, 1), without(16, 17)], (2, 16), "of m1 from"),
    case("many holes are counted", [without(1, 3, 5, 7, 9)], (10, 20), "and 2 more times"),
)  # fmt: skip
def test_the_longest_stretch_without_a_hole_is_used_and_holes_are_named(
    calls: list[Mapping[float, float]], used: tuple[int, int], note: str | None
) -> None:
    models = [model(f"m{n}", records=replace(records(), calls=it)) for n, it in enumerate(calls)]
    span, notes = find_stretch(live(unit(*models)))
    assert span == Span(START + 60 * used[0], START + 60 * used[1])
    assert any(note in it for it in notes) if note else not notes


@cases(
    "found, reason",
    case("nothing", live(units=()), "no endpoint has a model"),
    case("too short", live(unit(model(records=replace(records(), calls=without(*range(2, 20)))))),
         "has 120 s; 180 s are needed. no records of prices from 2026-11-30 01:02"),
    case("never together", live(unit(
        model("a", records=replace(records(), calls=without(*range(10)))),
        model("b", records=replace(records(), calls=without(*range(10, 20)))),
    )), "all 2 models has 0 s"),
)  # fmt: skip
def test_too_few_records_are_an_error_that_names_the_holes(found: LiveRecords, reason: str) -> None:
    with pytest.raises(TerminalError, match=reason):
        find_stretch(found)


def test_the_busiest_part_is_used_where_all_is_too_much() -> None:
    at = [START + 60.0 * it for it in range(9 * 24 * 60)]
    calls = {it: 5.0 if it > at[2 * 24 * 60] else 1.0 for it in at}
    found = live(unit(model(records=NameRecords(calls=calls))), until=at[-1] + 60)
    span, notes = find_stretch(found)
    assert (span.seconds, span.until) == (168 * 3600.0, at[-1] + 60)
    assert "the busiest 168 h are used" in notes[-1]
    many = [model(f"m{n}", records=NameRecords(calls=calls)) for n in range(100)]
    assert find_stretch(live(unit(*many), until=at[-1] + 60))[0].seconds == 10 * 3600.0
    flood = dict.fromkeys(at, 1e5)
    short, _ = find_stretch(live(unit(model(records=NameRecords(calls=flood))), until=at[-1] + 60))
    assert short.seconds >= 180.0


def test_endpoints_that_are_left_out_are_named() -> None:
    _, notes = find_stretch(live(left_out={"slow": "it is asynchronous"}))
    assert notes == ("endpoint slow is left out: it is asynchronous",)


def test_service_times_are_of_the_quietest_periods() -> None:
    busy = {at: times(0.4, 60.0) for at in MINUTES[:10]}
    quiet = {at: times(0.05, 30.0) for at in MINUTES[10:]}
    found = measure_times(records(model_s=busy | quiet), WHOLE)
    assert found is not None
    assert found.seconds == pytest.approx(0.0455, rel=0.05)
    assert found.overhead_s == pytest.approx(0.0018, rel=0.05)
    assert found.source.startswith("measured: median ModelLatency of the 8 quietest of 20 periods")
    assert found.spread[0][0] == 0.0
    assert found.spread[-1][0] == 1.0
    assert found.spread[-1][1] == pytest.approx(2.2, rel=0.1)
    assert measure_times(records(calls=0.0), WHOLE) is None


def test_a_slow_call_is_slow_in_the_model_or_around_it() -> None:
    slow_start = dict.fromkeys(MINUTES, times(0.5))
    assert get_latency([records()], WHOLE, 0.99) == pytest.approx(0.09, rel=0.1)
    around = get_latency([records(overhead_s=slow_start)], WHOLE, 0.99)
    assert around == pytest.approx(0.95, rel=0.1)
    assert get_latency([records(calls=0.0)], WHOLE, 0.5) is None


def test_as_many_calls_arrive_in_a_period_as_were_counted() -> None:
    calls = {at: float(number) for number, at in enumerate(MINUTES)}
    found = draw_calls(live(unit(model(records=replace(records(), calls=calls)))), WHOLE)
    counts, _ = np.histogram(found["prices"].at_s, np.arange(21) * 60.0)
    assert counts.tolist() == list(range(20))


def test_calls_of_a_multi_model_endpoint_go_to_the_models_that_usage_names() -> None:
    shared = records(calls=50.0)
    parts = {START: 240.0, START + 300: 0.0, START + 600: 120.0, START + 900: 120.0}
    models = (
        model("a", records=shared, part=parts),
        model("b", records=shared, part={START + 300: 250.0, START + 600: 120.0}),
        model("c", records=shared, part={}),
    )
    found = draw_calls(live(unit(*models, option=HostingOption.MULTI_MODEL)), WHOLE)
    by_part = [np.histogram(found[it].at_s, np.arange(5) * 300.0)[0].tolist() for it in "abc"]
    assert by_part[2] == [0, 0, 0, 0]
    assert (by_part[0][0], by_part[1][0]) == (250, 0)
    assert (by_part[0][1], by_part[1][1]) == (0, 250)
    assert 90 < by_part[0][2] < 160


def mix_of(found: LiveRecords, prices: LivePrices = PRICES) -> tuple[str, FitMix]:
    text = build_mix_text(found, WHOLE, draw_calls(found, WHOLE), prices, "live.csv", ("a\nnote",))
    return text, parse_mix(text, Path("live.toml"))


def test_the_mix_is_valid_and_each_number_has_its_source() -> None:
    idle = model("idle", records=records(calls=0.0), memory_mb=None, start_s=None, accelerators=1)
    text, mix = mix_of(live(unit(model(), idle)))
    first, second = mix.models
    assert first.service.prefill_s == pytest.approx(0.0455, rel=0.05)
    assert first.service.spread[-1][0] == 1.0
    assert first.is_measured
    assert first.image == 'an "image"'
    assert first.environment == {"A": "x\ny\x7f"}
    assert first.traffic.trace == Path("live.csv")
    assert (second.traffic.per_hour, second.is_measured) == (0.0, False)
    assert second.memory_bytes == 300 << 20
    assert mix.hours == pytest.approx(1 / 3, rel=1e-4)
    numbers = ("seconds =", "memory_mb =", "cpus =", "overhead_ms =", "price_per_hour =", "start_s")
    lines = [it for it in text.split("\n") if it.startswith(numbers)]
    assert all("    # " in it for it in lines)
    assert "memory_mb = 300    # measured: a copy of it" in text
    assert "seconds = 0.1    # assumed: no call was recorded" in text
    assert "cost = { unacceptable = 0.555556, target = 0.0277778 }" in text


def test_an_unknown_price_is_named_and_cost_has_no_weight() -> None:
    text, mix = mix_of(live(), LivePrices(per_hour={}, per_gb_s=None))
    assert mix.machines[0].price_per_hour is None
    assert "# price_per_hour is unknown: it is in no prices.toml" in text
    assert "the present cost is unknown, so cost has no weight" in text


def test_a_price_of_zero_is_known_and_cost_has_no_weight() -> None:
    found = live()
    free = {it.instance_type: 0.0 for it in found.units if it.instance_type}
    text, mix = mix_of(found, LivePrices(per_hour=free, per_gb_s=None))
    assert mix.machines[0].price_per_hour == 0.0
    assert "price_per_hour = 0    # prices.toml" in text
    assert "the present cost is zero, so cost has no weight" in text


def fit_mix(**changes: Any) -> FitMix:
    usual: dict[str, Any] = {"models": (build_model("prices"),), "machines": (MACHINE,)}
    return FitMix(name="m", axes=AXES, hours=1 / 3, serverless_price=0.00002, **usual | changes)


def test_forecast_and_measured_figures() -> None:
    found = live(unit(model(records=records(failed=dict.fromkeys(MINUTES, 1.2)))))
    (one,) = compare_units(found, WHOLE, draw_calls(found, WHOLE), fit_mix())
    assert one.problem is None
    assert one.forecast.calls_per_s == pytest.approx(0.2)
    assert one.measured.calls_per_s == pytest.approx(0.18)
    assert one.forecast.failed_share == 0.0
    assert one.measured.failed_share == pytest.approx(0.1)
    assert one.forecast.cost == pytest.approx(0.2 / 3 / 240 * 1000)
    assert one.measured.cost == pytest.approx(0.2 / 3 / 216 * 1000)
    assert one.forecast.p50_s == pytest.approx(0.05, rel=0.01)


def test_serverless_and_multi_model_endpoints_count_cold_starts() -> None:
    fn = unit(
        option=HostingOption.SERVERLESS, instance_type="", memory_mb=1024, concurrency=2,
        starts={MINUTES[0]: 1.0}, gb_s=dict.fromkeys(MINUTES, 0.6), instances={},
    )  # fmt: skip
    shared = records()
    several = unit(
        *(model(it, records=shared, part=dict.fromkeys(MINUTES[::5], 30.0)) for it in "ab"),
        endpoint="many", option=HostingOption.MULTI_MODEL, starts={MINUTES[1]: 2.0},
    )  # fmt: skip
    found = live(fn, several)
    mix = fit_mix(models=tuple(build_model(it) for it in ("prices", "a", "b")))
    one, two = compare_units(found, WHOLE, draw_calls(found, WHOLE), mix)
    assert (one.problem, two.problem) == (None, None)
    assert one.measured.cost == pytest.approx(12.0 * 0.00002 / 240 * 1000)
    assert one.measured.starts == 1.0
    assert one.forecast.starts is not None
    assert one.forecast.starts <= 2, "it begins with an environment"
    assert (two.measured.starts, two.forecast.starts) == (2.0, 0)


@cases(
    "mix, problem",
    case("no model", fit_mix(models=(build_model("other"),)), "the file has no model for prices"),
    case("no machine", fit_mix(machines=(replace(MACHINE, type="ml.m5.large"),)),
         "no machine of the type ml.m5.xlarge"),
)  # fmt: skip
def test_what_the_file_lacks_is_named_in_place_of_a_forecast(mix: FitMix, problem: str) -> None:
    (one,) = compare_units(live(), WHOLE, draw_calls(live(), WHOLE), mix)
    assert problem in (one.problem or "")
    assert one.forecast.p50_s is None
    assert one.measured.p50_s is not None


def test_unknown_prices_and_missing_use_leave_the_cost_unknown() -> None:
    nothing = LivePrices(per_hour={}, per_gb_s=None)
    assert measure_unit(unit(), WHOLE, nothing).cost is None
    assert measure_unit(unit(instances={}), WHOLE, PRICES).cost is None
    assert get_present_cost(live(unit(), unit(instances={})), WHOLE, PRICES) is None
    assert get_present_cost(live(), WHOLE, PRICES) == pytest.approx(0.2 / 3 / 240 * 1000)


def test_overhead_is_added_to_each_answer() -> None:
    model = build_model("prices", overhead_s=0.1)
    (one,) = compare_units(live(), WHOLE, draw_calls(live(), WHOLE), fit_mix(models=(model,)))
    assert one.forecast.p50_s == pytest.approx(0.15, rel=0.01)


TRACKING = {
    "PolicyName": "p", "MinCapacity": 1, "MaxCapacity": 3,
    "TargetTrackingScalingPolicyConfiguration": {
        "TargetValue": 2.0,
        "PredefinedMetricSpecification": {
            "PredefinedMetricType":
                "SageMakerVariantConcurrentRequestsPerModelHighResolution"
        },
    },
}  # fmt: skip


@cases(
    "requests, bounds, note",
    case("nothing scales it", [], (2, 2), ""),
    case("a policy", [TRACKING], (1, 3), ""),
    case("a policy that no replay knows", [{**TRACKING, "PolicyName": "p p",
         "TargetTrackingScalingPolicyConfiguration": {"TargetValue": 1.0}}], (2, 2), "stays 2"),
)  # fmt: skip
def test_the_policies_in_force_are_simulated(
    requests: list[dict[str, Any]], bounds: tuple[int, int], note: str
) -> None:
    found, shown = build_policies_in_force(requests, 2, Dimension.INSTANCES)
    assert (found.minimum, found.maximum) == bounds
    assert found.dimension is Dimension.INSTANCES
    assert note in shown
    assert bool(note) is bool(shown)


def test_names_are_valid_and_different() -> None:
    names = MixNames()
    given = ["a_b.tar", "a-b-tar", "x" * 80, "x" * 90, "ünï", "--"]
    found = [names.add(it) for it in given]
    assert found[:2] == ["a-b-tar", "a-b-tar-2"]
    assert len({*found}) == len(found)
    assert max(map(len, found)) <= 51
    assert found[-1] == "model"
    assert names.get("a_b.tar") == "a-b-tar"
    assert names.get("later!") == "later"
