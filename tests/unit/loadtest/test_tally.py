"""Measures of a load test."""

from array import array
from typing import Any

from tests.cases import case, cases

from hostelry.loadtest.tally import LoadTally, client_limits, join_tallies, percentile, spread_ms


@cases(
    "values, share, found",
    case("no values", [], 0.5, 0.0),
    case("one value", [7.0], 0.99, 7.0),
    case("the middle", [float(it) for it in range(100)], 0.5, 50.0),
    case("near the end", [float(it) for it in range(100)], 0.99, 99.0),
    case("the end", [1.0, 2.0], 1.0, 2.0),
)
def test_percentiles(values: list[float], share: float, found: float) -> None:
    assert percentile(values, share) == found


def test_a_spread_is_in_milliseconds_of_values_in_any_order() -> None:
    spread = spread_ms([0.003, 0.001, 0.002])
    assert spread == {"p50": 2.0, "p90": 3.0, "p99": 3.0, "max": 3.0, "mean": 2.0}
    assert spread_ms([]) is None


def make_tally(**fields: Any) -> LoadTally:
    made = LoadTally(measured_s=10.0)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@cases(
    "seen, text",
    case("an idle client", make_tally(cpu_s=2.0, late=array("d", [0.001] * 100)), None),
    case("a busy client", make_tally(cpu_s=9.5), "used 95% of the one core"),
    case("a late one", make_tally(late=array("d", [0.001] * 90 + [0.2] * 10)), "up to 200 ms late"),
    case("a rate that is too much", make_tally(num_unsent=7), "7 requests were due and never sent"),
)
def test_the_clients_own_limit_is_reported(seen: LoadTally, text: str | None) -> None:
    found = client_limits(seen)
    assert found == [] if text is None else text in found[0]


def test_windows_join_to_the_measures_of_one_window() -> None:
    one = make_tally(num_ok=2, latencies=array("d", [0.1, 0.2]), cpu_s=1.0)
    other = make_tally(num_ok=1, latencies=array("d", [0.3]), num_tokens=5)
    other.fail("503", "later")
    one.fail("503", "first")
    joined = join_tallies([one, other])
    assert (joined.num_ok, joined.num_requests, joined.num_tokens) == (3, 5, 5)
    assert list(joined.latencies) == [0.1, 0.2, 0.3]
    assert (joined.measured_s, joined.cpu_s) == (20.0, 1.0)
    assert (joined.errors, joined.error_texts) == ({"503": 2}, {"503": "first"})
    assert one.num_requests == 3, "the windows stay as they were"
