"""The interface of the mirror, the share of requests that a shadow gets, and defects of taps."""

import logging
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

from hostelry.dataplane.balancing.destination import EvenPositions
from hostelry.dataplane.route_table import Shadow
from hostelry.gateway.mirror import AnswerTap
from hostelry.gateway.mirroring.messages import MirroredInvocation
from hostelry.routing.copy_choice import takes_new

LOG = logging.getLogger(__name__)


class ShadowTurns:
    """Decides which requests each shadow gets. `draw` returns uniform random numbers in [0, 1)."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self._positions = EvenPositions(draw)

    def is_turn(self, shadow: Shadow) -> bool:
        """True if the shadow gets the next request. Its turns are evenly spread."""
        if shadow.share >= 1:
            return True
        return takes_new(self._positions.take(shadow.key), shadow.share)


LOG_EACH_S = 60.0
P = ParamSpec("P")
T = TypeVar("T")


class TapDefects:
    """Counts the exceptions of taps, and logs one each minute.

    `now_s` returns the seconds of a clock that never goes back.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._quiet_until_s = float("-inf")
        self.num = 0

    def guarded(
        self, count: Callable[[], None], step: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """Return the result of `step`. If it raises, call `count` and return None."""
        try:
            return step(*args, **kwargs)
        except Exception:
            self.num += 1
            if self._now_s() >= self._quiet_until_s:
                self._quiet_until_s = self._now_s() + LOG_EACH_S
                LOG.exception("a tap of requests failed, %d by now", self.num)
            count()
            return None


class MirrorPort(Protocol):
    """Takes requests for shadow variants. Its methods never wait, except `close`."""

    def is_turn(self, shadow: Shadow) -> bool:
        """True if the shadow gets the next request."""
        ...

    def offer(self, shadow: Shadow, request: MirroredInvocation, body: bytes) -> AnswerTap | None:
        """Have a request sent to the shadow.

        The result takes production's answer, and compares it with the shadow's. None means that
        the answers are not compared.
        """
        ...

    @property
    def num_in_flight(self) -> int:
        """Number of requests that this process still has to send, or to read the answers of."""
        ...

    async def close(self) -> None:
        """Drop the unfinished requests."""
        ...
