"""Queue of loads into host memory: one for each content, with time-outs and retry back-off.

Belongs to the engine's thread. The work runs on executors.

    a content is requested and                        result
    ------------------------------------------------  ------------------------------------------
    is queued or being loaded                         nothing more
    failed, and its retry time has not come           failed again, with the same reason
    otherwise                                         queued

    a queued load, once its tier has room, and        result
    ------------------------------------------------  ------------------------------------------
    `max_stuck` loads from its tier hang              failed
    otherwise                                         started
    it takes longer than its time-out                 failed, its thread counts as stuck, and
                                                        another thread is started
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Protocol

import msgspec

from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.loader import Prepared, StorageTier

Job = Callable[[], None]
"""Work that reports its own errors and raises none."""


class JobExecutor(Protocol):
    """Runs jobs in other threads, in the order they were submitted."""

    def submit(self, job: Job) -> None:
        """Run `job` as soon as a thread is free."""
        ...

    def add_thread(self) -> None:
        """Add a thread, in case one is stuck for good."""
        ...

    def close(self) -> None:
        """End once the started jobs are done. Does not wait for them."""
        ...


class ThreadJobExecutor:
    """A JobExecutor with `num_threads` daemon threads, started with the first job."""

    def __init__(self, name: str, num_threads: int) -> None:
        self._name = name
        self._num_threads = num_threads
        self._threads: list[threading.Thread] = []
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()

    def submit(self, job: Job) -> None:
        """Run `job` as soon as a thread is free."""
        while len(self._threads) < self._num_threads:
            name = f"{self._name}-{len(self._threads)}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._jobs.put(job)

    def add_thread(self) -> None:
        """Add a thread, in case one is stuck for good."""
        self._num_threads += 1

    def close(self) -> None:
        """End once the started jobs are done. Does not wait for them."""
        for _ in self._threads:
            self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class LoadLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of loading: seconds, and concurrent loads for each tier loaded from.

    A load that takes longer than its time-out has failed. Another thread replaces its thread,
    `max_stuck` in all. After the n-th failure in a row the next try waits for min(`retry_s` * 2 **
    (n - 1), `max_retry_s`).
    """

    disk_timeout_s: float = 60.0
    remote_timeout_s: float = 120.0
    num_disk: int = 1
    num_remote: int = 4
    max_stuck: int = 8
    retry_s: float = 1.0
    max_retry_s: float = 60.0

    def timeout_s(self, tier: StorageTier) -> float:
        """The time-out of a load from `tier`."""
        return self.disk_timeout_s if tier is StorageTier.DISK else self.remote_timeout_s

    def num_at_once(self, tier: StorageTier) -> int:
        """The most concurrent loads from `tier`."""
        return self.num_disk if tier is StorageTier.DISK else self.num_remote


class LoadOutcome(msgspec.Struct, frozen=True):
    """The end of a load: an adapter, or the reason of the failure."""

    content_id: str
    prepared: Prepared | None
    reason: str = ""


class _Flight(msgspec.Struct, frozen=True):
    content_id: str
    tier: StorageTier
    started_at: float


class _Failure(msgspec.Struct, frozen=True):
    reason: str
    num_in_row: int
    retry_at: float


_Work = Callable[[], Prepared]


