"""Requests that wait for a copy: in order, within bounds of number, bytes and time.

Knows no clock, no loop and no routes: instants come in as arguments, in seconds of a clock that
never goes back, and each request is told by a call what became of it.
"""

import heapq
import itertools
from bisect import insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from hostelry.base.errors import HostelryError
from hostelry.domain.load import LoadKey


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldLimits:
    """How much may wait at once, in all and for one name; `limit_s` None: as long as a request may.

    One request may wait however large it is.
    Raises ValueError for limits that let nothing wait.
    """

    max_requests: int = 4096
    max_requests_each: int = 1024
    max_bytes: int = 256 * 1024 * 1024
    limit_s: float | None = None

    def __post_init__(self) -> None:
        if min(self.max_requests, self.max_requests_each, self.max_bytes) < 1:
            raise ValueError(f"{self} lets nothing wait; each limit must be at least 1")

    def share(self, num_workers: int) -> "HoldLimits":
        """What each of so many processes may hold; together they may hold a little more."""
        return HoldLimits(
            max_requests=-(-self.max_requests // num_workers),
            max_requests_each=-(-self.max_requests_each // num_workers),
            max_bytes=-(-self.max_bytes // num_workers),
            limit_s=self.limit_s,
        )


SPARE_DEADLINES = 64  # of requests that wait no more: they are swept out now and then


class FullError(HostelryError):
    """No more requests may wait; the message says which limit is reached."""


class Fate(Enum):
    """What became of a request that waited."""

    LET_GO = "let go"
    LATE = "late"


class Held:
    """One request's place; `until_s` is when it has waited long enough."""

    __slots__ = ("is_waiting", "key", "num_bytes", "since_s", "tell", "ticket", "until_s")

    tell: Callable[[Fate], None]

    def __init__(
        self,
        ticket: int,
        key: LoadKey,
        num_bytes: int,
        times_s: tuple[float, float],
        tell: Callable[[Fate], None],
    ) -> None:
        self.ticket = ticket
        self.key = key
        self.num_bytes = num_bytes
        self.since_s, self.until_s = times_s
        self.tell = tell
        self.is_waiting = False

    def __lt__(self, other: "Held") -> bool:
        return self.ticket < other.ticket


class WaitingLines:
    """A line for each name that something waits for; the first to come is the first to go."""

    def __init__(self, limits: HoldLimits) -> None:
        self.limits = limits
        self.num_bytes = 0
        self.num_held = 0
        self._lines: dict[LoadKey, list[Held]] = {}
        self._deadlines: list[tuple[float, int, Held]] = []
        self._tickets = itertools.count()

    def __bool__(self) -> bool:
        return bool(self._lines)

    @property
    def num_deadlines(self) -> int:
        """How many time limits are remembered: little more than those that wait."""
        return len(self._deadlines)

    def join(
        self,
        key: LoadKey,
        num_bytes: int,
        times_s: tuple[float, float],
        tell: Callable[[Fate], None],
    ) -> Held:
        """A place at the end of the line for `key`; raises FullError.

        Args:
            key: what is waited for.
            num_bytes: size of the request, which lies in memory meanwhile.
            times_s: since when it waits, and until when it may.
            tell: is called once it is let go or late, not when it leaves by itself.
        """
        self._check_room(key, num_bytes)
        held = Held(next(self._tickets), key, num_bytes, times_s, tell)
        self._enter(held)
        return held

    def rejoin(self, held: Held) -> None:
        """Take a place again that was let go for nothing, where it was: before all later ones."""
        self._enter(held)

    def leave(self, held: Held) -> None:
        """Give a place up, without being told; one that is not waiting any more is no error."""
        if held.is_waiting:
            self._take_out(held)

    def let_go(self, key: LoadKey, count: int) -> int:
        """Tell the first `count` of a line to go; how many there were."""
        gone = self._lines.get(key, [])[:count]
        for held in gone:
            self._take_out(held)
            held.tell(Fate.LET_GO)
        return len(gone)

    def expire(self, now_s: float) -> int:
        """Tell everyone who has waited long enough; how many there were."""
        count = 0
        while self._deadlines and self._deadlines[0][0] <= now_s:
            _, _, held = heapq.heappop(self._deadlines)
            if held.is_waiting:
                self._take_out(held)
                held.tell(Fate.LATE)
                count += 1
        return count

    def first(self, key: LoadKey) -> Held | None:
        """Who goes next for `key`."""
        line = self._lines.get(key)
        return line[0] if line else None

    def num_waiting(self, key: LoadKey) -> int:
        """How many wait for `key`."""
        return len(self._lines.get(key, ()))

    def names(self) -> Iterator[LoadKey]:
        """Every name that something waits for, as of this moment."""
        return iter(tuple(self._lines))

    def _check_room(self, key: LoadKey, num_bytes: int) -> None:
        limits, waiting = self.limits, self.num_waiting(key)
        if waiting >= limits.max_requests_each:
            raise FullError(f"{waiting} requests wait for it already, and no more may")
        if self.num_held >= limits.max_requests:
            raise FullError(f"{self.num_held} requests wait for copies already, and no more may")
        if self.num_bytes and self.num_bytes + num_bytes > limits.max_bytes:
            raise FullError(
                f"requests of {self.num_bytes} bytes wait for copies already; with this one of "
                f"{num_bytes} bytes they would be more than {limits.max_bytes}"
            )

    def _enter(self, held: Held) -> None:
        held.is_waiting = True
        if len(self._deadlines) > 2 * self.num_held + SPARE_DEADLINES:
            self._deadlines = [it for it in self._deadlines if it[2].is_waiting]
            heapq.heapify(self._deadlines)
        heapq.heappush(self._deadlines, (held.until_s, held.ticket, held))
        insort(self._lines.setdefault(held.key, []), held)
        self.num_bytes += held.num_bytes
        self.num_held += 1

    def _take_out(self, held: Held) -> None:
        line = self._lines[held.key]
        line.remove(held)
        if not line:
            del self._lines[held.key]
            if not self._lines:
                self._deadlines.clear()
        held.is_waiting = False
        self.num_bytes -= held.num_bytes
        self.num_held -= 1
