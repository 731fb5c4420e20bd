"""Loads under way: one for each content, each with a time-out, failures remembered for a while.

Belongs to the engine's thread; the work is done on lanes.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.executors import JobExecutor
from hostelry.engine.lora.loader import Prepared, StorageTier


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLimits:
    """Bounds of loading; seconds, and loads at a time for each tier loaded from.

    A load that takes longer than its time-out has failed, and a thread more is started for it,
    `max_stuck` in all. After the n-th failure in a row the next try comes no sooner than
    `retry_s` * 2 ** (n - 1), at most `max_retry_s`, later.
    """

    disk_timeout_s: float = 60.0
    remote_timeout_s: float = 120.0
    num_disk: int = 1
    num_remote: int = 4
    max_stuck: int = 8
    retry_s: float = 1.0
    max_retry_s: float = 60.0

    def timeout_s(self, tier: StorageTier) -> float:
        """Seconds that a load from `tier` may take."""
        return self.disk_timeout_s if tier is StorageTier.DISK else self.remote_timeout_s

    def num_at_once(self, tier: StorageTier) -> int:
        """Loads from `tier` at a time."""
        return self.num_disk if tier is StorageTier.DISK else self.num_remote


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """How a load ended: with an adapter, or with the reason why not."""

    content_id: str
    prepared: Prepared | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Flight:
    content_id: str
    tier: StorageTier
    started_at: float


@dataclass(frozen=True, slots=True)
class _Failure:
    reason: str
    num_in_row: int
    retry_at: float


Work = Callable[[], Prepared]


class LoadQueue:
    """What is wanted, what is under way, and what failed."""

    def __init__(
        self, lanes: Mapping[StorageTier, JobExecutor], limits: LoadLimits, news: threading.Event
    ) -> None:
        self._lanes = lanes
        self._limits = limits
        self._waiting: dict[str, None] = {}  # in order
        self._flights: dict[int, _Flight] = {}
        self._stuck: dict[int, StorageTier] = {}
        self._failures: dict[str, _Failure] = {}
        self._next_ticket = 0
        self._done: deque[tuple[int, Prepared | str]] = deque()  # filled by other threads
        self._news = news

    @property
    def waiting(self) -> Sequence[str]:
        """Wanted and not yet started, in order."""
        return tuple(self._waiting)

    @property
    def num_under_way(self) -> int:
        """Loads that are running."""
        return len(self._flights)

    def is_under_way(self, content_id: str) -> bool:
        """Whether the content is wanted already."""
        return content_id in self._waiting or any(
            flight.content_id == content_id for flight in self._flights.values()
        )

    def want(self, content_id: str, now: float) -> str | None:
        """Load it once there is room; the reason where it failed so lately that it is not tried."""
        if self.is_under_way(content_id):
            return None
        failure = self._failures.get(content_id)
        if failure is not None and now < failure.retry_at:
            return f"{failure.reason} (next try in {failure.retry_at - now:.1f} s)"
        self._waiting[content_id] = None
        return None

    def forget(self, content_id: str) -> None:
        """Nobody wants it any longer; a load that is running ends unheeded."""
        self._waiting.pop(content_id, None)
        self._failures.pop(content_id, None)

    def has_room(self, tier: StorageTier) -> bool:
        """Whether another load from `tier` may be started."""
        num = sum(flight.tier is tier for flight in self._flights.values())
        return num < self._limits.num_at_once(tier)

    def start(
        self, content_id: str, tier: StorageTier, work: Work, now: float
    ) -> LoadOutcome | None:
        """Start a load that waits; its outcome where it fails at once."""
        del self._waiting[content_id]
        num_stuck = sum(it is tier for it in self._stuck.values())
        if num_stuck >= self._limits.max_stuck:
            reason = f"{num_stuck} loads from {tier.value} hang; another is not started"
            return self._failed(content_id, reason, now)
        ticket = self._next_ticket
        self._next_ticket += 1
        self._flights[ticket] = _Flight(content_id, tier, now)
        self._lanes[tier].start(lambda: self._work(ticket, work))
        return None

    def collect(self, now: float) -> list[LoadOutcome]:
        """Loads that ended since the last call, and those that take too long."""
        outcomes = []
        while self._done:
            ticket, result = self._done.popleft()
            flight = self._flights.pop(ticket, None)
            if flight is None:
                del self._stuck[ticket]
            elif isinstance(result, str):
                outcomes.append(self._failed(flight.content_id, result, now))
            else:
                self._failures.pop(flight.content_id, None)
                outcomes.append(LoadOutcome(flight.content_id, result))
        return outcomes + self._late(now)

    def _late(self, now: float) -> list[LoadOutcome]:
        outcomes = []
        for ticket, flight in list(self._flights.items()):
            timeout_s = self._limits.timeout_s(flight.tier)
            if now - flight.started_at > timeout_s:
                del self._flights[ticket]
                self._stuck[ticket] = flight.tier
                self._lanes[flight.tier].widen()
                reason = f"loading from {flight.tier.value} took longer than {timeout_s:g} s"
                outcomes.append(self._failed(flight.content_id, reason, now))
        return outcomes

    def _failed(self, content_id: str, reason: str, now: float) -> LoadOutcome:
        before = self._failures.get(content_id)
        num = before.num_in_row + 1 if before else 1
        pause_s = min(self._limits.retry_s * 2.0 ** min(num - 1, 32), self._limits.max_retry_s)
        self._failures[content_id] = _Failure(reason, num, now + pause_s)
        return LoadOutcome(content_id, None, reason)

    def _work(self, ticket: int, work: Work) -> None:
        """In a lane's thread: whatever happens, the flight ends."""
        try:
            result: Prepared | str = work()
        except (AdapterError, OSError) as error:
            result = str(error)
        except Exception as error:  # noqa: BLE001 - fetchers are others' code; told as a reason
            result = f"{type(error).__name__}: {error}"
        self._done.append((ticket, result))
        self._news.set()
