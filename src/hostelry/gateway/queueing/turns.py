"""Turns of requests for a busy destination, so that one tenant cannot starve another.

A copy reports in the header `PLACES` of its answers how many requests it computes at once. If
requests of several tenants came within `LINGER_S`, its destination gets only as many requests at
once as the copies have places, and some more. Further requests wait here for their turn
(`routing.fair_turns`). All other destinations get each request at once.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from hostelry.base.errors import ServiceError
from hostelry.dataplane.balancing.outstanding import InFlightCounts
from hostelry.dataplane.metering.meter import Measurement
from hostelry.dataplane.route_table import Destination
from hostelry.dataplane.shared.tenant_tags import SEVERAL, TenantTags, compute_tag
from hostelry.domain.load import LoadKey
from hostelry.domain.routes import CopyRoute
from hostelry.gateway.queueing.decisions import NotServedError, describe_target
from hostelry.gateway.queueing.request_queues import QueueLimits
from hostelry.quotas.matching import CallStanding
from hostelry.routing.fair_turns import FairTurns, SentTurn, TenantTurns, find_limit, may_send

PLACES = "x-hostelry-places"
LINGER_S = 60.0
LOOK_S = 1.0
MAX_PLACES = 1024
MAX_KNOWN_COPIES = 65_536
MAX_DESTINATIONS = 4096
MAX_SEEN = 64
Turn = asyncio.Future[Any]  # of a `SentTurn`, once it is the request's turn
Tenant = TenantTurns[Turn]


class TurnRefusedError(ServiceError):
    """The queue of a busy destination is full, and this tenant has the most requests in it."""

    retry_after = "1"

    def __init__(self, key: LoadKey, num_waiting: int) -> None:
        target = describe_target(key)
        message = (
            f"{target[:1].upper()}{target[1:]} is busy. {num_waiting} requests wait for it, most "
            "of them of this caller, and no more may. Try again."
        )
        super().__init__("ThrottlingException", message, 429)


class BusyDestination:
    """One destination: its turns, and the tenants that were seen."""

    __slots__ = (
        "copies", "key", "looked_s", "num_bytes", "num_released", "places", "seen", "tag", "turns",
    )  # fmt: skip

    def __init__(self, key: LoadKey) -> None:
        self.key = key
        self.copies: Sequence[CopyRoute] = ()
        self.places = 1
        self.turns: FairTurns[Turn] = FairTurns()
        self.seen: dict[str, float] = {}
        self.tag = 0
        self.looked_s = 0.0
        self.num_bytes = 0
        self.num_released = 0  # requests that got their turn, and are not on a copy yet


class RequestTurn:
    """The turn of one request of `num_bytes`."""

    __slots__ = ("_busy", "_name", "_num_bytes", "_queue", "_sent", "_standing",
                 "_tenant")  # fmt: skip

    def __init__(
        self, queue: "TurnQueue", name: str, standing: CallStanding, num_bytes: int
    ) -> None:
        self._queue = queue
        self._name = name
        self._standing = standing
        self._num_bytes = num_bytes
        self._busy: BusyDestination | None = None
        self._sent: SentTurn[Turn] | None = None

    async def take(self, destination: Destination, measured: Measurement, limit_s: float) -> None:
        """Return once it is this request's turn, at once if it has the turn already.

        Raises NotServedError after `limit_s`, and TurnRefusedError.
        """
        queue = self._queue
        if self._busy is not None or not queue.is_fair(destination):
            return
        busy = queue.get_busy(destination, self._name)
        tenant = busy.turns.begin(self._name, self._standing.weight)
        if not busy.turns.num_waiting and queue.may_send(busy):
            self._sent = busy.turns.send(tenant, busy.places, queue.now_s())
        else:
            measured.hold()
            try:
                self._sent = await self._wait(busy, tenant, limit_s)
            finally:
                measured.release()
        self._busy = busy

    def end(self) -> None:
        """Give the turn back. Idempotent."""
        busy, sent, self._busy = self._busy, self._sent, None
        if busy is not None and sent is not None:
            busy.turns.end(sent, busy.places, self._queue.now_s())
            self._queue.release(busy)

    async def _wait(self, busy: BusyDestination, tenant: Tenant, limit_s: float) -> SentTurn[Turn]:
        queue = self._queue
        queue.make_room(busy, tenant, self._num_bytes)
        turn: Turn = asyncio.get_running_loop().create_future()
        waiting = busy.turns.wait(tenant, turn, self._standing.priority, self._num_bytes)
        busy.num_bytes += self._num_bytes
        sent: SentTurn[Turn] | None = None
        try:
            async with asyncio.timeout(limit_s):
                got: SentTurn[Turn] = await asyncio.shield(turn)
                sent = got
                return got
        except TimeoutError:
            what = describe_target(busy.key)
            text = f"The request waited {limit_s:g} s for its turn at {what}, which is busy."
            raise NotServedError(f"{text} Try again.") from None
        finally:
            busy.num_bytes -= waiting.num_bytes
            busy.turns.leave(waiting)
            if turn.done() and turn.exception() is None:
                busy.num_released -= 1
                if sent is None:  # it left at the moment of its turn
                    busy.turns.end(turn.result(), busy.places, queue.now_s(), is_whole=False)
                    queue.release(busy)


class TurnQueue:
    """The busy destinations of one worker.

    Args:
        counts: requests in flight on each copy, of all workers.
        tags: the tenants of other workers.
        num_workers: the number of workers.
        limits: how much may wait for each destination.
        now_s: seconds of a clock that never goes back.
    """

    def __init__(
        self,
        counts: InFlightCounts,
        tags: TenantTags,
        num_workers: int,
        limits: QueueLimits,
        now_s: Callable[[], float],
    ) -> None:
        self.now_s = now_s
        self._counts = counts
        self._tags = tags
        self._num_workers = num_workers
        self._limits = limits
        self._places: dict[str, int] = {}
        self._busy: dict[LoadKey, BusyDestination] = {}

    def begin(self, tenant: str, standing: CallStanding, num_bytes: int) -> RequestTurn | None:
        """Begin a request of a tenant. None if no copy has reported places."""
        return RequestTurn(self, tenant, standing, num_bytes) if self._places else None

    def learn(self, copy_id: str, places: str) -> None:
        """Note the places that a copy has reported."""
        if places.isdecimal() and len(places) <= 4 and copy_id not in self._places:
            if len(self._places) >= MAX_KNOWN_COPIES:
                self._places.clear()
            self._places[copy_id] = min(int(places), MAX_PLACES)

    def is_fair(self, destination: Destination) -> bool:
        """True if requests for the destination take turns. The first copy decides."""
        copies = destination.copies
        return bool(copies) and self._places.get(copies[0].id, 0) > 0

    def get_busy(self, destination: Destination, tenant: str) -> BusyDestination:
        """The state of a destination that a request of `tenant` comes for."""
        key, now_s = destination.key, self.now_s()
        busy = self._busy.get(key)
        if busy is None:
            self._prune(now_s)
            busy = self._busy[key] = BusyDestination(key)
        if busy.copies is not destination.copies or now_s - busy.looked_s >= LOOK_S:
            busy.copies = destination.copies
            busy.places = self._count_places(busy.copies)
        is_new = tenant not in busy.seen
        busy.seen[tenant] = now_s
        if is_new or now_s - busy.looked_s >= LOOK_S:
            self._look(busy, now_s)
        return busy

    def may_send(self, busy: BusyDestination) -> bool:
        """True if the destination has room for one more request, or only one tenant."""
        if busy.tag != SEVERAL and not self._tags.has_other(busy.key, busy.tag, LINGER_S):
            return True
        total = sum([self._counts.of(it.id) for it in busy.copies]) + busy.num_released
        return may_send(busy.turns.num_sent, total, find_limit(busy.places), self._num_workers)

    def make_room(self, busy: BusyDestination, tenant: Tenant, num_bytes: int) -> None:
        """Remove requests of the tenant with the most, if the queue is full.

        Raises TurnRefusedError if `tenant` has the most itself.
        """
        turns, limits = busy.turns, self._limits
        while turns.num_waiting >= limits.max_requests_each or (
            turns.num_waiting and busy.num_bytes + num_bytes > limits.max_bytes
        ):
            evicted = turns.find_evicted(tenant)
            refusal = TurnRefusedError(busy.key, turns.num_waiting)
            if evicted is None:
                raise refusal
            turns.leave(evicted)
            busy.num_bytes -= evicted.num_bytes
            evicted.num_bytes = 0
            evicted.item.set_exception(refusal)

    def release(self, busy: BusyDestination) -> None:
        """Give their turns to as many requests as the destination has room for."""
        while busy.turns.num_waiting and self.may_send(busy):
            waiting = busy.turns.pop()
            assert waiting is not None, "a request waits"
            busy.num_released += 1
            sent = busy.turns.send(waiting.tenant, busy.places, self.now_s())
            waiting.item.set_result(sent)

    def _count_places(self, copies: Sequence[CopyRoute]) -> int:
        """The places of copies. One that has not answered yet has as many as the first one."""
        each = self._places[copies[0].id]
        return sum([self._places.get(it.id, each) for it in copies])

    def _look(self, busy: BusyDestination, now_s: float) -> None:
        """Drop tenants that were not seen for a while, and publish the others."""
        busy.looked_s = now_s
        seen = {name: at for name, at in busy.seen.items() if now_s - at < LINGER_S}
        if len(seen) > MAX_SEEN:
            seen = dict(sorted(seen.items(), key=lambda it: -it[1])[: MAX_SEEN // 2])
        busy.seen = seen
        busy.tag = SEVERAL if len(seen) > 1 else compute_tag(next(iter(seen)))
        self._tags.note(busy.key, busy.tag)

    def _prune(self, now_s: float) -> None:
        """Drop destinations without requests, if there are many."""
        if len(self._busy) >= MAX_DESTINATIONS:
            self._busy = {
                key: it
                for key, it in self._busy.items()
                if it.turns.num_waiting or it.turns.num_sent or now_s - it.looked_s < LOOK_S
            }
