"""Decisions of the cost benchmark: the day's traffic, the check of sums, multiplied footprints."""

import random
from typing import Any

import pytest
from benchmarks.cost_day import check_sums, sum_rows
from benchmarks.cost_sharing import Claim, Footprint, footprint_rows, saving_rows
from benchmarks.cost_traffic import STREAMS, DayStream, draw_day, find_rate
from tests.cases import case, cases

STREAM = DayStream(tenant="t", fleet="f", per_hour=100.0, peak_hour=23.0)


@cases(
    "hour, open_hours, rate",
    case("the peak", 23.0, 24.0, 100.0),
    case("twelve hours from the peak, past midnight, a tenth", 11.0, 24.0, 10.0),
    case("just after midnight it is near the peak", 1.0, 4.0, pytest.approx(88.3, abs=0.5)),
    case("outside of the open hours", 2.0, 4.0, 0.0),
)
def test_rates_follow_the_sun(hour: float, open_hours: float, rate: float) -> None:
    stream = DayStream(tenant="t", fleet="f", per_hour=100.0, peak_hour=23.0, open_hours=open_hours)
    assert find_rate(stream, hour) == rate


def test_a_day_has_the_calls_of_its_rates_in_order_and_the_same_for_a_seed() -> None:
    num_targets = {"f": 10}
    calls = draw_day([STREAM], num_targets, random.Random(1))
    assert calls == draw_day([STREAM], num_targets, random.Random(1))
    assert [it.hour for it in calls] == sorted(it.hour for it in calls)
    expected = sum(find_rate(STREAM, hour + 0.5) for hour in range(24))
    assert len(calls) == pytest.approx(expected, rel=0.1)
    assert max(it.hour for it in calls) < 24
    counts = [sum(it.target == place for it in calls) for place in range(10)]
    assert counts[0] > 3 * counts[9] > 0, "the first target is the most popular"


def test_the_streams_name_tenants_once() -> None:
    assert len({it.tenant for it in STREAMS}) == len(STREAMS)


def report(amount: float | None, calls: float, idle: float = 0.5) -> dict[str, Any]:
    return {
        "rows": [{"amount": amount, "calls": calls}, {"amount": 0.25, "calls": None}],
        "idle": [{"amount": idle}],
        "missing_prices": [],
    }


@cases(
    "amount, calls, message",
    case("parts that sum to the machine", 1.25, 10, None),
    case("parts within 0.5 %", 1.259, 10, None),
    case("parts above 0.5 %", 1.261, 10, "differ by more than 0.5 %"),
    case("parts below 0.5 %", 1.239, 10, "differ by more than 0.5 %"),
    case("a lost request", 1.25, 9, "not all requests were recorded once"),
    case("a request counted twice", 1.25, 11, "not all requests were recorded once"),
)
def test_sums_are_checked(amount: float, calls: float, message: str | None) -> None:
    rows = sum_rows({"tenant": report(amount, calls)}, {"machine USD": 2.0}, 10)
    if message is None:
        check_sums(rows)
        return
    with pytest.raises(SystemExit, match=message):
        check_sums(rows)


def test_an_unknown_amount_is_not_summed_as_zero() -> None:
    with pytest.raises(RuntimeError, match="prices are missing"):
        sum_rows({"tenant": report(None, 10)}, {"machine USD": 2.0}, 10)


def footprint(**given: Any) -> Footprint:
    values = {
        "what": "w",
        "num_endpoints": 1,
        "cpus": 2.0,
        "memory_bytes": 100e6,
        "call_cpu_s": 0.01,
        "price_per_hour": 0.5,
    }
    return Footprint(**{**values, **given})


def test_multiplied_footprints_say_so_and_keep_the_cost_of_a_call() -> None:
    own = footprint().times(4)
    assert (own.num_endpoints, own.cpus, own.memory_bytes) == (4, 8.0, 400e6)
    assert (own.price_per_hour, own.call_cpu_s) == (2.0, 0.01)
    claim = Claim(name="c", shared=footprint(memory_bytes=200e6), own=own)
    assert [it["source"] for it in footprint_rows([claim])] == [
        "measured",
        "1 measured, memory times 4",
    ]
    (row,) = saving_rows([claim])
    assert list(row.values()) == ["c", 0.5, 0.25, 1.0, 0.25]
    (row,) = saving_rows([Claim(name="c", shared=own, own=footprint(call_cpu_s=0.0))])
    assert row["CPU per call, shared / own"] is None, "no tick of the clock was measured"
