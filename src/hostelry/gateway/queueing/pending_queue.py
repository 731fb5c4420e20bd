"""The queue of requests for which no copy is ready: the activator of scale to zero.

The queue decides, and a handler carries the decisions out. A request is sent at once if there is a
copy, and queued otherwise. Queued requests are released in the order of their arrival, once the
routes show a copy, at a rate that the copies can take. The first queued request notifies control.
The notification is repeated each second while requests wait, so that a lost one does no harm.
"""

import asyncio
from collections.abc import Callable

from hostelry.base.clock import Clock
from hostelry.base.errors import ServiceError
from hostelry.dataplane.balancing.destination import NoCopyError, UnknownNameError
from hostelry.dataplane.balancing.outstanding import InFlightCounts
from hostelry.dataplane.control_client import ControlClient
from hostelry.dataplane.metering.meter import Measurement, Meter
from hostelry.dataplane.route_table import Destination, RouteTable
from hostelry.dataplane.routes import RouteSource
from hostelry.dataplane.tracing.call_trace import NO_TRACE, CallTrace
from hostelry.domain.load import LoadKey, Wake
from hostelry.gateway.queueing.decisions import (
    AskControl,
    Decision,
    NotServedError,
    Refuse,
    Wait,
    decide_after_refusal,
    decide_without_copy,
    full_message,
    lacking_copies,
    late_error,
    num_released,
)
from hostelry.gateway.queueing.request_queues import (
    QueuedRequest,
    QueueFullError,
    QueueLimits,
    RequestQueues,
    WaitOutcome,
)
from hostelry.http1.reply import ConnectError
from hostelry.routing.no_copy import RELEASE_INTERVAL_S

SYNC_S = 5.0  # how long the routes may lag behind control
SOON_S = 0.1  # then control is notified of the requests that came with the first one
WAKE_AGAIN_S = 1.0
MAX_WAKES = 64  # notifications at once, the others follow a second later

Find = Callable[[], Destination]


class PendingRequest:
    """One request on its way to a copy: its place in a queue, and the limits of its wait.

    `find` reads the newest routes, and raises as `find_destination` does.
    """

    __slots__ = ("asked", "find", "measured", "num_bytes", "queued", "since_s", "trace", "until_s")

    def __init__(
        self,
        find: Find,
        num_bytes: int,
        since_s: float,
        until_s: float,
        trace: CallTrace = NO_TRACE,
    ) -> None:
        self.find = find
        self.num_bytes = num_bytes
        self.since_s = since_s
        self.until_s = until_s
        self.queued: QueuedRequest | None = None
        self.asked = False  # whether control was asked if it knows more than the routes
        self.measured: Measurement | None = None  # once its destination is known
        self.trace = trace

    @property
    def may_wait(self) -> bool:
        """True if the request may wait at all."""
        return self.until_s > self.since_s

    def end(self) -> None:
        """End the measurement, if it has begun."""
        if self.measured is not None:
            self.measured.end()

    def try_find(self) -> Destination | ServiceError:
        """Look the destination up in the newest routes, with the error as a value."""
        try:
            return self.find()
        except ServiceError as error:
            return error


