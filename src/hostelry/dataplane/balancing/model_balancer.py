"""Sends a request for a model of a multi-model endpoint to a copy that has the model, or loads it.

The copy's agent keeps a model loaded during a lease. A lease is taken before the request is sent.
It is given back after the last byte, or a moment later if other requests use it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from hostelry.base.errors import HostelryError
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.base.json import decode
from hostelry.dataplane.balancing.load_balancer import (
    Chosen,
    InFlightRequest,
    LoadBalancer,
    build_key_header,
    route_view,
)
from hostelry.dataplane.balancing.model_homes import ModelHomes
from hostelry.dataplane.balancing.outstanding import InFlightCounts
from hostelry.dataplane.balancing.sessions import Sessions
from hostelry.dataplane.tracing.call_trace import RouteView
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.load import LoadKey
from hostelry.domain.routes import CopyRoute
from hostelry.http1.calls import call
from hostelry.http1.reply import ConnectError, Reply, ReplyPhase, UpstreamError
from hostelry.http1.upstream import Timeouts, Upstream

LOG = logging.getLogger(__name__)
IDLE_S = 0.25
MAX_AGE_S = 1.0


class KeptLease(msgspec.Struct, eq=False):
    """The lease of `model_id` for `target` on a copy, and the requests that used it."""

    copy: CopyRoute
    target: str
    lease: str
    model_id: str
    since_s: float
    in_use: int = 1
    uses: int = 1
    idle_at_s: float = 0.0
    is_over: bool = False


class KeptLeases:
    """The leases of one gateway process, by copy and model. The caller passes the time.

    A lease is kept a moment for the next request for its model, and delays the eviction of the
    model. So an idle lease is kept for `IDLE_S`, and a lease older than `MAX_AGE_S` is not used
    again.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], KeptLease] = {}
        self._idle: dict[KeptLease, None] = {}  # the longest idle is first

    @property
    def num_idle(self) -> int:
        """Number of leases that no request uses."""
        return len(self._idle)

    def take(self, copy: CopyRoute, target: str, now_s: float) -> KeptLease | None:
        """Use a kept lease. None if a lease must be taken from the agent."""
        kept = self._kept.get((copy.id, target))
        if kept is None or kept.copy.key != copy.key:  # of another process of the copy
            return None
        if now_s - kept.since_s >= MAX_AGE_S:
            return None
        self._idle.pop(kept, None)
        kept.in_use += 1
        kept.uses += 1
        return kept

    def add(self, kept: KeptLease) -> None:
        """Keep a lease that is in use, in place of an earlier lease of the model."""
        self._kept[kept.copy.id, kept.target] = kept

    def give_back(
        self, kept: KeptLease, now_s: float, *, lost: bool = False, again: bool = True
    ) -> bool:
        """Record the end of one use. True if the lease must be given back to the agent.

        `lost`: the copy does not have the model. Without `again`, no other request uses the lease.
        """
        kept.in_use -= 1
        if kept.is_over:
            return False
        at = (kept.copy.id, kept.target)
        is_old = now_s - kept.since_s >= MAX_AGE_S
        if self._kept.get(at) is kept and (lost or is_old or not again):
            del self._kept[at]
        if kept.in_use and not lost:
            return False
        if self._kept.get(at) is kept:
            kept.idle_at_s = now_s
            self._idle[kept] = None
            return False
        kept.is_over = True
        return True

    def remove_idle(self, now_s: float) -> list[KeptLease]:
        """Remove the leases that have been idle for too long."""
        found = []
        while self._idle:
            kept = next(iter(self._idle))
            if now_s - kept.idle_at_s < IDLE_S:
                break
            del self._idle[kept]
            found.append(self._over(kept))
        return found

    def close(self) -> list[KeptLease]:
        """Remove all idle leases."""
        found = [self._over(kept) for kept in self._idle]
        self._idle.clear()
        return found

    def _over(self, kept: KeptLease) -> KeptLease:
        kept.is_over = True
        at = (kept.copy.id, kept.target)
        if self._kept.get(at) is kept:
            del self._kept[at]
        return kept


LEASE_TIMEOUTS = Timeouts(total_s=65.0)  # an agent lets a request wait 60 s for its model
RELEASE_TIMEOUTS = Timeouts(total_s=10.0)
CLOSE_S = 1.0
MAX_LEASE_BYTES = 64 * 1024
MAX_BACKGROUND = 64  # releases excluded
REFUSALS = (400, 424, 429)
NOT_LOADED = 404
OUT_OF_RESOURCES = 507
Head = Callable[[str], bytes]


class TargetModelRefusedError(HostelryError):
    """The copy cannot serve the model. `status` is from the agent, `model_status` the container."""

    def __init__(self, status: int, message: str, model_status: int | None) -> None:
        super().__init__(message)
        self.status = status
        self.model_status = model_status


