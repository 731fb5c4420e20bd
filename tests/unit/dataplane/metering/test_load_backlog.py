"""Backlog of load reports: in order, each once, and never above its bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.metrics.sagemaker.load_sample import CHAT, CODE, T0, load

from hostelry.dataplane.metering.load_sender import MAX_LOADS_A_REPORT, LoadBacklog
from hostelry.dataplane.metering.meter import ClosedSeconds
from hostelry.domain.load import LoadKey, LoadReport, SecondLoad
from hostelry.metrics.sagemaker.load_aggregator import LoadAggregator


def span(first: int, *loads: SecondLoad, through: int | None = None) -> ClosedSeconds:
    last = first if through is None else through
    return ClosedSeconds(first=first, through=last, loads=loads)


def drained(backlog: LoadBacklog) -> list[LoadReport]:
    """Every report, each delivered at once."""
    found = []
    while (report := backlog.report()) is not None:
        found.append(report)
        backlog.drop_report()
    return found


def test_a_report_is_the_same_until_it_is_delivered() -> None:
    backlog = LoadBacklog("gateway-1", 1.0)
    backlog.add([span(T0, load(T0, arrivals=1))])
    first = backlog.report()
    backlog.add([span(T0 + 1, load(T0 + 1, arrivals=2))])
    assert backlog.report() == first
    backlog.drop_report()
    second = backlog.report()
    assert first is not None
    assert second is not None
    assert (first.sequence, second.sequence) == (1, 2)
    assert [it.arrivals for it in second.seconds] == [2]


def test_seconds_in_a_row_go_in_one_report_and_a_jump_parts_them() -> None:
    backlog = LoadBacklog("gateway-1", 1.0)
    for first in (T0, T0 + 1, T0 + 2, T0 - 3600):
        backlog.add([span(first)])
    reported = [(it.first - T0, it.through - T0) for it in drained(backlog)]
    assert reported == [(0, 2), (-3600, -3600)]


def test_a_long_backlog_is_parted_between_seconds() -> None:
    backlog = LoadBacklog("gateway-1", 1.0)
    for second in range(T0, T0 + 60):
        reported = [load(second, key_of(it), arrivals=1) for it in range(200)]
        backlog.add([span(second, *reported)])
    reports = drained(backlog)
    assert all(len(it.seconds) <= MAX_LOADS_A_REPORT for it in reports)
    assert sum(len(it.seconds) for it in reports) == 60 * 200
    assert [it.first for it in reports[1:]] == [it.through + 1 for it in reports[:-1]]
    assert all(it.first <= one.second <= it.through for it in reports for one in it.seconds)


def key_of(number: int) -> LoadKey:
    return LoadKey(scope=CHAT.scope, endpoint_name="ep", variant_name=f"v{number}")


@pytest.mark.parametrize("seconds", [10, 1000], ids=["ten seconds", "a quarter of an hour"])
def test_no_request_is_lost_and_the_bound_is_kept_while_control_is_away(seconds: int) -> None:
    backlog = LoadBacklog("gateway-1", 1.0, max_loads=100)
    for second in range(T0, T0 + seconds):
        reported = [load(second, key_of(it), arrivals=1, in_flight_max=it) for it in range(20)]
        backlog.add([span(second, *reported)])
        assert backlog.num_loads <= 100
    seen = [one for it in drained(backlog) for one in it.seconds]
    assert sum(it.arrivals for it in seen) == 20 * seconds
    assert max(it.in_flight_max for it in seen) == 19


@given(st.lists(st.tuples(st.sampled_from([CHAT, CODE]), st.integers(0, 9), st.booleans())))
def test_control_counts_all_that_was_measured_whenever_it_is_away(
    steps: list[tuple[LoadKey, int, bool]],
) -> None:
    board = LoadAggregator(T0)
    backlog = LoadBacklog("gateway-1", 1.0, max_loads=10)
    for second, (key, count, is_there) in enumerate(steps, T0):
        backlog.add([span(second, load(second, key, arrivals=count))])
        report = backlog.report()
        if report is not None:
            board.take(report, second + 1.0)  # taken, even if the answer is lost
        if is_there:
            backlog.drop_report()
    now = T0 + len(steps) + 1.0
    for report in drained(backlog):
        board.take(report, now)
    board.tick(now + 10)
    seen = [it for _, loads in board.seconds(0) for it in loads]
    assert sum(it.arrivals for it in seen) == sum(count for _, count, _ in steps)
