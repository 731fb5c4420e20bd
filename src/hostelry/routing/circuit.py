"""Circuit breakers: copies that fail get no requests for a while. Pure functions.

event                                              state of the circuit  next state
a connection is refused                            closed, half-open     open
a request has no answer: the first or second       closed                closed, one failure more
a request has no answer: the third in a row        closed                open
a request has no answer                            half-open             open, for twice as long
a request fails that was sent before it opened     open                  unchanged
a request is sent to the copy                      open time is over     half-open
an answer                                          any                   closed (record removed)

A half-open circuit lets no second request through. A circuit is open for 1, 2, 4, then 8 seconds.
If the circuits of all copies are open, all copies are used.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

FAILURES_IN_A_ROW = 3
FIRST_OPEN_S = 1.0
LONGEST_OPEN_S = 8.0
FORGOTTEN_AFTER_S = 60.0


class Circuit(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a copy that failed. An answer removes it.

    Args:
        failures: requests in a row that the copy took and did not answer.
        trips: times in a row that the circuit opened.
        open_until_s: the copy gets no requests until then, unless all copies are open.
        is_probed: the circuit is half-open: one request was sent, and has not ended.
    """

    failures: int = 0
    trips: int = 0
    open_until_s: float = 0.0
    is_probed: bool = False

    def is_open(self, now_s: float) -> bool:
        """True if other copies are preferred."""
        return now_s < self.open_until_s

    def is_forgotten(self, now_s: float) -> bool:
        """True if the failures are too old to matter."""
        return now_s >= self.open_until_s + FORGOTTEN_AFTER_S

    @property
    def open_s(self) -> float:
        """Seconds for which the circuit opened last: 1, 2, 4 or 8."""
        return float(min(FIRST_OPEN_S * 2 ** max(self.trips - 1, 0), LONGEST_OPEN_S))


def open_after_refusal(circuit: Circuit, now_s: float) -> Circuit:
    """Open the circuit after a refused connection."""
    return circuit if _is_earlier_request(circuit, now_s) else _trip(circuit, now_s)


def count_failure(circuit: Circuit, now_s: float) -> Circuit:
    """Count a request without an answer. The third in a row and a failed probe open the circuit."""
    if _is_earlier_request(circuit, now_s):
        return circuit
    if circuit.trips or circuit.failures + 1 >= FAILURES_IN_A_ROW:
        return _trip(circuit, now_s)
    return replace(circuit, failures=circuit.failures + 1, open_until_s=now_s)


def note_chosen(circuit: Circuit, now_s: float) -> Circuit:
    """Note that the copy was chosen. If its open time is over, the circuit becomes half-open.

    It stays half-open until that request ends, and at most as long as it was open before. Then
    another request may probe the copy.
    """
    if not circuit.trips or circuit.is_open(now_s):
        return circuit
    return replace(circuit, open_until_s=now_s + circuit.open_s, is_probed=True)


def usable(circuits: Sequence[Circuit | None], now_s: float) -> list[int]:
    """Find the indexes of the copies whose circuits are not open. If all are open, all indexes.

    Args:
        circuits: the circuit of each copy, or None if the copy has not failed.
        now_s: seconds of the clock that the circuits use.
    """
    found = [index for index, it in enumerate(circuits) if it is None or not it.is_open(now_s)]
    return found or list(range(len(circuits)))


def _is_earlier_request(circuit: Circuit, now_s: float) -> bool:
    """True if a request that fails now was sent before the circuit opened."""
    return circuit.is_open(now_s) and not circuit.is_probed


def _trip(circuit: Circuit, now_s: float) -> Circuit:
    again = Circuit(trips=circuit.trips + 1)
    return replace(again, open_until_s=now_s + again.open_s)
