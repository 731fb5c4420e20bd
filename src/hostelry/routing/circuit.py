"""Which copies are left alone for a while because they do not answer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

FAILURES_IN_A_ROW = 3
FIRST_OUT_S = 1.0
LONGEST_OUT_S = 8.0
FORGIVEN_AFTER_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Circuit:
    """What is remembered of a copy that failed; one that answers again is forgotten.

    Args:
        failures: requests in a row that it took and left without an answer.
        trips: times in a row that it was left alone.
        out_until_s: it gets no request before then, while another copy can have it.
        is_probed: since it was out one request has been put on it, whose end is not known yet.
    """

    failures: int = 0
    trips: int = 0
    out_until_s: float = 0.0
    is_probed: bool = False

    def is_out(self, now_s: float) -> bool:
        """Whether other copies go first."""
        return now_s < self.out_until_s

    def is_forgiven(self, now_s: float) -> bool:
        """Whether so long ago that it says nothing any more."""
        return now_s >= self.out_until_s + FORGIVEN_AFTER_S

    @property
    def out_s(self) -> float:
        """Seconds that it is left alone, the last time it was: 1, 2, 4, 8."""
        return float(min(FIRST_OUT_S * 2 ** max(self.trips - 1, 0), LONGEST_OUT_S))


def refused(circuit: Circuit, now_s: float) -> Circuit:
    """After a connection that could not be made: out at once."""
    return circuit if _says_nothing_new(circuit, now_s) else _tripped(circuit, now_s)


def unanswered(circuit: Circuit, now_s: float) -> Circuit:
    """After a request without an answer: out at the third in a row, or at a probe's."""
    if _says_nothing_new(circuit, now_s):
        return circuit
    if circuit.trips or circuit.failures + 1 >= FAILURES_IN_A_ROW:
        return _tripped(circuit, now_s)
    return replace(circuit, failures=circuit.failures + 1, out_until_s=now_s)


def chosen(circuit: Circuit, now_s: float) -> Circuit:
    """After a request was put on it: one that was out is out again until that request has ended.

    At most for as long as before; then another one may try.
    """
    if not circuit.trips or circuit.is_out(now_s):
        return circuit
    return replace(circuit, out_until_s=now_s + circuit.out_s, is_probed=True)


def usable(circuits: Sequence[Circuit | None], now_s: float) -> list[int]:
    """Indexes of the copies that may get a request; all of them where every one is out.

    Args:
        circuits: what is remembered of each copy; None is nothing bad.
        now_s: seconds of the clock that the circuits are kept by.
    """
    found = [index for index, it in enumerate(circuits) if it is None or not it.is_out(now_s)]
    return found or list(range(len(circuits)))


def _says_nothing_new(circuit: Circuit, now_s: float) -> bool:
    """Whether a failure now is of a request that was put on it in spite of its being out."""
    return circuit.is_out(now_s) and not circuit.is_probed


def _tripped(circuit: Circuit, now_s: float) -> Circuit:
    again = Circuit(trips=circuit.trips + 1)
    return replace(again, out_until_s=now_s + again.out_s)
