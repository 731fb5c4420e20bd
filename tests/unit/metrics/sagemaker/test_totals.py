"""Counters since control began: sums of all seconds, of as many names as have room."""

from msgspec.structs import replace
from tests.unit.metrics.sagemaker.load_sample import CHAT, CODE, T0, load

from hostelry.domain.load import Distribution
from hostelry.metrics.sagemaker.totals import BOUNDS_S, OTHERS, Totals


def test_seconds_add_up_and_gauges_are_those_of_the_newest() -> None:
    totals = Totals()
    totals.take(T0, [load(T0, arrivals=2, finished=1, errors_5xx=1, in_flight_mean=1.5, held=3)])
    totals.take(T0 + 1, [load(T0 + 1, arrivals=1, finished=2, in_flight_mean=0.5)])
    ((key, total),) = totals.read()
    assert (key, total.arrivals, total.finished, total.errors_5xx) == (CHAT, 3, 3, 1)
    assert (total.in_flight, total.held) == (0.5, 0)
    totals.take(T0 + 2, [])
    ((_, total),) = totals.read()
    assert (total.arrivals, total.in_flight) == (3, 0.0)


def test_what_comes_late_is_counted_and_moves_no_gauge() -> None:
    totals = Totals()
    totals.take(T0, [load(T0, arrivals=1, in_flight_mean=1.0)])
    totals.take_late([load(T0 - 5, arrivals=4)])
    ((_, total),) = totals.read()
    assert (total.arrivals, total.in_flight) == (5, 1.0)


def test_a_value_counts_at_its_bound_and_above() -> None:
    totals = Totals()
    seen = Distribution(values=(5_000.0, 5_001.0, 9e9), counts=(1, 2, 3))
    totals.take(T0, [load(T0, model_latency_us=seen)])
    ((_, total),) = totals.read()
    counts = total.model_latency.cumulative()
    assert (counts[0], counts[1], counts[len(BOUNDS_S) - 1], counts[-1]) == (1, 3, 3, 6)


def test_names_without_room_are_counted_together() -> None:
    totals = Totals(max_names=1)
    many = [replace(CODE, component_name=f"c{it}") for it in range(50)]
    totals.take(T0, [load(T0, arrivals=1), *(load(T0, key, arrivals=2) for key in many)])
    found = {key.component_name: total.arrivals for key, total in totals.read()}
    assert found == {"chat": 1, OTHERS: 100}
