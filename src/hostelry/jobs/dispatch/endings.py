"""Ends requests: writes the failure object, ends the row, notifies and counts."""

import logging
import uuid
from collections.abc import Callable

from hostelry.base.clock import Clock
from hostelry.domain.async_request import AsyncRequest
from hostelry.jobs.dispatch.metric_reports import (
    EXPIRED,
    FAILURES,
    PROCESSED,
    TOTAL_TIME,
    AsyncMeasurements,
)
from hostelry.jobs.objects.object_store import (
    ObjectError,
    ObjectStore,
    ObjectStoreDownError,
    OutputSettings,
)
from hostelry.jobs.queue.protocol import (
    Claim,
    Notification,
    Outcome,
    QueueCommits,
    RequestCompleted,
    RequestExpired,
    RequestFailed,
)
from hostelry.jobs.rules.messages import (
    FAILURE_CONTENT_TYPE,
    Response,
    build_expired_reason,
    build_failure_message,
    build_success_message,
)
from hostelry.jobs.rules.next_step import STORE_PAUSE_S

LOG = logging.getLogger(__name__)
NOTIFICATION_IDS = uuid.UUID("6f1c3b0a-3c5e-4a52-9d0f-6f3a5c7e9b21")


class RequestEnds:
    """Ends requests. Each call returns once the end is durable, and waits while the disk is full.

    While the object store is down, a failed request returns to the queue until it expires, because
    its client looks for the failure object.

    Args:
        commits: commits to the queue.
        store: keeps failure objects.
        measurements: counts ends.
        clock: the time.
        notified: is called when a notification may wait in the outbox.
    """

    def __init__(
        self,
        commits: QueueCommits,
        store: ObjectStore,
        measurements: AsyncMeasurements,
        clock: Clock,
        notified: Callable[[], None],
    ) -> None:
        self._commits = commits
        self._store = store
        self._measurements = measurements
        self._clock = clock
        self._notified = notified

    async def complete(self, claim: Claim, variant_name: str, response: Response) -> bool:
        """End a request whose output is written. False if another owner has already ended it."""
        request, now = claim.request, self._clock.now()
        message = build_success_message(request, response, now)
        letter = _notification(claim, request.success_topic_arn, message)
        is_mine = await self._end(claim, RequestCompleted(), now, letter)
        if is_mine:
            self._count(request, variant_name, (PROCESSED,), now)
        return is_mine

    async def fail(self, claim: Claim, variant_name: str, reason: str) -> None:
        """End a request that failed for good."""
        names = (PROCESSED, FAILURES)
        await self._fail(claim, variant_name, reason, RequestFailed(reason), names)

    async def expire(self, claim: Claim, variant_name: str) -> None:
        """End a request that did not begin in time."""
        reason = build_expired_reason(claim.request)
        await self._fail(claim, variant_name, reason, RequestExpired(), (EXPIRED,))

    async def _fail(
        self,
        claim: Claim,
        variant_name: str,
        reason: str,
        outcome: Outcome,
        names: tuple[str, ...],
    ) -> None:
        request = claim.request
        try:
            response = await self._failure_object(request, reason)
        except ObjectStoreDownError as error:
            now = self._clock.now()
            later = now + STORE_PAUSE_S
            reason = str(error)
            await self._commits.write_once_possible(
                lambda queue: queue.defer(claim, later, reason, now, False)
            )
            return
        now = self._clock.now()
        message = build_failure_message(request, response, reason, now)
        letter = _notification(claim, request.error_topic_arn, message)
        if await self._end(claim, outcome, now, letter):
            LOG.info("async request %s of %s: %s", request.id, request.endpoint_name, reason)
            self._count(request, variant_name, names, now)

    async def _failure_object(self, request: AsyncRequest, reason: str) -> Response:
        """Write the failure object. The result has no location if it cannot be written.

        Raises ObjectStoreDownError if it may be written later, before the request expires.
        """
        body = reason.encode()
        settings = OutputSettings(content_type=FAILURE_CONTENT_TYPE, kms_key_id=request.kms_key_id)
        try:
            if request.failure_uri:
                store = self._store.acting_for(request.scope.account)
                await store.put(request.failure_uri, body, settings)
        except ObjectError as error:
            is_down = isinstance(error, ObjectStoreDownError)
            if is_down and self._clock.now() < request.expires_at:
                raise
            LOG.warning("the failure of request %s is in no object: %s", request.id, error)
            return Response(location="", content_type=None, body=body)
        return Response(location=request.failure_uri, content_type=FAILURE_CONTENT_TYPE, body=body)

    async def _end(
        self, claim: Claim, outcome: Outcome, now: float, letter: tuple[Notification, ...]
    ) -> bool:
        ended = await self._commits.write_once_possible(
            lambda queue: queue.complete(claim, outcome, now, letter)
        )
        if not ended:
            LOG.info("request %s was ended by another owner", claim.request.id)
        elif letter:
            self._notified()
        return ended

    def _count(
        self, request: AsyncRequest, variant_name: str, names: tuple[str, ...], now: float
    ) -> None:
        place = (request.scope, request.endpoint_name, variant_name)
        for name in names:
            self._measurements.count(place, name)
        self._measurements.add_ms(place, TOTAL_TIME, now - request.accepted_at)


def _notification(
    claim: Claim, topic_arn: str | None, message: str | None
) -> tuple[Notification, ...]:
    """Build the notification. Its id depends on this end of the request, so that repeats are found.

    A request that is retried by hand ends again, under another fence, and is notified again.
    """
    if topic_arn is None or message is None:
        return ()
    request = claim.request
    return (
        Notification(
            id=str(uuid.uuid5(NOTIFICATION_IDS, f"{request.id} {claim.fence}")),
            topic_arn=topic_arn,
            subject=None,
            message=message,
            scope=request.scope,
            endpoint_name=request.endpoint_name,
        ),
    )
