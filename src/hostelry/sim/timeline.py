"""The virtual clock: what happens when, in one order for one seed."""

from collections.abc import Callable
from heapq import heappop, heappush

from hostelry.sim.copies import SimulatedCopy

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
