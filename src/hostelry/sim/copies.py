"""A copy in simulated time: a batch of requests that share its speed, a queue, and the clock.

Work is counted in seconds of one request alone. All requests of a batch get on equally fast, so a
copy keeps one number: the work that any of them has done since the copy was last idle (`done_s`). A
request ends when that number has grown by its own work. A change of the batch changes only how fast
the number grows, so an event costs the logarithm of the batch, however large it is.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

NEVER = float("inf")
CLOSE_S = 1e-7  # work that is as good as done: instants of a long trace are no more exact
MAX_TURNS = 4096  # changes of speed that are remembered, for the times of first tokens


class SimulatedRequest(NamedTuple):
    """A request on a copy: when it arrived, and its work until the first and the last token.

    `of` is its model's position in the trace: a component's copies may serve several.
    """

    arrived_s: float
    first_work_s: float
    work_s: float
    number: int
    delayed: bool = False  # it was held for want of a copy
    of: int = 0


class SimulatedAnswer(NamedTuple):
    """A request that ended: when its first token came, and how long the copy had it."""

    asked: SimulatedRequest
    first_token_s: float
    service_s: float


class SimulatedCopy:
    """One copy.

    Args:
        id: its name.
        instance_id: its instance.
        slowdowns: how many times slower each of n requests is, by n up to the largest batch.
    """

    __slots__ = (
        "_batch", "_done_s", "_queue", "_slowdowns", "_turned_s", "_turns_done_s", "_turns_s",
        "first_answer_s", "id", "instance_id", "model", "outstanding", "place", "placed_s",
        "wakes_s",
    )  # fmt: skip

    def __init__(self, id: str, model: int, instance_id: str, slowdowns: Sequence[float]) -> None:
        self.id = id
        self.model = model
        self.instance_id = instance_id
        self.outstanding = 0
        self.place = -1  # among the serving copies of its component
        self.placed_s = 0.0
        self.first_answer_s = NEVER
        self.wakes_s = NEVER  # of the event that is under way for it
        self._slowdowns = slowdowns
        self._batch: list[tuple[float, int, float, float, SimulatedRequest]] = []
        self._queue: deque[tuple[float, SimulatedRequest]] = deque()
        self._done_s = 0.0
        self._turned_s = 0.0
        self._turns_s: list[float] = []
        self._turns_done_s: list[float] = []

    @property
    def at_once(self) -> int:
        """How many requests it works on at a time. Further ones wait on it."""
        return len(self._slowdowns) - 1

    def take(self, asked: SimulatedRequest, now_s: float) -> float:
        """Begin a request, or queue it. Return when the next request ends."""
        self.outstanding += 1
        if len(self._batch) >= self.at_once:
            self._queue.append((now_s, asked))
            return self._next_end_s()
        self._turn(now_s)
        self._begin(asked, now_s)
        return self._next_end_s()

    def pass_to(self, now_s: float) -> tuple[list[SimulatedAnswer], float]:
        """Requests that have ended by `now_s`, and when the next one ends."""
        ended: list[SimulatedAnswer] = []
        batch = self._batch
        self._turn(now_s)
        reached_s = self._done_s + CLOSE_S
        while batch and batch[0][0] <= reached_s:
            _, _, first_at_s, taken_s, asked = heappop(batch)
            ended.append(
                SimulatedAnswer(asked, self._get_instant(first_at_s, now_s), now_s - taken_s)
            )
            self.outstanding -= 1
            if self._queue:
                queued_s, following = self._queue.popleft()
                self._begin(following, queued_s)
        if not batch:
            self._done_s = 0.0
            self._turns_s.clear()
            self._turns_done_s.clear()
        if ended and self.first_answer_s == NEVER:
            self.first_answer_s = now_s
        return ended, self._next_end_s()

    def _begin(self, asked: SimulatedRequest, taken_s: float) -> None:
        from_s = self._done_s
        first_at_s = from_s + asked.first_work_s
        heappush(self._batch, (from_s + asked.work_s, asked.number, first_at_s, taken_s, asked))

    def _turn(self, now_s: float) -> None:
        """Count the work done until `now_s`, before the speed changes."""
        num = len(self._batch)
        if num:
            self._done_s += (now_s - self._turned_s) / self._slowdowns[num]
            self._turns_s.append(now_s)
            self._turns_done_s.append(self._done_s)
            if len(self._turns_s) > MAX_TURNS:
                self._forget()
        else:
            self._turns_s.append(now_s)
            self._turns_done_s.append(self._done_s)
        self._turned_s = now_s

    def _next_end_s(self) -> float:
        batch = self._batch
        if not batch:
            return NEVER
        left_s = batch[0][0] - self._done_s
        return self._turned_s + (left_s if left_s > 0.0 else 0.0) * self._slowdowns[len(batch)]

    def _get_instant(self, done_s: float, now_s: float) -> float:
        """When the work done reached `done_s`. The speed is constant between two turns."""
        turns_done_s = self._turns_done_s
        place = bisect_left(turns_done_s, done_s)
        if place >= len(turns_done_s):
            return now_s
        if place == 0:
            return self._turns_s[0]
        from_done_s, to_done_s = turns_done_s[place - 1], turns_done_s[place]
        from_s, to_s = self._turns_s[place - 1], self._turns_s[place]
        return from_s + (to_s - from_s) * (done_s - from_done_s) / (to_done_s - from_done_s)

    def _forget(self) -> None:
        """Drop turns from before the first token of all that are still in the batch."""
        oldest_s = min((it[2] for it in self._batch), default=self._done_s)
        keep = max(0, bisect_left(self._turns_done_s, oldest_s) - 1)
        del self._turns_s[:keep]
        del self._turns_done_s[:keep]


Event = SimulatedCopy | Callable[[float], None]


class Timeline:
    """Events by time. Events of equal times come in the order of planning.

    An event is a copy whose next request ends, or a function to call with the time.
    """

    __slots__ = ("_num", "events", "now_s")

    def __init__(self) -> None:
        self.now_s = 0.0
        self.events: list[tuple[float, int, Event]] = []
        self._num = 0

    def at(self, at_s: float, event: Event) -> None:
        """Plan an event at `at_s`, or now if that is past."""
        self._num += 1
        heappush(self.events, (max(at_s, self.now_s), self._num, event))

    def pop(self) -> Event:
        """The next event. The clock is set to its time."""
        self.now_s, _, event = heappop(self.events)
        return event
