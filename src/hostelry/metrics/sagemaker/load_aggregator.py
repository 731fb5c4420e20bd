"""Aggregates the load reports of all gateway workers, by name and second, for the last minutes.

a second                                                  result
-------------------------------------------------------   --------------------------------------
every live worker has reported it                         closed: merged, passed to subscribers
a worker hangs or died                                    closed GRACE_S after its end
a worker said that it is idle                             treated as reported, without load
within GRACE_S of the start of the aggregator             open, so that all workers can report it
reported by no worker                                     a gap, not a second of zeros
reported after it was closed                              counts are added (`late`), no gauges
in the future, as the clock was set back                  removed

Requests of jobs to their own endpoints are not load of a client's endpoint. They are only passed to
usage (`take_job_loads`).
"""

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import fields, replace

from hostelry.base.errors import HostelryError
from hostelry.domain import load as config_load
from hostelry.domain.hidden_endpoint import is_hidden
from hostelry.domain.load import Distribution, LoadKey, LoadReceipt, LoadReport, SecondLoad
from hostelry.domain.load_sums import counts_only, side_by_side, without_details

HISTORY_S = 900
FORGET_EVERY_S = 30
DETAILS_S = 60  # for how long latencies and copies are kept
MAX_LOADS = 200_000  # a name's second takes some 400 bytes. The oldest seconds go first
MAX_LATE = 20_000
MAX_WORKERS = 4096
GRACE_S = 2.0
LIVE_S = 3.0  # workers report once a second
MOST_IDLE_S = 60.0  # how long a worker may be idle without a report
SLACK_S = 5.0  # how far the clocks of control and the workers may be apart

# Fields of a SecondLoad by kind, from the types of their defaults.
NUMBERS = ("second", *(it.name for it in fields(SecondLoad) if isinstance(it.default, int | float)))
CONFIG_DISTRIBUTIONS = tuple(it for it in config_load.NAMES if it not in config_load.COUNTS)
DISTRIBUTIONS = tuple(it.name for it in fields(SecondLoad) if it.default == Distribution())

Listener = Callable[[int, Sequence[SecondLoad]], None]
Loads = dict[LoadKey, SecondLoad]


class ReportError(HostelryError):
    """A report has impossible numbers."""


class _Worker(msgspec.Struct, kw_only=True):
    """The last report of one worker, identified by its start, and when it arrived."""

    started_at: float
    sequence: int
    through: int
    came_at: float
    open: deque[tuple[int, int]] = msgspec.field(
        default_factory=deque
    )  # reports: sequence, last second
    idle_s: float = 0.0  # until the next report, if no request comes
    receipt: int = 0  # sequence of the last report whose seconds are all closed


