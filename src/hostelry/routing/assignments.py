"""Adapters resident on a copy, derived from what was sent there: copies' reports are stale."""

from collections import OrderedDict

CAPACITY = 64  # resident adapters of a copy, where nothing else is known
FORGOTTEN_AFTER_S = 900.0


class Assignments:
    """LRU of one copy's resident adapters, of `capacity`; each for FORGOTTEN_AFTER_S."""

    __slots__ = ("_used_at_s", "capacity")

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self._used_at_s: OrderedDict[str, float] = OrderedDict()

    @property
    def held(self) -> int:
        """How many adapters are resident."""
        return len(self._used_at_s)

    def holds(self, adapter: str, now_s: float, elsewhere_at_s: float | None = None) -> bool:
        """Whether the adapter is resident on the copy.

        sent by this router       sent by another              resident
        within FORGOTTEN_AFTER_S  any                          yes
        longer ago                any                          no
        never, or evicted         never, or longer ago         no
        never, or evicted         within it, room is left      yes
        never, or evicted         within it, the copy is full  if later than the least recent one

        Args:
            adapter: its name on the copy.
            now_s: seconds of the clock that `assigned` gets.
            elsewhere_at_s: when another router last sent a request for the adapter; None: never.
        """
        if adapter in self._used_at_s:
            return now_s - self._used_at_s[adapter] < FORGOTTEN_AFTER_S
        if elsewhere_at_s is None or now_s - elsewhere_at_s >= FORGOTTEN_AFTER_S:
            return False
        if self.held < self.capacity:
            return True
        return elsewhere_at_s > next(iter(self._used_at_s.values()))

    def assigned(self, adapter: str, now_s: float) -> float | None:
        """Record a request for `adapter`; the instant of the last one before it, or None."""
        used_at_s = self._used_at_s
        before_s = used_at_s.get(adapter)
        used_at_s[adapter] = now_s
        used_at_s.move_to_end(adapter)
        if len(used_at_s) > self.capacity:
            used_at_s.popitem(last=False)
        while now_s - next(iter(used_at_s.values())) >= FORGOTTEN_AFTER_S:
            used_at_s.popitem(last=False)
        return before_s

    def dropped(self, adapter: str) -> None:
        """Record that the copy does not have the adapter."""
        self._used_at_s.pop(adapter, None)
