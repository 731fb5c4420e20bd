"""What the scaler reads of the last minutes' load: how a target fares, and when its load rose."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hostelry.domain.copy import Copy
from hostelry.domain.load import LoadKey, SecondLoad
from hostelry.domain.load_sums import side_by_side
from hostelry.scaling_policy.guard import TargetHealth

WINDOW_S = 60
LOOK_BACK_S = 600
# Arrivals come in bursts: so many quiet seconds do not end a load that has risen.
LULL_S = 5


class LoadReader(Protocol):
    """Closed seconds of each name; `metrics.sagemaker.load_aggregator.LoadAggregator` is one."""

    def recent(self, key: LoadKey, since: int) -> Sequence[SecondLoad]:
        """Those of `key` from `since` on, oldest first; a second without reports is left out."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstAnswer:
    """What a receipt keeps of the requests: the first answer of new capacity, and what it took."""

    at: float | None
    num_delayed: int
    num_failed: int


def added_up(loads: LoadReader, keys: Iterable[LoadKey], since: float) -> list[SecondLoad]:
    """The seconds of several names together, oldest first."""
    by_second: dict[int, SecondLoad] = {}
    for key in keys:
        for one in loads.recent(key, int(since)):
            known = by_second.get(one.second)
            by_second[one.second] = one if known is None else side_by_side(known, one)
    return [by_second[second] for second in sorted(by_second)]


def health_of(seconds: Sequence[SecondLoad], num_crashed: int) -> TargetHealth:
    """How a target fared in those seconds."""
    return TargetHealth(
        window_s=float(WINDOW_S),
        num_requests=sum(it.finished + it.no_capacity for it in seconds),
        num_errors=sum(num_failed_in(it) for it in seconds),
        num_crashed=num_crashed,
        oldest_waiting_s=seconds[-1].oldest_held_s if seconds else 0.0,
    )


def num_failed_in(second: SecondLoad) -> int:
    """Requests that the platform failed: 5xx, streams cut off, refusals for want of a copy."""
    return second.errors_5xx + second.broken_streams + second.no_capacity


def mean_service_s(seconds: Sequence[SecondLoad]) -> float | None:
    """What a request took of a copy's time, on average; None where none has ended."""
    finished = sum(it.finished for it in seconds)
    return sum(it.service_s for it in seconds) / finished if finished else None


def rose_at(seconds: Sequence[SecondLoad], is_over: Callable[[SecondLoad], bool]) -> float | None:
    """The start of the newest run of seconds that were over; None where none was.

    A run goes on over `LULL_S` seconds that were not.
    """
    start: int | None = None
    for it in reversed(seconds):
        if start is not None and start - it.second > LULL_S:
            break
        if is_over(it):
            start = it.second
    return None if start is None else float(start)


def answered(
    seconds: Sequence[SecondLoad], before: Iterable[str], since: float, decided_at: float
) -> FirstAnswer:
    """The first answer of a copy that is not one of `before`, and what the requests since took."""
    known = frozenset(before)
    found = [
        at
        for it in seconds
        for copy_id, at in it.first_answer_at_by_copy.items()
        if copy_id not in known and at >= decided_at
    ]
    first = min(found, default=None)
    meanwhile = [it for it in seconds if int(since) <= it.second <= (first or it.second)]
    return FirstAnswer(
        at=first,
        num_delayed=sum(it.delayed for it in meanwhile),
        num_failed=sum(num_failed_in(it) for it in meanwhile),
    )


class Crashes:
    """Which copies died by themselves in the last `WINDOW_S`; fed with what is recorded of them.

    `now` is of a clock that never jumps. One thread feeds, any may ask.
    """

    def __init__(self) -> None:
        self._restarts: dict[str, int] = {}
        self._fell_at: dict[tuple[LoadKey, str], float] = {}

    def see(self, copies: Iterable[Copy], now: float) -> None:
        """Take note of the copies as they are now; all that there are."""
        restarts: dict[str, int] = {}
        fell_at = {it: at for it, at in self._fell_at.items() if now - at <= WINDOW_S}
        for it in copies:
            copy_id = it.spec.id
            restarts[copy_id] = it.status.restarts
            known = self._restarts.get(copy_id)
            died = known is not None and it.status.restarts > known
            stopped_serving = it.unready_since is not None and not it.draining
            if died or (stopped_serving and known is not None):
                fell_at[name_of(it), copy_id] = now
        self._restarts, self._fell_at = restarts, fell_at

    def among(self, keys: Iterable[LoadKey]) -> int:
        """How many copies of these names died, each counted once."""
        names = frozenset(keys)
        return sum(1 for name, _ in self._fell_at if name in names)


def name_of(copy: Copy) -> LoadKey:
    """The name that a copy answers for."""
    return LoadKey(
        scope=copy.scope,
        endpoint_name=copy.endpoint_name,
        variant_name=copy.variant_name,
        component_name=copy.component_name,
    )


def is_over(predefined: str | None, target: float, serving: int) -> Callable[[SecondLoad], bool]:
    """Whether a second's load was more than `serving` copies or instances carry at the target.

    Without any, every request is more. A metric that is not counted per second is never over.
    """
    if serving < 1:
        return lambda it: it.arrivals > 0 or it.held > 0 or it.no_capacity > 0
    if predefined is not None and "ConcurrentRequests" in predefined:
        return lambda it: it.in_flight_max > target * serving
    if predefined is not None and "Invocations" in predefined:
        return lambda it: it.arrivals * 60.0 > target * serving
    return lambda _: False