class ModelLease(msgspec.Struct):
    """A model that a copy keeps loaded. `times` are its measurements since the last lease.

    `keep`: other requests may use the lease too.
    """

    lease: str
    model_id: str
    hit: bool
    waited_s: float
    times: tuple[tuple[str, float], ...] = ()
    keep: bool = False

    def keep_for(self, copy: CopyRoute, target: str, now_s: float) -> KeptLease:
        """Build the lease that is kept, and given back later."""
        return KeptLease(copy, target, self.lease, self.model_id, now_s)


class _Refusal(msgspec.Struct):
    message: str
    status: int | None = None


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to `key` for a model.

    `head` builds the request's head for the copy's id of the model. `leased` is called with each
    lease.
    """

    key: LoadKey
    target: str
    head: Head
    body: bytes
    timeouts: Timeouts
    whole_below_bytes: int | None
    chosen: Chosen
    leased: Callable[[ModelLease], None]

    def seen_by(self, route: RouteView | None) -> "ModelRequest":
        """The request whose `chosen` gets `route`, the alternatives of its copy."""
        if route is None:
            return self

        def chosen(copy_id: str, num_on_copies: int, config: str | None, _: object) -> None:
            self.chosen(copy_id, num_on_copies, config, route)

        return replace(self, chosen=chosen)


class Balancers(msgspec.Struct, frozen=True, kw_only=True):
    """The balancers of requests for copies and for models.

    Also their counts, and the sessions that bind requests to copies.
    """

    counts: InFlightCounts
    copies: LoadBalancer
    models: "ModelBalancer"
    sessions: Sessions


class ModelBalancer:
    """Chooses copies for models, and takes leases of models on them.

    Args:
        copies: sends requests to copies.
        pool: connections to agents.
        outstanding: requests in flight on copies.
        homes: the copies of each model.
        now_s: seconds of a monotonic clock.
    """

    def __init__(
        self,
        copies: LoadBalancer,
        pool: Upstream,
        outstanding: InFlightCounts,
        homes: ModelHomes,
        now_s: Callable[[], float],
    ) -> None:
        self._copies = copies
        self._pool = pool
        self._outstanding = outstanding
        self._homes = homes
        self._now_s = now_s
        self._background: set[asyncio.Task[None]] = set()
        self._kept = KeptLeases()
        self._releases: dict[str, asyncio.Task[None]] = {}  # in progress, by their leases
        self._sweep: asyncio.TimerHandle | None = None

    async def send(self, copies: Sequence[CopyRoute], request: ModelRequest) -> InFlightRequest:
        """Send the request to one of `copies`. Returns once the head of its answer has come.

        outcome                                      next
        the agent or the copy refuses to connect     another copy is tried
        all of them refuse                           ConnectError: the request was not processed
        the copy has lost the model (404)            the model is loaded again, once
        the copy has no memory for the model (507)   others are evicted, and it is sent again, once
        the model cannot be loaded                   TargetModelRefusedError
        any other                                    as LoadBalancer.send
        """
        for newcomer in self._homes.newcomers(copies):
            self._load(newcomer, self._homes.popular(request.key))
        left = list(copies)
        refusal = ConnectError("There is no copy to connect to.")
        while left:
            counts = [self._outstanding.of(copy.id) for copy in left]
            choice = self._homes.choose(request.key, left, counts, request.target)
            copy = left[choice.index]
            if choice.copy_to is not None:
                self._load(left[choice.copy_to], [request.target])
            asked = request.seen_by(route_view("model", left, choice.costs_ms))
            try:
                return await self._send_to(copy, asked, counts[choice.index])
            except ConnectError as error:
                self._homes.forget(copy)
                left.remove(copy)
                refusal = error
        raise refusal

    async def close(self) -> None:
        """Give kept leases back, and end the work in the background."""
        if self._sweep is not None:
            self._sweep.cancel()
        for kept in self._kept.close():
            self._release(kept, lost=False)
        if self._background:
            await asyncio.wait(self._background, timeout=CLOSE_S)
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    async def _send_to(
        self, copy: CopyRoute, request: ModelRequest, outstanding: int
    ) -> InFlightRequest:
        sent, lease = await self._send_leased(copy, request, outstanding)
        if sent.reply.status not in (NOT_LOADED, OUT_OF_RESOURCES):
            return sent
        sent.close()
        # Before the next lease, because the agent would lease the model that the copy has lost.
        if (release := self._releases.get(lease)) is not None:
            await asyncio.wait({release})
        more_room = sent.reply.status == OUT_OF_RESOURCES
        sent, _ = await self._send_leased(copy, request, outstanding, more_room=more_room)
        return sent

    async def _send_leased(
        self, copy: CopyRoute, request: ModelRequest, outstanding: int, *, more_room: bool = False
    ) -> tuple[InFlightRequest, str]:
        """The request in flight, and its lease."""
        kept = await self._kept_lease(copy, request, more_room=more_room)
        began_s = self._now_s()
        try:
            sent = await self._copies.send(
                (copy,),
                RoutingStrategy.RANDOM,
                (request.head(kept.model_id), request.body),
                request.timeouts,
                request.whole_below_bytes,
                chosen=request.chosen,
            )
        except BaseException:
            self._give_back(kept)
            raise

        def ended(reply: Reply) -> None:
            is_lost = reply.status == NOT_LOADED
            self._give_back(kept, lost=is_lost, again=reply.status != OUT_OF_RESOURCES)
            if is_lost:
                self._homes.learn_failure(copy, request.target)
            elif reply.phase is ReplyPhase.WHOLE:
                self._homes.learn_answer(copy, (self._now_s() - began_s) * 1000, outstanding)

        return InFlightRequest(copy, sent.reply, sent.close, ended), kept.lease

    async def _kept_lease(
        self, copy: CopyRoute, request: ModelRequest, *, more_room: bool
    ) -> KeptLease:
        """Use the lease of another request, or take a lease from the agent."""
        kept = None if more_room else self._kept.take(copy, request.target, self._now_s())
        if kept is not None:
            self._homes.learn_lease(copy, request.target, hit=True, waited_s=0.0)
            request.leased(
                ModelLease(lease=kept.lease, model_id=kept.model_id, hit=True, waited_s=0.0)
            )
            return kept
        lease = await self._lease(copy, request.target, more_room=more_room)
        request.leased(lease)
        kept = lease.keep_for(copy, request.target, self._now_s())
        if lease.keep:
            self._kept.add(kept)
        return kept

    def _give_back(self, kept: KeptLease, *, lost: bool = False, again: bool = True) -> None:
        """End the use of a lease by one request."""
        if self._kept.give_back(kept, self._now_s(), lost=lost, again=again):
            self._release(kept, lost=lost)
        elif self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(IDLE_S, self._release_idle)

    def _release_idle(self) -> None:
        self._sweep = None
        for kept in self._kept.remove_idle(self._now_s()):
            self._release(kept, lost=False)
        if self._kept.num_idle:
            self._sweep = asyncio.get_running_loop().call_later(IDLE_S, self._release_idle)

    async def _lease(self, copy: CopyRoute, target: str, *, more_room: bool = False) -> ModelLease:
        """Take a lease of the model. Raises TargetModelRefusedError, ConnectError."""
        asked = {"target": target} | ({"more_room": True} if more_room else {})
        try:
            body = msgspec.json.encode(asked)
            answer = await self._call(copy, "acquire", body, LEASE_TIMEOUTS)
            status = answer.status
            if status == 200:
                lease = decode(answer.body, ModelLease)
                self._homes.learn_lease(copy, target, hit=lease.hit, waited_s=lease.waited_s)
                return lease
            refused = decode(answer.body, _Refusal) if status in REFUSALS else None
        except (UpstreamError, msgspec.DecodeError) as error:
            raise ConnectError(f"The copy's agent gave no answer: {error}") from error
        self._homes.learn_failure(copy, target)
        if refused is None:
            raise ConnectError(f"The copy's agent answered {status}.")
        raise TargetModelRefusedError(status, refused.message, refused.status)

    def _release(self, kept: KeptLease, *, lost: bool) -> None:
        """Give the lease back. If the agent does not answer, the lease ends by its time limit."""

        async def release() -> None:
            body = msgspec.json.encode({"lease": kept.lease, "lost": lost, "uses": kept.uses})
            try:
                await self._call(kept.copy, "release", body, RELEASE_TIMEOUTS)
            except UpstreamError as error:
                where = kept.copy.id
                LOG.info("the lease of a model on copy %s is not given back: %s", where, error)

        task = self._releases[kept.lease] = self._in_background(release())
        task.add_done_callback(lambda _: self._releases.pop(kept.lease, None))

    def _load(self, copy: CopyRoute, targets: Sequence[str]) -> None:
        """Let the copy load models for later requests, one after the other."""
        if len(self._background) >= MAX_BACKGROUND:
            return

        async def load() -> None:
            for target in targets:
                try:
                    lease = await self._lease(copy, target)
                except (ConnectError, TargetModelRefusedError) as error:
                    LOG.info("copy %s does not load model %s: %s", copy.id, target, error)
                    return
                self._release(lease.keep_for(copy, target, self._now_s()), lost=False)

        self._in_background(load())

    def _in_background(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _call(
        self, copy: CopyRoute, action: str, body: bytes, timeouts: Timeouts
    ) -> HttpResponse:
        """Call the agent of `copy`, and return its answer. Raises UpstreamError."""
        if copy.models_address is None:
            raise ConnectError("The copy's agent has not reported where its models are leased.")
        scheme, _, rest = copy.models_address.partition("://")
        server, _, path = rest.partition("/")
        headers = {"Content-Type": "application/json", **build_key_header(copy.key)}
        request = HttpRequest("POST", f"/{path}/{action}", "", headers, body)
        return await call(self._pool, f"{scheme}://{server}", request, timeouts, MAX_LEASE_BYTES)
