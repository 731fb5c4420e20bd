"""Sends notifications of the outbox to control, each until control has taken it."""

import asyncio
import logging

from hostelry.base.clock import Clock
from hostelry.domain.publication_request import PublicationRequest
from hostelry.gateway.routes import RouteSource
from hostelry.jobs.dispatch.control_line import ControlDownError, ControlLine, ControlRefusedError
from hostelry.jobs.dispatch.measurements import NOTIFICATION_FAILURES, AsyncMeasurements
from hostelry.jobs.queue.protocol import PendingNotification, RequestQueue
from hostelry.jobs.rules.next_step import notify_again_at

log = logging.getLogger(__name__)
AT_ONCE = 50
POLL_S = 1.0
MAX_TRIES = 1500  # about a day


class Outbox:
    """The loop over notifications.

    Args:
        queue: has them.
        control: takes them.
        routes: have the variant that a failure is counted for.
        measurements: counts failures.
        clock: the time.
    """

    def __init__(
        self,
        queue: RequestQueue,
        control: ControlLine,
        routes: RouteSource,
        measurements: AsyncMeasurements,
        clock: Clock,
    ) -> None:
        self._queue = queue
        self._control = control
        self._routes = routes
        self._measurements = measurements
        self._clock = clock
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """A notification may wait."""
        self._woken.set()

    async def wait(self) -> None:
        """Return once `wake` was called, or a second has passed."""
        try:
            async with asyncio.timeout(POLL_S):
                await self._woken.wait()
        except TimeoutError:
            return
        finally:
            self._woken.clear()

    async def send_due(self) -> None:
        """Send what is due now."""
        now = self._clock.now()
        due = await asyncio.to_thread(self._queue.pending, now, AT_ONCE)
        for letter in due:
            await self._send(letter)
        if len(due) == AT_ONCE:
            self.wake()

    async def _send(self, letter: PendingNotification) -> None:
        note = letter.notification
        publication = PublicationRequest(
            topic_arn=note.topic_arn,
            subject=note.subject,
            message=note.message,
            message_id=note.id,
        )
        try:
            await self._control.publish(publication)
        except ControlRefusedError as error:
            await self._give_up(letter, str(error))
        except ControlDownError as error:
            if letter.attempts + 1 >= MAX_TRIES:
                await self._give_up(letter, str(error))
                return
            again_at = notify_again_at(letter.attempts, self._clock.now())
            await asyncio.to_thread(self._queue.undelivered, note.id, again_at, str(error))
        else:
            await asyncio.to_thread(self._queue.delivered, note.id)

    async def _give_up(self, letter: PendingNotification, reason: str) -> None:
        note = letter.notification
        log.warning("the notification of request %s is lost: %s", note.id, reason)
        endpoint = self._routes.table.endpoint(note.scope, note.endpoint_name)
        if endpoint is not None and endpoint.variants:
            place = (note.scope, note.endpoint_name, endpoint.variants[0].name)
            self._measurements.count(place, NOTIFICATION_FAILURES)
        await asyncio.to_thread(self._queue.delivered, note.id)
