"""What a copy's answers teach about the next one: its pace, and what an adapter's load adds."""

PRIOR_PACE_MS = 50.0
PRIOR_LOAD_MS = 40.0  # a rank-16 adapter from files; docs/benchmarks.md, Starting
PRIOR_LOADS = 20.0  # answers that the prior of a load is worth
KEPT = 0.98  # share of what was learned that each answer leaves: the last 50 count
LOAD_MS_RANGE = (1.0, 60_000.0)


class Pace:
    """Learned of one copy from whole answers; older ones fade.

    An answer that took t milliseconds with n requests under way before it says t / (n + 1) for each
    of them: the service time of a copy that serves one request at a time, and the reciprocal of the
    throughput of a busy one that serves many.
    """

    __slots__ = ("_load_ms", "_loads", "_positions", "_took_ms")

    def __init__(self) -> None:
        self._took_ms = PRIOR_PACE_MS
        self._positions = 1.0
        self._load_ms = PRIOR_LOAD_MS * PRIOR_LOADS
        self._loads = PRIOR_LOADS

    @property
    def pace_ms(self) -> float:
        """Milliseconds that each request under way adds to the next one's answer."""
        return self._took_ms / self._positions

    @property
    def load_ms(self) -> float:
        """Milliseconds that an answer takes longer where its adapter had to be loaded."""
        least, most = LOAD_MS_RANGE
        return min(max(self._load_ms / self._loads, least), most)

    def answered(self, took_ms: float, outstanding: int, loaded: bool) -> None:
        """Learn from a whole answer.

        Args:
            took_ms: from the choice of the copy to the last byte.
            outstanding: requests that were under way on the copy before this one.
            loaded: whether the adapter was not at hand when the copy was chosen.
        """
        if loaded:
            more_ms = took_ms - (outstanding + 1) * self.pace_ms
            self._load_ms = KEPT * self._load_ms + more_ms
            self._loads = KEPT * self._loads + 1.0
        else:
            self._took_ms = KEPT * self._took_ms + took_ms
            self._positions = KEPT * self._positions + outstanding + 1
