"""Load balancer: sends a request to one of a destination's copies, or to another if it refuses."""

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache

from hostelry.base.guards import COPY_KEY_HEADER
from hostelry.dataplane.balancing.adapter_places import AdapterPlaces
from hostelry.dataplane.balancing.outstanding import InFlightCounts
from hostelry.dataplane.tracing.call_trace import MAX_VIEWED, RouteView
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import CopyRoute
from hostelry.http1.reply import (
    BrokenError,
    ConnectError,
    DeadlineError,
    Reply,
    ReplyPhase,
    UpstreamError,
)
from hostelry.http1.upstream import Timeouts, Upstream
from hostelry.routing import circuit as circuits
from hostelry.routing.circuit import Circuit, count_failure, open_after_refusal, usable
from hostelry.routing.copy_choice import choose_copy

LOG = logging.getLogger(__name__)
RANDOM = RoutingStrategy.RANDOM
CLOSED = Circuit()
MAX_KNOWN_KEYS = 4096
Ending = Callable[[Reply], None]
Chosen = Callable[[str, int, str | None, RouteView | None], None]


class InFlightRequest:
    """A request in flight on a copy. `close` must be called once it is over.

    Args:
        copy: the copy.
        reply: the answer.
        give_back: ends the count of this request.
        learn: is called with the answer once the request is over, or None.
        answered_by: the copy that answers, if it is not `copy`.
    """

    __slots__ = ("_give_back", "_learn", "answered_by", "copy", "reply")

    def __init__(
        self,
        copy: CopyRoute,
        reply: Reply,
        give_back: Callable[[], None],
        learn: Ending | None = None,
        answered_by: CopyRoute | None = None,
    ) -> None:
        self.copy = copy
        self.answered_by = copy if answered_by is None else answered_by
        self.reply = reply
        self._give_back = give_back
        self._learn = learn

    def close(self) -> None:
        """End the count. Closes the connection if the answer was not read to its end."""
        self.reply.close()
        self._give_back()
        if self._learn is not None:
            learn, self._learn = self._learn, None
            learn(self.reply)


class CopiesBusyError(ConnectError):
    """Each copy is at its limit. The request was not sent."""


