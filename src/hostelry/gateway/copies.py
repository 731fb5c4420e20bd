"""Puts a request on one of a destination's copies, and on another where the first refuses."""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import CopyRoute
from hostelry.gateway.outstanding import Outstanding
from hostelry.gateway.reply import ConnectError, Reply
from hostelry.gateway.upstream import Timeouts
from hostelry.routing.copy_choice import choose_copy

log = logging.getLogger(__name__)
AVOID_S = 1.0


class Upstream(Protocol):
    """Sends requests to addresses; raises as `UpstreamPool.send` does."""

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        """One request's reply, its head there already; the caller closes it."""
        ...


class Placed:
    """A request that is under way on a copy; `close` must be called once it is over."""

    __slots__ = ("_give_back", "copy", "reply")

    def __init__(self, copy: CopyRoute, reply: Reply, give_back: Callable[[], None]) -> None:
        self.copy = copy
        self.reply = reply
        self._give_back = give_back

    def close(self) -> None:
        """Give the place back; cuts the copy off where its answer was not read to the end."""
        self.reply.close()
        self._give_back()


class Copies:
    """Chooses copies, counts what is under way on them, and avoids those that refuse.

    Args:
        pool: connections to copies.
        outstanding: the counts, which this object alone changes.
        draw: uniform random numbers in [0, 1).
        now_s: seconds of a clock that never goes back.
    """

    def __init__(
        self,
        pool: Upstream,
        outstanding: Outstanding,
        draw: Callable[[], float],
        now_s: Callable[[], float],
    ) -> None:
        self._pool = pool
        self._outstanding = outstanding
        self._draw = draw
        self._now_s = now_s
        self._avoided_until_s: dict[str, float] = {}

    async def send(
        self,
        copies: Sequence[CopyRoute],
        strategy: RoutingStrategy,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Placed:
        """Send a request (head, body) to one of `copies`; its answer's head is there on return.

        A copy to which no connection can be made is avoided for a second and another one is asked.
        Raises ConnectError when none is left; BrokenError and DeadlineError of the one that took
        the request, which may have been processed and is not sent again.
        """
        left = list(copies)
        refusal: ConnectError = ConnectError("There is no copy to connect to.")
        while left:
            copy = self.choose(left, strategy)
            give_back = self._outstanding.reserve(copy.id)
            try:
                reply = await self._pool.send(copy.address, parts, timeouts, whole_below_bytes)
            except ConnectError as error:
                give_back()
                self._avoided_until_s[copy.id] = self._now_s() + AVOID_S
                left.remove(copy)
                log.warning("copy %s is avoided for %g s: %s", copy.id, AVOID_S, error)
                refusal = error
            except BaseException:
                give_back()
                raise
            else:
                return Placed(copy, reply, give_back)
        raise refusal

    def choose(self, copies: Sequence[CopyRoute], strategy: RoutingStrategy) -> CopyRoute:
        """One of `copies`, which has at least one; avoided ones only where all are avoided."""
        if self._avoided_until_s:
            copies = self._unavoided(copies) or copies
        if len(copies) == 1:
            return copies[0]
        counts = [self._outstanding.of(copy.id) for copy in copies]
        return copies[choose_copy(strategy, counts, self._draw())]

    def _unavoided(self, copies: Sequence[CopyRoute]) -> list[CopyRoute]:
        now_s = self._now_s()
        for copy_id, until_s in tuple(self._avoided_until_s.items()):
            if until_s <= now_s:
                del self._avoided_until_s[copy_id]
        return [copy for copy in copies if copy.id not in self._avoided_until_s]
