"""Signals in the last minutes' load of a target: its health, its service time, when it rose."""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from hostelry.domain.load import SecondLoad
from hostelry.scaling.decide.combine import TargetHealth

GUARD_WINDOW_S = 60
LOOK_BACK_S = 600
# Arrivals come in bursts: this number of quiet seconds does not end a load that has risen.
LULL_S = 5


class FirstAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The first answer of new capacity, and the requests that were delayed or failed until then."""

    at: float | None
    num_delayed: int
    num_failed: int


def measure_health(
    seconds: Sequence[SecondLoad], num_crashed: int, *, had_two_fleets: bool = False
) -> TargetHealth:
    """The health of a target in the `GUARD_WINDOW_S` that `seconds` are of."""
    return TargetHealth(
        window_s=float(GUARD_WINDOW_S),
        num_requests=sum(it.finished + it.no_capacity for it in seconds),
        num_errors=sum(count_failures(it) for it in seconds),
        num_crashed=num_crashed,
        oldest_waiting_s=seconds[-1].oldest_held_s if seconds else 0.0,
        had_two_fleets=had_two_fleets,
    )


def count_failures(second: SecondLoad) -> int:
    """Requests that the platform failed: 5xx, broken streams, refusals for want of a copy."""
    return second.errors_5xx + second.broken_streams + second.no_capacity


def get_mean_service_s(seconds: Sequence[SecondLoad]) -> float | None:
    """The time that a request took of a copy, on average. None if no request has ended."""
    finished = sum(it.finished for it in seconds)
    return sum(it.service_s for it in seconds) / finished if finished else None


def find_rise_time(
    seconds: Sequence[SecondLoad], is_over: Callable[[SecondLoad], bool]
) -> float | None:
    """The start of the newest run of seconds that were over. None if no second was.

    A gap of up to `LULL_S` seconds does not end a run.
    """
    start: int | None = None
    for load in reversed(seconds):
        if start is not None and start - load.second > LULL_S:
            break
        if is_over(load):
            start = load.second
    return None if start is None else float(start)


def build_overload_test(
    predefined: str | None, target: float, serving: int
) -> Callable[[SecondLoad], bool]:
    """A test for seconds with more load than `serving` copies or instances carry at the target.

    | serving | predefined metric | over |
    | --- | --- | --- |
    | none | any | with any request |
    | some | ...ConcurrentRequests... | more in flight than target x serving |
    | some | ...Invocations... | more arrivals, as of a minute, than target x serving |
    | some | another, or none | never: the metric is not counted per second |
    """
    if serving < 1:
        return lambda it: it.arrivals > 0 or it.held > 0 or it.no_capacity > 0
    if predefined is not None and "ConcurrentRequests" in predefined:
        return lambda it: it.in_flight_max > target * serving
    if predefined is not None and "Invocations" in predefined:
        return lambda it: it.arrivals * 60.0 > target * serving
    return lambda _: False


def find_first_answer(
    seconds: Sequence[SecondLoad], before: Iterable[str], since: float, decided_at: float
) -> FirstAnswer:
    """The first answer of a copy that is not one of `before`, and what requests met `since`."""
    known = frozenset(before)
    found = [
        at
        for load in seconds
        for copy_id, at in load.first_answer_at_by_copy.items()
        if copy_id not in known and at >= decided_at
    ]
    first = min(found, default=None)
    meanwhile = [it for it in seconds if int(since) <= it.second <= (first or it.second)]
    return FirstAnswer(
        at=first,
        num_delayed=sum(it.delayed for it in meanwhile),
        num_failed=sum(count_failures(it) for it in meanwhile),
    )