class LoadAggregator:
    """The aggregated load of the last `HISTORY_S` seconds. Thread-safe.

    Times are seconds since the epoch, by the workers' clock. The aggregator starts at `now` and
    closes no second for `GRACE_S`, so that workers which outlived its predecessor can report the
    same seconds. `max_loads` limits the kept seconds, counted for each name.
    """

    def __init__(self, now: float, max_loads: int = MAX_LOADS) -> None:
        self._max_loads = max_loads
        self._lock = threading.Lock()
        self._notifying = threading.Lock()
        self._workers: dict[str, _Worker] = {}
        self._open: dict[int, Loads] = {}
        self._closed: deque[tuple[int, Loads]] = deque()  # in order, a second each, gaps left out
        self._detailed: deque[tuple[int, Loads]] = deque()  # the end of them, with all they have
        self._num_loads = 0
        self._closed_through = 0
        self._begins_at = now + GRACE_S
        self._last_seen: dict[LoadKey, int] = {}
        self._seen_checked_at = 0
        self._unpublished: deque[tuple[int, Sequence[SecondLoad]]] = deque()
        self._late: deque[SecondLoad] = deque(maxlen=MAX_LATE)
        self._of_jobs: deque[SecondLoad] = deque(maxlen=MAX_LATE)
        self._listeners: tuple[Listener, ...] = ()

    def take(self, report: LoadReport, now: float) -> bool:
        """Add a report. False if it was added before.

        Raises ReportError, and adds nothing, if numbers are impossible.
        """
        check_report(report)
        with self._lock:
            self._follow_clock(now)
            is_new = self._know(report, now)
            if is_new is not None:
                for load in report.seconds:
                    if is_hidden(load.key.endpoint_name):
                        second = min(load.second, math.floor(now))
                        self._of_jobs.append(replace(counts_only(load), second=second))
                    else:
                        self._add(load, now, is_new)
                self._close(now)
        self._notify()
        return is_new is not None

    def tick(self, now: float) -> None:
        """Close the seconds whose grace has ended. Called about once a second."""
        with self._lock:
            self._follow_clock(now)
            self._close(now)
        self._notify()

    def recent(self, key: LoadKey, since: int) -> list[SecondLoad]:
        """The closed seconds of `key` from `since` on, oldest first, without gaps.

        A second without load of `key` has zeros. Latencies and copies are kept for `DETAILS_S`.
        """
        with self._lock:
            found = []
            for second, loads in reversed(self._closed):
                if second < since:
                    break
                found.append(loads.get(key) or SecondLoad(key=key, second=second))
        return found[::-1]

    def keys(self) -> list[LoadKey]:
        """Every name with load in the last `HISTORY_S` seconds."""
        with self._lock:
            return list(self._last_seen)

    def seconds(self, since: int) -> list[tuple[int, tuple[SecondLoad, ...]]]:
        """The closed seconds from `since` on, oldest first, each with its loads."""
        with self._lock:
            return [(at, tuple(loads.values())) for at, loads in self._closed if at >= since]

    def late(self) -> list[SecondLoad]:
        """Counts that arrived for closed seconds since the last call."""
        with self._lock:
            found = list(self._late)
            self._late.clear()
        return found

    def take_job_loads(self) -> list[SecondLoad]:
        """Counts of jobs' requests to their own endpoints, reported since the last call."""
        with self._lock:
            found = list(self._of_jobs)
            self._of_jobs.clear()
        return found

    def receipts(self, through: int) -> dict[str, LoadReceipt]:
        """The last report of each worker whose seconds, like all before it, are up to `through`."""
        with self._lock:
            for worker in self._workers.values():
                while worker.open and worker.open[0][1] <= through:
                    worker.receipt, _ = worker.open.popleft()
            return {
                name: LoadReceipt(started_at=it.started_at, sequence=it.receipt)
                for name, it in self._workers.items()
                if it.receipt
            }

    def restore(self, receipts: Mapping[str, LoadReceipt]) -> None:
        """Note the reports that a predecessor took, so that repeated reports are not counted."""
        with self._lock:
            for name, receipt in receipts.items():
                self._workers[name] = _Worker(
                    started_at=receipt.started_at,
                    sequence=receipt.sequence,
                    through=0,
                    came_at=-math.inf,
                    receipt=receipt.sequence,
                )

    def is_reporting(self, now: float) -> bool:
        """True if any worker reported in the last `LIVE_S` seconds, or is idle."""
        with self._lock:
            return any(True for _ in self._live(now))

    @property
    def closed_through(self) -> int:
        """The newest closed second. 0 before the first."""
        with self._lock:
            return self._closed_through

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with each closed second and its loads, in order, never at the same time.

        Calls come from the thread that took the report. `listener` must be quick and not raise.
        """
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def _know(self, report: LoadReport, now: float) -> bool | None:
        """Note a report. None for a duplicate, False if its seconds were reported before."""
        known = self._workers.get(report.worker)
        is_same_life = known is not None and known.started_at == report.started_at
        if known is not None and is_same_life and report.sequence <= known.sequence:
            return None
        if next(self._live(now), None) is None:
            self._begins_at = now + GRACE_S  # after an outage, workers report again one by one
        through = min(report.through, math.floor(now))
        worker = _Worker(
            started_at=report.started_at,
            sequence=report.sequence,
            through=through,
            came_at=now,
            idle_s=min(max(0.0, report.idle_s), MOST_IDLE_S),
        )
        if known is not None and is_same_life:
            worker.open, worker.receipt = known.open, known.receipt
        worker.open.append((report.sequence, through))
        if len(worker.open) > HISTORY_S:  # no publisher asks for receipts
            worker.open.popleft()
        self._workers[report.worker] = worker
        if len(self._workers) > MAX_WORKERS:
            del self._workers[min(self._workers, key=lambda it: self._workers[it].came_at)]
        first = max(report.first, through - HISTORY_S, self._closed_through + 1)
        for second in range(first, through + 1):
            self._open.setdefault(second, {})
        # A restarted worker may report earlier seconds than before: clocks are set back.
        return known is None or not is_same_life or report.through >= known.through

    def _add(self, load: SecondLoad, now: float, is_new: bool) -> None:
        second = min(load.second, math.floor(now))
        if second != load.second:
            load = replace(load, second=second)
        if is_new and second > max(self._closed_through, now - HISTORY_S):
            loads = self._open.setdefault(second, {})
            known = loads.get(load.key)
            loads[load.key] = load if known is None else side_by_side(known, load)
            return
        counts = counts_only(load)
        self._late.append(counts)
        for closed, loads in reversed(self._closed):
            if closed <= second:
                if closed == second:
                    self._num_loads += load.key not in loads
                    known = loads.get(load.key)
                    loads[load.key] = counts if known is None else side_by_side(known, counts)
                break

    def _live(self, now: float) -> Iterator[_Worker]:
        return (it for it in self._workers.values() if now - it.came_at <= LIVE_S + it.idle_s)

    def _close(self, now: float) -> None:
        """Close, in order, the seconds that every live worker reported or whose grace has ended."""
        if now < self._begins_at:
            return
        self._pass_idle(now)
        reported_through = min((it.through for it in self._live(now)), default=0)
        through = max(math.floor(now - 1 - GRACE_S), reported_through)
        for second in sorted(it for it in self._open if it <= through):
            loads = self._open.pop(second)
            self._closed.append((second, loads))
            self._detailed.append((second, loads))
            self._num_loads += len(loads)
            self._last_seen.update(dict.fromkeys(loads, second))
            self._unpublished.append((second, tuple(loads.values())))
            self._closed_through = second
        self._forget()

    def _pass_idle(self, now: float) -> None:
        """Treat past seconds as reported by idle workers."""
        present = math.floor(now)
        for worker in self._live(now):
            if worker.idle_s and worker.through < present - 1:
                for second in range(max(worker.through, self._closed_through) + 1, present):
                    self._open.setdefault(second, {})
                worker.through = present - 1

    def _forget(self) -> None:
        newest = self._closed_through
        while self._closed and (
            self._closed[0][0] <= newest - HISTORY_S or self._num_loads > self._max_loads
        ):
            self._num_loads -= len(self._closed.popleft()[1])
        while self._detailed and self._detailed[0][0] <= newest - DETAILS_S:
            _, loads = self._detailed.popleft()
            loads.update({key: without_details(it) for key, it in loads.items()})
        if newest - self._seen_checked_at >= FORGET_EVERY_S:
            self._seen_checked_at = newest
            seen = self._last_seen.items()
            self._last_seen = {key: at for key, at in seen if at > newest - HISTORY_S}

    def _follow_clock(self, now: float) -> None:
        """Remove seconds in the future, after the clock was set back."""
        if now + SLACK_S >= self._closed_through:
            return
        present = math.floor(now) - 1  # the second that workers report now
        while self._closed and self._closed[-1][0] >= present:
            self._num_loads -= len(self._closed.pop()[1])
        while self._detailed and self._detailed[-1][0] >= present:
            self._detailed.pop()
        self._open = {second: it for second, it in self._open.items() if second < present}
        self._closed_through = present - 1
        self._begins_at = min(self._begins_at, now + GRACE_S)
        self._seen_checked_at = min(self._seen_checked_at, present)
        self._last_seen = {key: min(at, present) for key, at in self._last_seen.items()}
        for worker in self._workers.values():
            worker.through = min(worker.through, present - 1)
            worker.came_at = min(worker.came_at, now)

    def _notify(self) -> None:
        with self._notifying:
            while True:
                with self._lock:
                    if not self._unpublished:
                        return
                    closed, listeners = self._unpublished.popleft(), self._listeners
                for listener in listeners:
                    listener(*closed)


def check_report(report: LoadReport) -> None:
    """Raise ReportError for negative numbers, and for values and counts of different length."""
    for load in report.seconds:
        numbers = (
            *(getattr(load, it) for it in NUMBERS),
            *load.in_flight_max_by_copy.values(),
            *load.arrivals_by_copy.values(),
            *(number for it in load.outcomes_by_copy.values() for number in it.numbers),
            *(getattr(it, name) for it in load.by_config.values() for name in config_load.COUNTS),
            *load.divergence.counts,
            *(number for it in load.by_model.values() for number in it.numbers),
            *(number for it in load.by_tenant.values() for number in it.numbers),
        )
        if not all(0 <= it < math.inf for it in numbers):
            raise ReportError(f"the load of {load.key} in second {load.second} has {min(numbers)}")
        by_config = load.by_config.values()
        for found in (
            *(getattr(load, it) for it in DISTRIBUTIONS),
            *(getattr(it, name) for it in by_config for name in CONFIG_DISTRIBUTIONS),
            load.divergence.distance_millionths,
        ):
            if len(found.values) != len(found.counts):
                raise ReportError(
                    f"the load of {load.key} in second {load.second} has {len(found.values)} "
                    f"values of a latency or a distance, and {len(found.counts)} counts"
                )
