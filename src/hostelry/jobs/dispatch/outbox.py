"""Sends notifications of the outbox to control, and repeats until control has taken them."""

import asyncio
import logging

from hostelry.base.clock import Clock
from hostelry.base.concurrency import for_each
from hostelry.dataplane.routes import RouteSource
from hostelry.domain.messaging import PublicationRequest
from hostelry.jobs.control_client import ControlDownError, ControlRefusedError, JobsControl
from hostelry.jobs.dispatch.metric_reports import NOTIFICATION_FAILURES, AsyncMeasurements
from hostelry.jobs.queue.protocol import PendingNotification, QueueCommits
from hostelry.jobs.rules.next_step import notify_again_at

LOG = logging.getLogger(__name__)
AT_ONCE = 256  # notifications read from the outbox at once
MAX_SENDING = 16
POLL_S = 1.0
MAX_TRIES = 1500  # tries in about a day


class Outbox:
    """The loop over notifications.

    Args:
        commits: commits to the queue, which has the outbox.
        control: takes notifications.
        routes: have the variant that a failure is counted for.
        measurements: counts failures.
        clock: the time.
    """

    def __init__(
        self,
        commits: QueueCommits,
        control: JobsControl,
        routes: RouteSource,
        measurements: AsyncMeasurements,
        clock: Clock,
    ) -> None:
        self._commits = commits
        self._control = control
        self._routes = routes
        self._measurements = measurements
        self._clock = clock
        self._woken = asyncio.Event()
        self._is_empty = False
        self._decided: set[str] = set()  # taken or refused by control, and still in the outbox

    def wake(self) -> None:
        """Wake the sender."""
        self._woken.set()

    async def wait(self) -> None:
        """Return once `wake` was called, or after a second if a notification waits."""
        try:
            async with asyncio.timeout(None if self._is_empty else POLL_S):
                await self._woken.wait()
        except TimeoutError:
            return
        finally:
            self._woken.clear()

    async def send_due(self) -> None:
        """Send the notifications that are due."""
        self._is_empty = False
        now, queue = self._clock.now(), self._commits.queue
        due = await asyncio.to_thread(queue.list_due_notifications, now, AT_ONCE)
        await for_each(due, self._send, MAX_SENDING)
        self._is_empty = not due and not await asyncio.to_thread(queue.has_notifications)
        if len(due) == AT_ONCE:
            self.wake()

    async def _send(self, letter: PendingNotification) -> None:
        note = letter.notification
        if note.id not in self._decided and not await self._is_decided(letter):
            return
        self._decided.add(note.id)  # not sent again, even if the file cannot be written now
        await self._commits.write(lambda queue: queue.forget_notification(note.id))
        self._decided.discard(note.id)

    async def _is_decided(self, letter: PendingNotification) -> bool:
        """Publish a notification. If control must be asked again, note that and return False."""
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
            self._give_up(letter, str(error))
        except ControlDownError as error:
            if letter.attempts + 1 >= MAX_TRIES:
                self._give_up(letter, str(error))
                return True
            again_at = notify_again_at(letter.attempts, self._clock.now())
            reason = str(error)
            await self._commits.write(
                lambda queue: queue.defer_notification(note.id, again_at, reason)
            )
            return False
        return True

    def _give_up(self, letter: PendingNotification, reason: str) -> None:
        note = letter.notification
        LOG.warning("notification %s of %s is lost: %s", note.id, note.endpoint_name, reason)
        endpoint = self._routes.table.endpoint(note.scope, note.endpoint_name)
        if endpoint is not None and endpoint.variants:
            place = (note.scope, note.endpoint_name, endpoint.variants[0].name)
            self._measurements.count(place, NOTIFICATION_FAILURES)
