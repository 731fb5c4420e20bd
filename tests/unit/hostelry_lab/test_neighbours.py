import pytest
from tests.cases import case, cases

from hostelry.base.proc import CpuTimes
from hostelry_lab.call import OK, LoadCall
from hostelry_lab.drill_text import outcome_lines, row
from hostelry_lab.neighbours import (
    NeighbourReport,
    PhaseCalls,
    busy_share,
    neighbour_report,
    phase_calls,
    slowdown,
)
from hostelry_lab.outcome import DrillLimits, DrillOutcome, judge, served_calls


def call(began_at: float, took_s: float = 0.1, outcome: str = OK) -> LoadCall:
    return LoadCall(began_at=began_at, ended_at=began_at + took_s, outcome=outcome)


def test_a_call_is_of_the_phase_in_which_it_was_under_way() -> None:
    calls = [call(1), call(9.95), call(15), call(19.95), call(20.5), call(12, outcome="Broken")]
    found = neighbour_report(calls, 10.0, 20.0, busy=0.5)
    assert [it.num_calls for it in (found.before, found.during, found.after)] == [1, 4, 1]
    assert found.during.errors == {"Broken": 1}
    assert found.before.errors == found.after.errors == {}


@cases(
    "took_s, p99_s",
    case("no call", [], None),
    case("one call", [0.3], 0.3),
    case("one of a hundred may be slow", [0.1] * 99 + [5.0], 0.1),
    case("two may not", [0.1] * 98 + [5.0, 6.0], 5.0),
)
def test_the_99th_percentile_of_what_was_answered(took_s: list[float], p99_s: float | None) -> None:
    calls = [call(0, it) for it in took_s] + [call(0, 60.0, "ReadTimeoutError")]
    assert phase_calls(calls).p99_s == (None if p99_s is None else pytest.approx(p99_s))


def latencies(before_s: float | None, during_s: float | None, busy: float = 0.5) -> NeighbourReport:
    before, during = (PhaseCalls(num_calls=9, errors={}, p99_s=it) for it in (before_s, during_s))
    return NeighbourReport(before=before, during=during, after=before, busy=busy)


@cases(
    "found, late",
    case("twice as long", latencies(0.1, 0.2), False),
    case("longer", latencies(0.1, 0.21), True),
    case("some milliseconds are no harm", latencies(0.01, 0.06), False),
    case("a saturated machine", latencies(0.1, 5.0, busy=0.9), False),
    case("no answer: errors are judged elsewhere", latencies(0.1, None), False),
    case("nothing to compare with", latencies(None, 0.1), False),
)
def test_how_slow_neighbours_may_become(found: NeighbourReport, late: bool) -> None:
    assert (slowdown(found) is not None) is late


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        (CpuTimes(total=0, idle=0), CpuTimes(total=100, idle=20), 0.8),
        (CpuTimes(total=40, idle=10), CpuTimes(total=40, idle=10), 0.0),
    ],
)
def test_the_share_of_cpu_time_that_was_busy(
    before: CpuTimes, after: CpuTimes, share: float
) -> None:
    assert busy_share(before, after) == pytest.approx(share)


def test_an_error_of_a_neighbour_fails_the_drill_and_p99_is_shown() -> None:
    calls = [call(1), call(11, outcome="ModelError"), call(21)]
    found = neighbour_report(calls, 10.0, 20.0, busy=0.95)
    outcome = judge(
        DrillOutcome(drill="tenant-x", target="t", served=served_calls(calls, 10.0), beside=found),
        DrillLimits(),
    )
    assert outcome.verdict == "FAIL"
    assert row(outcome)[-2:] == ("100 ms / - / 100 ms", "FAIL")
    lines = outcome_lines(outcome)
    assert (
        "  p99       100 ms / - / 100 ms before, during and after; 95 % of the CPUs were busy"
        in (lines)
    )
    assert "            the machine was saturated: the p99 is not judged" in lines
