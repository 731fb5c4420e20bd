"""The queue of requests for which no copy is ready: the activator of scale to zero.

A request is sent at once where there is a copy, and queued otherwise. Queued requests are released
in the order of their arrival, once the routes show a copy and at a rate that copies can take. The
first one notifies control; while any waits, the notification is repeated each second, so that one
that control missed is made up for.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from hostelry.base.clock import Clock
from hostelry.base.errors import ServiceError
from hostelry.domain.at_zero import AtZero
from hostelry.domain.load import LoadKey, Wake
from hostelry.gateway.balancing.destination import NoCopyError, UnknownNameError
from hostelry.gateway.balancing.load_balancer import InFlightRequest
from hostelry.gateway.balancing.outstanding import Counts
from hostelry.gateway.control_client import ControlClient
from hostelry.gateway.http.reply import ConnectError
from hostelry.gateway.metering.meter import Measurement, Meter
from hostelry.gateway.queueing.request_queues import (
    QueuedRequest,
    QueueFullError,
    QueueLimits,
    RequestQueues,
    WaitOutcome,
)
from hostelry.gateway.route_table import Destination, RouteTable
from hostelry.gateway.routes import RouteSource
from hostelry.routing.at_zero import Course
from hostelry.routing.letting_go import PACE_S, num_let_go

log = logging.getLogger(__name__)
SYNC_S = 5.0  # in which the routes have what control has
REFUSED_S = 0.25  # until copies that refuse connections are tried again, if no other routes come
SOON_S = 0.1  # after the first request, how many more came with it is told
WAKE_AGAIN_S = 1.0
MAX_WAKES = 64  # told in one go; the others a second later

Find = Callable[[], Destination]
Send = Callable[[Destination, Measurement], Awaitable[InFlightRequest]]


class NotServedError(ServiceError):
    """No copy came in time, or too many requests wait for one."""

    def __init__(self, message: str) -> None:
        super().__init__("ServiceUnavailable", message, 503)


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that is on a copy: where it is, its answer, and what measures it.

    Whoever has it closes `placed` and ends `measured`.
    """

    destination: Destination
    placed: InFlightRequest
    measured: Measurement


class PendingRequest:
    """One request on its way: its place in a queue, and since and until when it may wait."""

    __slots__ = ("asked", "measured", "num_bytes", "queued", "since_s", "until_s")

    def __init__(self, num_bytes: int, since_s: float, until_s: float) -> None:
        self.num_bytes = num_bytes
        self.since_s = since_s
        self.until_s = until_s
        self.queued: QueuedRequest | None = None
        self.asked = False  # control, whether it knows more than the routes
        self.measured: Measurement | None = None  # once it is known whom the request is for

    @property
    def may_wait(self) -> bool:
        """Whether it may wait at all."""
        return self.until_s > self.since_s


class HeadLookup:
    """How the request at the head of a queue is routed, and when to look again."""

    __slots__ = ("find", "not_before_s", "syncing", "table")

    def __init__(
        self, find: Find, table: RouteTable, not_before_s: float = 0.0, syncing: bool = False
    ) -> None:
        self.find = find
        self.table = table
        self.not_before_s = not_before_s  # unless there are routes other than `table`
        self.syncing = syncing  # until the routes have what control says there is


