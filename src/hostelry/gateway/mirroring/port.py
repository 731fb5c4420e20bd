"""The mirror as a request sees it, a shadow's share of requests, and faults of observers."""

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
    """Turns of each shadow, evenly spread; `draw` are uniform random numbers in [0, 1)."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self._positions = EvenPositions(draw)

    def is_turn(self, shadow: Shadow) -> bool:
        """Whether the next request is one of the shadow's share."""
        if shadow.share >= 1:
            return True
        return takes_new(self._positions.take(shadow.key), shadow.share)


LOG_EACH_S = 60.0
P = ParamSpec("P")
T = TypeVar("T")


class TapDefects:
    """Exceptions of taps: counted, and logged once a minute.

    `now_s` is of a clock that never goes back.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._quiet_until_s = float("-inf")
        self.num = 0

    def guarded(
        self, count: Callable[[], None], step: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """The result of `step`; None, and `count` is called, where it raises."""
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
    """Takes requests for shadow variants; nothing here waits, and no answer to a client does."""

    def is_turn(self, shadow: Shadow) -> bool:
        """Whether the next request is one of the shadow's share."""
        ...

    def offer(self, shadow: Shadow, request: MirroredInvocation, body: bytes) -> AnswerTap | None:
        """Have a request, whose turn it is, sent to the shadow.

        The result takes production's answer, to be compared with the shadow's; None: it is not.
        """
        ...

    @property
    def num_in_flight(self) -> int:
        """Requests that this process has, and that have not ended for it."""
        ...

    async def close(self) -> None:
        """Drop what is under way."""
        ...