class QueuedWait:
    """The wait of one queued request, and when it may end."""

    __slots__ = ("not_before_s", "outcome", "pending", "syncing", "table")

    def __init__(
        self, pending: PendingRequest, table: RouteTable, not_before_s: float, syncing: bool
    ) -> None:
        self.pending = pending
        self.table = table
        self.not_before_s = not_before_s  # newer routes than `table` end the wait earlier
        self.syncing = syncing  # whether it waits for the routes to catch up with control
        self.outcome: asyncio.Future[WaitOutcome] = asyncio.get_running_loop().create_future()

    def end(self, outcome: WaitOutcome) -> None:
        """Resume the request, unless its client has gone."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class PendingQueue:
    """The requests of this process for which no copy is ready.

    Args:
        routes: the copies of each destination.
        control: is notified of queued requests, and asked for names that the routes lack.
        counts: requests in flight on each copy, of all processes.
        limits: how much this process may queue.
        clock: seconds since the epoch, and waiting.
        now_s: seconds of a clock that never goes back.
        meter: measures requests.
    """

    def __init__(
        self,
        routes: RouteSource,
        control: ControlClient,
        counts: InFlightCounts,
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
        self._queues = RequestQueues(limits)
        self._waits: dict[QueuedRequest, QueuedWait] = {}
        self._timed: set[LoadKey] = set()  # queues to look at again without new routes
        self._notified_counts: dict[LoadKey, int] = {}  # queue lengths, as last sent to control
        self._wake_at_s = 0.0
        self._notifications: set[asyncio.Task[None]] = set()
        self._has_waiting = asyncio.Event()
        routes.listen(self._routes_changed)

    @property
    def num_held(self) -> int:
        """Number of waiting requests."""
        return self._queues.num_held

    def begin_request(
        self, find: Find, num_bytes: int, limit_s: float, trace: CallTrace = NO_TRACE
    ) -> PendingRequest:
        """Begin a request of `num_bytes`. It may wait `limit_s` at most, and 0 means not at all."""
        now_s, own_s = self._now_s(), self._queues.limits.limit_s
        patience_s = limit_s if own_s is None else min(limit_s, own_s)
        return PendingRequest(find, num_bytes, now_s, now_s + patience_s, trace)

    def decide(self, pending: PendingRequest) -> Decision:
        """Decide by the newest routes, and by the requests that wait already.

        routes           queue for the destination                        decision
        a destination    empty, or the request left it                    that destination
        a destination    the queue is not empty and the request can wait  Wait
        an error                                                          `decide_without_copy`

        Raises the errors of `find`, except NoCopyError and UnknownNameError.
        """
        try:
            destination = pending.find()
        except (NoCopyError, UnknownNameError) as error:
            decision = decide_without_copy(
                error, may_wait=pending.may_wait, has_asked=pending.asked
            )
            return self._refuse(pending, error) if isinstance(decision, Refuse) else decision
        measured = self._begin_measurement(pending, destination)
        if pending.queued is not None:
            measured.release()
        elif self._queues and pending.may_wait and self._queues.num_waiting(destination.key):
            return Wait(destination=destination)
        return destination

    def decide_after_refusal(self, destination: Destination, error: ConnectError) -> Decision:
        """Decide after all copies of `destination` refused the connection."""
        return decide_after_refusal(destination, error, self._now_s())

    async def wait(self, pending: PendingRequest, wait: Wait) -> Decision:
        """Queue the request, and decide again once its wait is over."""
        destination = wait.destination
        if wait.wakes:
            self._wake(destination)
        measured = self._begin_measurement(pending, destination)
        measured.hold()
        queued_wait = QueuedWait(pending, self._routes.table, wait.not_before_s, syncing=False)
        try:
            outcome = await self._enqueue(queued_wait, destination.key, pending.until_s)
        except QueueFullError as error:
            measured.record_no_capacity()
            return Refuse(error=NotServedError(full_message(destination.key, str(error))))
        if outcome is WaitOutcome.RELEASED:
            return self.decide(pending)
        measured.release()
        measured.record_no_capacity()
        found = pending.try_find()
        if isinstance(found, NoCopyError):
            found = found.destination
        elif isinstance(found, ServiceError):
            found = destination  # it was deleted meanwhile, but the message still names it
        waited_s = self._now_s() - pending.since_s
        return Refuse(error=late_error(found, waited_s))

    async def ask(self, pending: PendingRequest, ask: AskControl) -> Decision:
        """Ask control, wait for the routes to catch up, and decide again."""
        pending.asked = True
        table = self._routes.table
        if await self._control.is_wanted(ask.key) and (
            self._routes.table is not table or await self._routes_have(pending, ask.key)
        ):
            return self.decide(pending)
        return self._refuse(pending, ask.error)

    def count_throttled(self, key: LoadKey) -> None:
        """Count a request for `key` that was refused because too many are in flight."""
        self._meter.count_throttled(key)

    def count_spilled(self, key: LoadKey) -> None:
        """Count a request for `key` that is beyond the provisioned environments."""
        self._meter.count_spilled(key)

    def release_next(self, key: LoadKey) -> None:
        """Release a request that waits for `key`, because a copy has finished another request."""
        if self._queues.num_waiting(key):
            self._release(key)

    async def run(self) -> None:
        """Call `tick` while requests wait, until cancelled."""
        while True:
            await self._has_waiting.wait()
            await self._clock.sleep(RELEASE_INTERVAL_S)
            self.tick()

    def tick(self) -> None:
        """Expire, release and notify. Called regularly while requests wait."""
        now_s = self._now_s()
        self._end(self._queues.expire(now_s), WaitOutcome.EXPIRED)
        for key in tuple(self._timed):
            self._release(key)
        if now_s >= self._wake_at_s:
            self._notify_again()
        if not self._queues:
            self._has_waiting.clear()
            self._notified_counts.clear()

    def _begin_measurement(self, pending: PendingRequest, destination: Destination) -> Measurement:
        if pending.measured is None:
            pending.trace.is_llm = destination.serves_llm
            pending.measured = self._meter.begin(
                destination.key, destination.base_key, pending.trace
            )
        return pending.measured

    def _refuse(self, pending: PendingRequest, error: NoCopyError | UnknownNameError) -> Refuse:
        if isinstance(error, NoCopyError):
            self._begin_measurement(pending, error.destination).record_no_capacity()
        return Refuse(error=error)

    async def _routes_have(self, pending: PendingRequest, key: LoadKey) -> bool:
        """True if the routes catch up with control about `key` in time."""
        wait = QueuedWait(pending, self._routes.table, 0.0, syncing=True)
        until_s = min(pending.until_s, self._now_s() + SYNC_S)
        try:
            outcome = await self._enqueue(wait, key, until_s)
        except QueueFullError:
            return False
        if outcome is WaitOutcome.EXPIRED:
            return False
        pending.queued = None
        return True

    async def _enqueue(self, wait: QueuedWait, key: LoadKey, until_s: float) -> WaitOutcome:
        """Queue a request until it is released or expires. Raises QueueFullError."""
        pending, queued = wait.pending, wait.pending.queued
        if queued is not None and queued.key == key:
            self._queues.rejoin(queued)
        else:
            queued = self._queues.join(key, pending.num_bytes, (pending.since_s, until_s))
            pending.queued = queued
        self._waits[queued] = wait
        self._has_waiting.set()
        if wait.not_before_s:
            self._timed.add(key)
        try:
            return await wait.outcome
        finally:
            self._queues.leave(queued)
            del self._waits[queued]
            if not self._queues.num_waiting(key):
                self._notified_counts.pop(key, None)

    def _end(self, ended: list[QueuedRequest], outcome: WaitOutcome) -> None:
        for queued in ended:
            self._waits[queued].end(outcome)

    def _routes_changed(self) -> None:
        for key in self._queues.names():
            self._release(key)

    def _release(self, key: LoadKey) -> None:
        """Release as many requests as copies have capacity for."""
        first = self._queues.first(key)
        if first is None:
            self._timed.discard(key)
            return
        wait = self._waits[first]
        if wait.table is self._routes.table and self._now_s() < wait.not_before_s:
            return
        found = wait.pending.try_find()
        count = num_released(found, wait.syncing, self._counts.of)
        if not count:
            if not isinstance(found, Destination):
                self._timed.discard(key)
            return
        self._end(self._queues.release(key, count), WaitOutcome.RELEASED)
        if self._queues.num_waiting(key):
            self._timed.add(key)  # the others at the next tick

    def _wake(self, destination: Destination) -> None:
        """Notify control of a queue at once, and soon again of the requests after the first."""
        key = destination.key
        if key in self._notified_counts:
            return
        now_s = self._now_s()
        self._wake_at_s = min(self._wake_at_s, now_s + SOON_S)
        if not self._notified_counts:
            self._wake_at_s = now_s + SOON_S
        num_waiting = self._queues.num_waiting(key) + 1
        self._notify_control(key, num_waiting, self._concurrency(destination))

    def _notify_again(self) -> None:
        """Repeat the notification of each queue that still lacks copies or has grown."""
        self._wake_at_s = self._now_s() + WAKE_AGAIN_S
        due: list[tuple[LoadKey, int, int]] = []
        for key, notified in tuple(self._notified_counts.items()):
            first, num_waiting = self._queues.first(key), self._queues.num_waiting(key)
            if first is None:
                del self._notified_counts[key]
                continue
            lacking = lacking_copies(self._waits[first].pending.try_find())
            if num_waiting > notified or lacking is not None:
                due.append((key, num_waiting, self._concurrency(lacking)))
        for key, num_waiting, concurrency in due[:MAX_WAKES]:
            del self._notified_counts[key]  # moves it to the end, so that the others go first
            self._notify_control(key, num_waiting, concurrency)

    def _concurrency(self, destination: Destination | None) -> int:
        """Requests of a serverless variant in all workers. 0 for other destinations."""
        if destination is None or destination.serverless is None:
            return 0
        return self._counts.of(destination.concurrency_id)

    def _notify_control(self, key: LoadKey, num_held: int, concurrency: int) -> None:
        self._notified_counts[key] = num_held
        first = self._queues.first(key)
        waits_s = 0.0 if first is None else self._now_s() - first.since_s
        at = self._clock.now() - waits_s
        wake = Wake(key=key, held=num_held, at=at, concurrency=concurrency)
        task = asyncio.get_running_loop().create_task(self._control.wake(wake))
        self._notifications.add(task)
        task.add_done_callback(self._notifications.discard)