class PendingQueue:
    """The requests of this process for which no copy is ready.

    Args:
        routes: which copies there are.
        control: is notified of queued requests, and asked for names that the routes lack.
        counts: requests in flight on each copy, of all processes.
        limits: how much this process may queue.
        clock: seconds since the epoch, and waiting.
        now_s: seconds of a clock that never goes back.
        meter: measures every request from here on.
    """

    def __init__(
        self,
        routes: RouteSource,
        control: ControlClient,
        counts: Counts,
        limits: QueueLimits,
        clock: Clock,
        now_s: Callable[[], float],
        meter: Meter,
    ) -> None:
        self._routes = routes
        self._control = control
        self._counts = counts
        self._clock = clock
        self._now_s = now_s
        self._meter = meter
        self._lines = RequestQueues(limits)
        self._looks: dict[QueuedRequest, HeadLookup] = {}
        self._timed: set[LoadKey] = set()  # lines to look at again though no routes come
        self._notified_counts: dict[LoadKey, int] = {}  # how many waited when control was told last
        self._wake_at_s = 0.0
        self._notifications: set[asyncio.Task[None]] = set()
        self._somebody_waits = asyncio.Event()
        routes.listen(self._routes_changed)

    @property
    def num_held(self) -> int:
        """How many wait."""
        return self._lines.num_held

    async def place(self, find: Find, send: Send, num_bytes: int, limit_s: float) -> Admitted:
        """The request on a copy, having waited for one if there was none.

        Args:
            find: reads the routes; raises as `find_destination` does.
            send: sends the request to one of the destination's copies; raises ConnectError.
            num_bytes: size of the request.
            limit_s: how long it may take, hence how long it may wait; 0: not at all.

        Raises what `find` and `send` do, and NotServedError.
        """
        now_s, own_s = self._now_s(), self._lines.limits.limit_s
        patience_s = limit_s if own_s is None else min(limit_s, own_s)
        pending = PendingRequest(num_bytes, now_s, now_s + patience_s)
        try:
            return await self._place(pending, find, send)
        except BaseException:
            if pending.measured is not None:
                pending.measured.end()
            raise

    async def _place(self, pending: PendingRequest, find: Find, send: Send) -> Admitted:
        while True:
            try:
                destination = find()
            except (NoCopyError, UnknownNameError) as error:
                await self._without_copy(pending, find, error)
                continue
            measured = self._measured(pending, destination)
            if self._lines and pending.queued is None and self._must_queue(pending, destination):
                await self._wait(pending, destination, HeadLookup(find, self._routes.table))
                continue
            if pending.queued is not None:
                measured.release()
            try:
                return Admitted(destination, await send(destination, measured), measured)
            except ConnectError:
                if destination.at_zero is AtZero.COMPAT:
                    raise
                again_s = self._now_s() + REFUSED_S
                await self._wait(
                    pending, destination, HeadLookup(find, self._routes.table, again_s)
                )

    async def run(self) -> None:
        """Call `tick` while something waits, until cancelled."""
        while True:
            await self._somebody_waits.wait()
            await self._clock.sleep(PACE_S)
            self.tick()

    def tick(self) -> None:
        """Expire, release and notify what is due; called every `PACE_S` while something waits."""
        now_s = self._now_s()
        self._lines.expire(now_s)
        for key in tuple(self._timed):
            self._release(key)
        if now_s >= self._wake_at_s:
            self._notify_again()
        if not self._lines:
            self._somebody_waits.clear()
            self._notified_counts.clear()

    def _must_queue(self, pending: PendingRequest, destination: Destination) -> bool:
        """Whether others wait already for what the request is for."""
        return pending.may_wait and self._lines.num_waiting(destination.key) > 0

    def _measured(self, pending: PendingRequest, destination: Destination) -> Measurement:
        if pending.measured is None:
            pending.measured = self._meter.begin(destination.key, destination.base_key)
        return pending.measured

    async def _without_copy(
        self, pending: PendingRequest, find: Find, error: NoCopyError | UnknownNameError
    ) -> None:
        """Wait until a retry can succeed; raises `error` where none can."""
        if pending.may_wait:
            if isinstance(error, NoCopyError) and error.course in (Course.WAIT, Course.WAKE):
                look = HeadLookup(find, self._routes.table)
                await self._wait(pending, error.destination, look, error.course)
                return
            if await self._is_coming(pending, find, error):
                return
        if isinstance(error, NoCopyError):
            self._measured(pending, error.destination).found_no_capacity()
        raise error

    async def _is_coming(
        self, pending: PendingRequest, find: Find, error: NoCopyError | UnknownNameError
    ) -> bool:
        """Whether control knew of copies that the routes did not have, and they have them now."""
        if pending.asked:
            return False
        pending.asked = True
        table = self._routes.table
        if isinstance(error, UnknownNameError):
            key = error.key
        elif error.destination.at_zero is AtZero.COMPAT:  # that a request may wake it is no help
            return False
        else:
            key = error.destination.key
        if not await self._control.is_wanted(key):
            return False
        return self._routes.table is not table or await self._routes_come(pending, key, find)

    async def _routes_come(self, pending: PendingRequest, key: LoadKey, find: Find) -> bool:
        """Whether the routes have the name in time."""
        look = HeadLookup(find, self._routes.table, syncing=True)
        until_s = min(pending.until_s, self._now_s() + SYNC_S)
        try:
            outcome = await self._held(pending, key, look, until_s)
        except QueueFullError:
            return False
        if outcome is WaitOutcome.EXPIRED:
            return False
        pending.queued = None
        return True

    async def _wait(
        self,
        pending: PendingRequest,
        destination: Destination,
        look: HeadLookup,
        course: Course = Course.WAIT,
    ) -> None:
        """Wait until the request is released; raises NotServedError."""
        if course is Course.WAKE:
            self._wake(destination.key)
        measured = self._measured(pending, destination)
        measured.held()
        try:
            outcome = await self._held(pending, destination.key, look, pending.until_s)
        except QueueFullError as error:
            measured.found_no_capacity()
            raise NotServedError(full_words(destination.key, error)) from None
        if outcome is WaitOutcome.EXPIRED:
            measured.release()
            measured.found_no_capacity()
            raise NotServedError(self._late_words(pending, destination, look.find))

    async def _held(
        self, pending: PendingRequest, key: LoadKey, look: HeadLookup, until_s: float
    ) -> WaitOutcome:
        """Queue the request until it is released or expires; raises QueueFullError."""
        told: asyncio.Future[WaitOutcome] = asyncio.get_running_loop().create_future()

        def resolve(outcome: WaitOutcome) -> None:
            if not told.done():
                told.set_result(outcome)

        queued = pending.queued
        if queued is not None and queued.key == key:
            queued.resolve = resolve
            self._lines.rejoin(queued)
        else:
            queued = self._lines.join(key, pending.num_bytes, (pending.since_s, until_s), resolve)
            pending.queued = queued
        self._looks[queued] = look
        self._somebody_waits.set()
        if look.not_before_s:
            self._timed.add(key)
        try:
            return await told
        finally:
            self._lines.leave(queued)
            del self._looks[queued]
            if not self._lines.num_waiting(key):
                self._notified_counts.pop(key, None)

    def _routes_changed(self) -> None:
        for key in self._lines.names():
            self._release(key)

    def _release(self, key: LoadKey) -> None:
        """Release as many requests as copies have capacity for."""
        first = self._lines.first(key)
        if first is None:
            self._timed.discard(key)
            return
        look = self._looks[first]
        if look.table is self._routes.table and self._now_s() < look.not_before_s:
            return
        copies = self._seen(look)
        if copies is None:
            self._timed.discard(key)
            return
        count = num_let_go([self._counts.of(it) for it in copies]) if copies else 1
        self._lines.release(key, count)
        if self._lines.num_waiting(key):
            self._timed.add(key)  # the others at the next look

    def _seen(self, look: HeadLookup) -> Sequence[str] | None:
        """The copies that a request would find; None: wait on; empty: it has an error to tell."""
        try:
            return [it.id for it in look.find().copies]
        except NoCopyError as error:
            waits_on = (Course.REFUSE,) if look.syncing else (Course.WAIT, Course.WAKE)
            return None if error.course in waits_on else ()
        except UnknownNameError:
            return None if look.syncing else ()
        except ServiceError:
            return ()

    def _wake(self, key: LoadKey) -> None:
        """Notify control of a queue at once, and soon again of what arrives with the first."""
        if key in self._notified_counts:
            return
        now_s = self._now_s()
        self._wake_at_s = min(self._wake_at_s, now_s + SOON_S)
        if not self._notified_counts:
            self._wake_at_s = now_s + SOON_S
        self._notify_control(key, self._lines.num_waiting(key) + 1)

    def _notify_again(self) -> None:
        """Repeat the notification of each queue that is still at zero, or has grown."""
        self._wake_at_s = self._now_s() + WAKE_AGAIN_S
        due: list[tuple[LoadKey, int]] = []
        for key, told in tuple(self._notified_counts.items()):
            num_waiting = self._lines.num_waiting(key)
            if not num_waiting:
                del self._notified_counts[key]
            elif num_waiting > told or self._sleeps(key):
                due.append((key, num_waiting))
        for key, num_waiting in due[:MAX_WAKES]:
            del self._notified_counts[key]  # to the end, so that those left out go first next time
            self._notify_control(key, num_waiting)

    def _sleeps(self, key: LoadKey) -> bool:
        first = self._lines.first(key)
        if first is None:
            return False
        try:
            self._looks[first].find()
        except NoCopyError as error:
            return error.course is Course.WAKE
        except ServiceError:
            return False
        return False

    def _notify_control(self, key: LoadKey, num_held: int) -> None:
        self._notified_counts[key] = num_held
        first = self._lines.first(key)
        waits_s = 0.0 if first is None else self._now_s() - first.since_s
        wake = Wake(key=key, held=num_held, at=self._clock.now() - waits_s)
        task = asyncio.get_running_loop().create_task(self._control.wake(wake))
        self._notifications.add(task)
        task.add_done_callback(self._notifications.discard)

    def _late_words(self, pending: PendingRequest, destination: Destination, find: Find) -> str:
        """What was waited for, and what is known of why it did not come."""
        try:
            destination = find()
        except NoCopyError as error:
            destination = error.destination
        except ServiceError:
            pass  # it has gone meanwhile; what was waited for is told
        waited_s = self._now_s() - pending.since_s
        return late_words(destination, waited_s)


def late_words(destination: Destination, waited_s: float) -> str:
    """The message of a request that waited in vain."""
    what = words_for(destination.key)
    if destination.copies:
        state = "whose copies take no connections"
    elif destination.component_name is None:
        state = "of which none is ready"
    elif destination.desired_copies:
        state = f"of which {destination.desired_copies} wanted, none is ready"
    else:
        state = "which was asked for and is not on its way yet"
    why = f": {destination.waiting_for}" if destination.waiting_for else ""
    return f"The request waited {waited_s:.1f} s for a copy of {what}, {state}{why}. Try again."


def full_words(key: LoadKey, error: QueueFullError) -> str:
    """The message of a request that may not wait."""
    return f"No copy of {words_for(key)} can take the request now, and it cannot wait: {error}."


def words_for(key: LoadKey) -> str:
    """What a request is for, in words."""
    if key.component_name is not None:
        return f"inference component {key.component_name}"
    return f"endpoint {key.endpoint_name}"
