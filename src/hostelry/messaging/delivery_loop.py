"""Delivers to web addresses and files. No subscription waits for another, as each has a lane.

    outcome of an attempt                  then
    accepted (2xx), or written             removed, and counted as delivered
    4xx except 429, or address refused     failed for good
    any other, and retries are left        again after the delivery policy's pause
    any other, or 4 hours after Publish    failed for good: counted, logged, dead letter

Messages are delivered at least once. If a delivery was accepted just before a kill, it is repeated.
If a full disk prevents recording an outcome, the loop keeps it in memory and makes no further
attempt.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import httpx
import msgspec

from hostelry.base.clock import Clock
from hostelry.base.concurrency import for_each, run_guarded
from hostelry.domain.messaging import Subscription, SubscriptionProtocol
from hostelry.messaging.deliveries import Deliveries, WaitingDelivery
from hostelry.messaging.failed_delivery import (
    DELIVERED,
    REDRIVEN,
    TopicMetrics,
    get_dead_letter_queue,
    parse_arn,
)
from hostelry.messaging.queue_messages import Arrivals
from hostelry.messaging.retry_schedule import effective_retries
from hostelry.messaging.web_delivery import AddressRefusedError
from hostelry.store.records import State

LOG = logging.getLogger(__name__)
MAX_AGE_S = 4 * 3600.0
LANE_WIDTH = 4  # concurrent attempts of one subscription, 1 while they fail
HEALTHY_SLOTS = 96
FAILING_SLOTS = 32
RETRY_S = 1.0
T = TypeVar("T")

Post = Callable[[str, Mapping[str, str], bytes], Awaitable[int]]
Append = Callable[[str, str], None]


class DeliveryDeps(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies. `post` and `append` deliver to a web address and to a file."""

    state: State
    deliveries: Deliveries
    arrivals: Arrivals
    metrics: TopicMetrics
    clock: Clock
    post: Post
    append: Append


class FailedAttempt(msgspec.Struct, frozen=True):
    """Why an attempt failed. `is_final` is True if another attempt would fail, too."""

    problem: str
    is_final: bool = False