class LoadQueue:
    """Loads that wait, run, or failed."""

    def __init__(
        self,
        executors: Mapping[StorageTier, JobExecutor],
        limits: LoadLimits,
        wakeup: threading.Event,
    ) -> None:
        self._executors = executors
        self._limits = limits
        self._waiting: dict[str, None] = {}  # in order
        self._flights: dict[int, _Flight] = {}
        self._stuck: dict[int, StorageTier] = {}
        self._failures: dict[str, _Failure] = {}
        self._next_ticket = 0
        self._done: deque[tuple[int, Prepared | str]] = deque()  # filled by other threads
        self._wakeup = wakeup

    @property
    def waiting(self) -> Sequence[str]:
        """Contents whose load has not started, in order."""
        return tuple(self._waiting)

    @property
    def num_in_progress(self) -> int:
        """Loads that are running."""
        return len(self._flights)

    def is_in_progress(self, content_id: str) -> bool:
        """Whether the content is queued or being loaded."""
        return content_id in self._waiting or any(
            flight.content_id == content_id for flight in self._flights.values()
        )

    def enqueue(self, content_id: str, now: float) -> str | None:
        """Queue a load. Returns the reason if a failure is too recent to try again."""
        if self.is_in_progress(content_id):
            return None
        failure = self._failures.get(content_id)
        if failure is not None and now < failure.retry_at:
            return f"{failure.reason} (next try in {failure.retry_at - now:.1f} s)"
        self._waiting[content_id] = None
        return None

    def forget(self, content_id: str) -> None:
        """Drop a queued load and past failures. The result of a running load is not used."""
        self._waiting.pop(content_id, None)
        self._failures.pop(content_id, None)

    def has_room(self, tier: StorageTier) -> bool:
        """Whether another load from `tier` may be started."""
        num = sum(flight.tier is tier for flight in self._flights.values())
        return num < self._limits.num_at_once(tier)

    def start(
        self, content_id: str, tier: StorageTier, work: _Work, now: float
    ) -> LoadOutcome | None:
        """Start a queued load. Returns its outcome if it fails at once."""
        del self._waiting[content_id]
        num_stuck = sum(it is tier for it in self._stuck.values())
        if num_stuck >= self._limits.max_stuck:
            reason = f"{num_stuck} loads from {tier.value} hang; another is not started"
            return self._record_failure(content_id, reason, now)
        ticket = self._next_ticket
        self._next_ticket += 1
        self._flights[ticket] = _Flight(content_id, tier, now)
        self._executors[tier].submit(lambda: self._work(ticket, work))
        return None

    def collect(self, now: float) -> list[LoadOutcome]:
        """Outcomes since the last call: of loads that ended, and of those that timed out."""
        outcomes = []
        while self._done:
            ticket, result = self._done.popleft()
            flight = self._flights.pop(ticket, None)
            if flight is None:
                del self._stuck[ticket]
            elif isinstance(result, str):
                outcomes.append(self._record_failure(flight.content_id, result, now))
            else:
                self._failures.pop(flight.content_id, None)
                outcomes.append(LoadOutcome(flight.content_id, result))
        return outcomes + self._time_out(now)

    def _time_out(self, now: float) -> list[LoadOutcome]:
        outcomes = []
        for ticket, flight in list(self._flights.items()):
            timeout_s = self._limits.timeout_s(flight.tier)
            if now - flight.started_at > timeout_s:
                del self._flights[ticket]
                self._stuck[ticket] = flight.tier
                self._executors[flight.tier].add_thread()
                reason = f"loading from {flight.tier.value} took longer than {timeout_s:g} s"
                outcomes.append(self._record_failure(flight.content_id, reason, now))
        return outcomes

    def _record_failure(self, content_id: str, reason: str, now: float) -> LoadOutcome:
        before = self._failures.get(content_id)
        num = before.num_in_row + 1 if before else 1
        pause_s = min(self._limits.retry_s * 2.0 ** min(num - 1, 32), self._limits.max_retry_s)
        self._failures[content_id] = _Failure(reason, num, now + pause_s)
        return LoadOutcome(content_id, None, reason)

    def _work(self, ticket: int, work: _Work) -> None:
        """Run in an executor's thread. The flight ends, whatever `work` raises."""
        try:
            result: Prepared | str = work()
        except (AdapterError, OSError) as error:
            result = str(error)
        except Exception as error:  # noqa: BLE001 - fetchers are foreign code
            result = f"{type(error).__name__}: {error}"
        self._done.append((ticket, result))
        self._wakeup.set()
