"""Latency of a copy's answers: its service time, and what loading an adapter adds."""

PRIOR_SERVICE_MS = 50.0
PRIOR_LOAD_MS = 40.0  # a rank-16 adapter from files; docs/benchmarks.md, Starting
PRIOR_LOADS = 20.0  # answers that the prior of a load is worth
KEPT = 0.98  # weight of what was learned, at each answer: the last 50 count
LOAD_MS_RANGE = (1.0, 60_000.0)


class LatencyEstimate:
    """Estimate from one copy's whole answers; older ones fade.

    An answer that took t milliseconds, with n requests in flight before it, is an observation of
    t / (n + 1) milliseconds a request: the service time of a copy that serves one request at a
    time, and the reciprocal of the throughput of a busy one that serves many.
    """

    __slots__ = ("_load_ms", "_loads", "_positions", "_took_ms")

    def __init__(self) -> None:
        self._took_ms = PRIOR_SERVICE_MS
        self._positions = 1.0
        self._load_ms = PRIOR_LOAD_MS * PRIOR_LOADS
        self._loads = PRIOR_LOADS

    @property
    def service_ms(self) -> float:
        """Milliseconds that each request in flight adds to the next one's answer."""
        return self._took_ms / self._positions

    @property
    def load_ms(self) -> float:
        """Milliseconds that loading the adapter adds to an answer."""
        least, most = LOAD_MS_RANGE
        return min(max(self._load_ms / self._loads, least), most)

    def answered(self, took_ms: float, outstanding: int, loaded: bool) -> None:
        """Learn from a whole answer.

        Args:
            took_ms: from the choice of the copy to the last byte.
            outstanding: requests that were in flight on the copy before this one.
            loaded: whether the adapter was not resident when the copy was chosen.
        """
        if loaded:
            more_ms = took_ms - (outstanding + 1) * self.service_ms
            self._load_ms = KEPT * self._load_ms + more_ms
            self._loads = KEPT * self._loads + 1.0
        else:
            self._took_ms = KEPT * self._took_ms + took_ms
            self._positions = KEPT * self._positions + outstanding + 1