class DeliveryLoop:
    """Delivers until cancelled. `wake` may be called from any thread."""

    def __init__(self, deps: DeliveryDeps) -> None:
        self._deps = deps
        self._lanes: dict[str, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Outcomes of attempts by delivery and its number of earlier attempts.
        self._unrecorded: dict[tuple[int, int], FailedAttempt | None] = {}
        self._healthy = asyncio.Semaphore(HEALTHY_SLOTS)
        self._failing = asyncio.Semaphore(FAILING_SLOTS)
        self._threads = ThreadPoolExecutor(2, "delivery")
        self._files = ThreadPoolExecutor(2, "topic-files")
        self._loop: asyncio.AbstractEventLoop | None = None

    def wake(self, subscription_arn: str) -> None:
        """Look at a subscription that has a new delivery."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._open, subscription_arn)

    async def run(self) -> None:
        """Deliver waiting and new messages until cancelled."""
        self._loop = asyncio.get_running_loop()
        try:
            for arn in await self._read_in_thread(self._deps.deliveries.subscriptions):
                self._open(arn)
            await asyncio.Event().wait()
        finally:
            self._loop = None
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._lanes.clear()
            self._unrecorded.clear()

    def _open(self, arn: str) -> None:
        if arn in self._lanes:
            self._lanes[arn].set()
            return
        self._lanes[arn] = asyncio.Event()
        task = asyncio.create_task(self._lane(arn), name=f"delivering to {arn}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _lane(self, arn: str) -> None:
        """Deliver to one subscription until nothing waits."""
        event, failing = self._lanes[arn], False
        while True:
            event.clear()
            kept: list[bool | None] = []

            async def step(failing: bool = failing, kept: list[bool | None] = kept) -> None:
                kept.append(await self._step(arn, failing, event))

            if not await run_guarded(f"delivering to {arn}", step):
                await self._deps.clock.sleep(RETRY_S)
                continue
            if kept[0] is None:
                if event.is_set():
                    continue
                del self._lanes[arn]
                return
            failing = kept[0]

    async def _step(self, arn: str, failing: bool, event: asyncio.Event) -> bool | None:
        """Attempt due deliveries, or wait for them. Returns whether attempts fail, None if idle."""
        deps = self._deps
        now = deps.clock.now()
        due = await self._read_in_thread(
            deps.deliveries.due, arn, now, 1 if failing else LANE_WIDTH
        )
        if not due:
            next_at = await self._read_in_thread(deps.deliveries.next_at, arn)
            if next_at is None:
                return None
            waiting = asyncio.create_task(event.wait())
            sleeping = asyncio.create_task(_sleep(deps.clock, max(0.0, next_at - now)))
            try:
                await asyncio.wait({waiting, sleeping}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
                sleeping.cancel()
            return failing
        subscription = await self._read_in_thread(self._subscription, arn)
        if subscription is None:
            await self._read_in_thread(deps.deliveries.drop, arn)
            return failing
        slots = self._failing if failing else self._healthy
        outcomes: list[bool] = []

        async def settle(delivery: WaitingDelivery) -> None:
            attempt = (delivery.id, delivery.attempts)
            if attempt not in self._unrecorded:
                async with slots:
                    refused = await self._attempt(subscription, delivery)
                self._unrecorded[attempt] = refused
            refused = self._unrecorded[attempt]
            await self._record(subscription, delivery, refused)
            del self._unrecorded[attempt]
            outcomes.append(refused is None)

        await for_each(due, settle, LANE_WIDTH)
        return not all(outcomes)

    async def _record(
        self,
        subscription: Subscription,
        delivery: WaitingDelivery,
        refused: FailedAttempt | None,
    ) -> None:
        """Record the outcome of an attempt."""
        deps = self._deps
        if refused is None:
            await self._read_in_thread(deps.deliveries.finish, delivery)
            if subscription.is_confirmed:
                await self._read_in_thread(deps.metrics.count, subscription.topic_arn, DELIVERED)
            return
        delays = await self._read_in_thread(self._delays_s, subscription)
        now = deps.clock.now()
        is_late = now - delivery.accepted_at >= MAX_AGE_S
        if refused.is_final or is_late or delivery.attempts >= len(delays):
            await self._read_in_thread(self._fail, subscription, delivery, refused.problem, now)
        else:
            next_at = now + delays[delivery.attempts]
            await self._read_in_thread(deps.deliveries.postpone, delivery, next_at)

    async def _attempt(
        self, subscription: Subscription, delivery: WaitingDelivery
    ) -> FailedAttempt | None:
        """Make an attempt. None if the subscriber accepted the message."""
        deps = self._deps
        if subscription.protocol is SubscriptionProtocol.FILE:
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(
                    self._files, deps.append, subscription.endpoint, delivery.body
                )
            except OSError as error:
                return FailedAttempt(f"{subscription.endpoint}: {error}")
            return None
        try:
            code = await deps.post(subscription.endpoint, delivery.headers, delivery.body.encode())
        except AddressRefusedError as error:
            return FailedAttempt(str(error), is_final=True)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError, ValueError) as error:
            return FailedAttempt(f"{type(error).__name__} {error}".strip())
        if 200 <= code < 300:
            return None
        return FailedAttempt(f"it answered {code}", is_final=400 <= code < 500 and code != 429)

    def _subscription(self, arn: str) -> Subscription | None:
        scope, name = parse_arn(arn)
        stored = self._deps.state.subscriptions.get(scope, name)
        return None if stored is None else stored.value

    def _delays_s(self, subscription: Subscription) -> list[float]:
        scope, name = parse_arn(subscription.topic_arn)
        topic = self._deps.state.topics.get(scope, name)
        of_topic = None if topic is None else topic.value.attributes.get("DeliveryPolicy")
        own = subscription.attributes.get("DeliveryPolicy")
        return list(effective_retries(of_topic, own).delays_s())

    def _fail(
        self, subscription: Subscription, delivery: WaitingDelivery, problem: str, now: float
    ) -> None:
        deps = self._deps
        letters = (
            get_dead_letter_queue(deps.state, subscription, delivery.body, problem, now)
            if subscription.is_confirmed
            else ()
        )
        deps.deliveries.finish(delivery, letters)
        deps.metrics.count_failed(subscription, delivery.message_id, problem)
        for letter in letters:
            deps.arrivals.announce(letter.queue_arn)
            deps.metrics.count(subscription.topic_arn, REDRIVEN)

    async def _read_in_thread(self, call: Callable[..., T], *arguments: object) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: call(*arguments))


async def _sleep(clock: Clock, delay_s: float) -> None:
    await clock.sleep(delay_s)