class LoadBalancer:
    """Chooses copies, counts requests in flight on them, and keeps their circuits.

    Args:
        pool: connections to copies.
        outstanding: requests in flight, which only objects of this class change.
        draw: uniform random numbers in [0, 1).
        now_s: seconds of a clock that never goes back.
        places: where adapters are. Without it, adapters do not influence the choice.
    """

    def __init__(
        self,
        pool: Upstream,
        outstanding: InFlightCounts,
        draw: Callable[[], float],
        now_s: Callable[[], float],
        places: AdapterPlaces | None = None,
    ) -> None:
        self._pool = pool
        self._outstanding = outstanding
        self._draw = draw
        self._now_s = now_s
        self._places = places
        self._circuits: dict[str, Circuit] = {}

    async def send(
        self,
        copies: Sequence[CopyRoute],
        strategy: RoutingStrategy,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
        adapter: str | None = None,
        chosen: Chosen | None = None,
    ) -> InFlightRequest:
        """Send a request to one of `copies`, and return once the head of the answer has arrived.

        outcome                              next
        the copy refuses the connection      its circuit opens, and another copy is tried
        all copies refuse                    ConnectError: the request was not processed
        the answer breaks, or takes too long its circuit counts it, and BrokenError or DeadlineError
                                             is raised: the request may have been processed
        an answer                            its circuit closes

        `parts` are the request's head, without the end that carries the copy's key, and its body.
        `adapter` is the adapter's name on the copies, if the request names one. `chosen` is called
        for each copy that is tried: with its id, the requests in flight on all of `copies` in all
        workers, its configuration, and the alternatives.
        """
        left = copies
        refusal = ConnectError("There is no copy to connect to.")
        while left:
            copy, learn, num_others, route = self._choose(left, strategy, adapter)
            give_back = self._outstanding.reserve(copy.id)
            if chosen is not None:
                chosen(copy.id, num_others + 1, copy.config, route)
            try:
                reply = await self._send_counted(
                    copy, give_back, parts, timeouts, whole_below_bytes
                )
            except ConnectError as error:
                left = [it for it in left if it is not copy]
                refusal = error
            else:
                return InFlightRequest(copy, reply, give_back, learn)
        raise refusal

    async def send_to_free(
        self,
        copies: Sequence[CopyRoute],
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
        chosen: Chosen | None = None,
    ) -> InFlightRequest:
        """Send as `send` does, but only to a copy that has no request of any worker.

        The first free copy is taken, so that the last copies stay idle if fewer are needed. Raises
        CopiesBusyError if no copy is free and no copy refused.
        """
        refusal: ConnectError = CopiesBusyError("Each copy has a request already.")
        for copy in self._usable(copies) if self._circuits else copies:
            give_back = self._outstanding.claim(copy.id, 1)
            if give_back is None:
                continue
            if chosen is not None:
                counts = [self._outstanding.of(it.id) for it in copies]
                route = route_view("the first free", copies, counts)
                chosen(copy.id, sum(counts), copy.config, route)
            try:
                reply = await self._send_counted(
                    copy, give_back, parts, timeouts, whole_below_bytes
                )
            except ConnectError as error:
                refusal = error
            else:
                return InFlightRequest(copy, reply, give_back)
        raise refusal

    def choose(
        self, copies: Sequence[CopyRoute], strategy: RoutingStrategy, adapter: str | None = None
    ) -> tuple[CopyRoute, Ending | None]:
        """Choose a copy, and return it with an optional completion callback.

        `copies` must not be empty. A copy with an open circuit is chosen only if all are open.
        """
        return self._choose(copies, strategy, adapter)[:2]

    async def send_on(
        self,
        first: CopyRoute,
        copy: CopyRoute,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        """Send to a further container of the pipeline that begins with `first`.

        Raises as `send` does. A failure counts against `first`, so that the next requests go to
        other instances.
        """
        head, body = parts
        return await self._send_to_address(
            first, copy.address, (head + head_end(copy.key), body), timeouts, whole_below_bytes
        )

    async def _send_counted(
        self,
        copy: CopyRoute,
        give_back: Callable[[], None],
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None,
    ) -> Reply:
        """Send, and read the head of the answer. A failure ends the count."""
        head, body = parts
        try:
            reply = await self._send_to_address(
                copy, copy.address, (head + head_end(copy.key), body), timeouts, whole_below_bytes
            )
        except UpstreamError as error:
            give_back()
            error.copy = copy
            raise
        except BaseException:
            give_back()
            raise
        if self._circuits:
            self._circuits.pop(copy.id, None)
        return reply

    async def _send_to_address(
        self,
        copy: CopyRoute,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None,
    ) -> Reply:
        """Send to `address`. A failure counts in the circuit of `copy`."""
        try:
            return await self._pool.send(address, parts, timeouts, whole_below_bytes)
        except ConnectError as error:
            self._note_refusal(copy, error)
            raise
        except (BrokenError, DeadlineError) as error:
            self._note(copy, count_failure(self._circuit(copy), self._now_s()), error)
            raise

    def _choose(
        self, copies: Sequence[CopyRoute], strategy: RoutingStrategy, adapter: str | None
    ) -> tuple[CopyRoute, Ending | None, int, RouteView | None]:
        """Choose as `choose` does, with two more results for traces and counts.

        The third result counts the requests in flight on the copies with a closed circuit. The last
        result has the alternatives, or is None if there was no choice.
        """
        if self._circuits:
            copies = self._usable(copies)
        learn = None
        counts = [self._outstanding.of(copy.id) for copy in copies]
        if adapter is not None and self._places is not None and strategy is not RANDOM:
            copy, learn, costs = self._choose_for(adapter, self._places, copies, counts)
            route = route_view("adapter", copies, costs)
        elif len(copies) == 1:
            copy, route = copies[0], None
        else:
            copy = copies[choose_copy(strategy, counts, self._draw(), self._outstanding.share)]
            route = route_view(strategy.value, copies, counts)
        if self._circuits and copy.id in self._circuits:
            self._circuits[copy.id] = circuits.note_chosen(self._circuits[copy.id], self._now_s())
        return copy, learn, sum(counts), route

    def _choose_for(
        self,
        adapter: str,
        places: AdapterPlaces,
        copies: Sequence[CopyRoute],
        counts: Sequence[int],
    ) -> tuple[CopyRoute, Ending, Sequence[float]]:
        began_s = self._now_s()
        choice = places.choose(copies, counts, adapter)
        copy, outstanding = copies[choice.index], counts[choice.index]
        if LOG.isEnabledFor(logging.DEBUG):
            LOG.debug("adapter %s goes to copy %s: %s", adapter, copy.id, choice.reason)

        def learn(reply: Reply) -> None:
            if reply.status >= 300:
                places.learn_failure(copy, adapter, choice)
            elif reply.phase is ReplyPhase.WHOLE:
                took_ms = (self._now_s() - began_s) * 1000
                places.learn_answer(copy, took_ms, outstanding, choice)

        return copy, learn, choice.costs_ms

    def _note_refusal(self, copy: CopyRoute, error: ConnectError) -> None:
        self._note(copy, open_after_refusal(self._circuit(copy), self._now_s()), error)
        if self._places is not None:
            self._places.forget(copy)

    def _note(self, copy: CopyRoute, circuit: Circuit, error: Exception) -> None:
        if circuit.trips > self._circuit(copy).trips:
            LOG.warning("circuit open for copy %s for %g s: %s", copy.id, circuit.open_s, error)
        self._circuits[copy.id] = circuit

    def _circuit(self, copy: CopyRoute) -> Circuit:
        return self._circuits.get(copy.id, CLOSED)

    def _usable(self, copies: Sequence[CopyRoute]) -> Sequence[CopyRoute]:
        now_s = self._now_s()
        for copy_id, circuit in tuple(self._circuits.items()):
            if circuit.is_forgotten(now_s):
                del self._circuits[copy_id]
        circuits = [self._circuits.get(copy.id) for copy in copies]
        return [copies[index] for index in usable(circuits, now_s)]


def route_view(
    policy: str, copies: Sequence[CopyRoute], costs: Sequence[float]
) -> RouteView | None:
    """List the first of `copies` with their costs, for a trace. None for a single copy."""
    num = len(copies)
    if num < 2:
        return None
    if num > MAX_VIEWED:
        copies, costs = copies[:MAX_VIEWED], costs[:MAX_VIEWED]
    return policy, tuple([it.id for it in copies]), tuple(costs), num


def skip_count() -> None:
    """Do nothing at the end of a request that is not counted on its copy."""


@lru_cache(MAX_KNOWN_KEYS)
def build_key_header(key: str | None) -> dict[str, str]:
    """Build the header with the key of a copy. Empty if the copy has no key."""
    return {} if key is None else {COPY_KEY_HEADER: key}


def head_end(key: str | None) -> bytes:
    """Build the end of a request's head for a copy with this key."""
    return b"\r\n" if key is None else f"{COPY_KEY_HEADER}: {key}\r\n\r\n".encode("latin-1")
