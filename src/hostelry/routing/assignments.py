"""Which adapters a copy has at hand, told by what was sent there: what copies report goes stale."""

from collections import OrderedDict

CAPACITY = 64  # adapters a copy has at hand, where nothing else is known
FORGOTTEN_AFTER_S = 900.0


class Assignments:
    """One copy's adapters, the least recently asked for first; beyond `capacity` that one goes.

    Args:
        capacity: adapters that the copy can have at hand.
    """

    __slots__ = ("_used_at_s", "capacity")

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self._used_at_s: OrderedDict[str, float] = OrderedDict()

    @property
    def held(self) -> int:
        """How many adapters it has at hand."""
        return len(self._used_at_s)

    def holds(self, adapter: str, now_s: float, elsewhere_at_s: float | None = None) -> bool:
        """Whether the copy has the adapter at hand.

        Args:
            adapter: its name on the copy.
            now_s: seconds of the clock that `assigned` is told.
            elsewhere_at_s: when another router sent it a request for this adapter, if any did; that
                counts where it is later than what this copy would have dropped by now.
        """
        if adapter in self._used_at_s:
            return now_s - self._used_at_s[adapter] < FORGOTTEN_AFTER_S
        if elsewhere_at_s is None or now_s - elsewhere_at_s >= FORGOTTEN_AFTER_S:
            return False
        if self.held < self.capacity:
            return True
        return elsewhere_at_s > next(iter(self._used_at_s.values()))

    def assigned(self, adapter: str, now_s: float) -> float | None:
        """A request for `adapter` goes to the copy; when the last one did, None where none did."""
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
        """The copy has not got it after all."""
        self._used_at_s.pop(adapter, None)
