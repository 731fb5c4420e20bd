"""Interface of the queue of asynchronous requests, and the group commit of its writes.

A request is waiting, claimed by one owner under a lease, or finished. Each claim has a fence, a
number that no other claim of the request has. Writes with an older fence change nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from hostelry.base.concurrency import GroupedCalls
from hostelry.domain.async_request import AsyncRequest
from hostelry.domain.scope import Scope
from hostelry.store.protocol import StoreUnavailable

LOG = logging.getLogger(__name__)


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A request that its owner may process. `attempt` counts from 1."""

    request: AsyncRequest
    fence: int
    attempt: int


class RequestCompleted(msgspec.Struct, frozen=True):
    """The output object is written."""


class RequestFailed(msgspec.Struct, frozen=True):
    """The request failed for good, for `reason`."""

    reason: str


class RequestExpired(msgspec.Struct, frozen=True):
    """The request was not begun in time."""


Outcome = RequestCompleted | RequestFailed | RequestExpired


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """A message for a topic. Repeats have the same `id`."""

    id: str
    topic_arn: str
    subject: str | None
    message: str
    scope: Scope
    endpoint_name: str


class PendingNotification(msgspec.Struct, frozen=True, kw_only=True):
    """A notification that control has not taken yet. `attempts` counts the failed attempts."""

    notification: Notification
    attempts: int = 0


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """The unfinished requests of one endpoint. `oldest_at` is when the oldest waiting one came."""

    scope: Scope
    endpoint_name: str
    waiting: int
    running: int
    oldest_at: float | None


class QueueWrites(Protocol):
    """Calls that change a queue. Changes are durable on return. Times are seconds since the epoch.

    Each call blocks, and may come from any thread. Raises StoreUnavailable if the change cannot be
    made now. Then nothing was changed.
    """

    def submit(self, requests: Sequence[AsyncRequest]) -> None:
        """Add new requests."""
        ...

    def claim(
        self,
        scope: Scope,
        endpoint_name: str,
        owner: str,
        limit: int,
        now: float,
        lease_s: float,
    ) -> list[Claim]:
        """Claim up to `limit` waiting requests of an endpoint that may begin, by arrival."""
        ...

    def claim_overdue(self, owner: str, limit: int, now: float, lease_s: float) -> list[Claim]:
        """Claim waiting requests of any endpoint that are past their `expires_at`."""
        ...

    def renew(self, claims: Sequence[Claim], now: float, lease_s: float) -> list[Claim]:
        """Extend the leases, and return the claims that are still held."""
        ...

    def complete(
        self, claim: Claim, outcome: Outcome, now: float, notifications: Sequence[Notification]
    ) -> bool:
        """End a request, and add its notifications to the outbox. False if the fence is stale."""
        ...

    def defer(self, claim: Claim, next_at: float, reason: str, now: float, counts: bool) -> bool:
        """Put a request back in its place, to begin at `next_at`. False if the fence is stale.

        With `counts` its next attempt has the next number.
        """
        ...

    def release_lost(self, now: float) -> int:
        """Put back the requests whose lease has ended, and return their number."""
        ...

    def release_host(self, host: str | None) -> int:
        """Put back requests claimed by processes of `host` (None: any). Returns their number."""
        ...

    def forget_notification(self, notification_id: str) -> None:
        """Forget a notification."""
        ...

    def defer_notification(self, notification_id: str, next_at: float, reason: str) -> None:
        """Count a failed attempt, and send the notification again at `next_at`."""
        ...


Write = Callable[[QueueWrites], Any]


class RequestQueue(QueueWrites, Protocol):
    """Requests and the outbox."""

    def write_together(self, writes: Sequence[Write]) -> list[Any]:
        """Make several writes in one commit, and return the result of each.

        For a write that was refused before it changed anything, the result is its StoreUnavailable.
        Any other failure is raised, and no write is made.
        """
        ...

    def may_have_requests(self) -> bool:
        """False if no request is unfinished. Answered without the database."""
        ...

    def has_notifications(self) -> bool:
        """True if the outbox has a notification, due or not, or another process may add one."""
        ...

    def backlog(self) -> list[Backlog]:
        """The backlog of every endpoint with unfinished requests."""
        ...

    def list_due_notifications(self, now: float, limit: int) -> list[PendingNotification]:
        """List the notifications to send now, the oldest first."""
        ...


MAX_IN_COMMIT = 512
RETRY_S = 0.5
Result = TypeVar("Result")


class QueueCommits:
    """Commits writes to `queue` from one event loop. Reads go to the queue directly.

    Writes that come during a commit share the next commit.
    """

    def __init__(self, queue: RequestQueue) -> None:
        self.queue = queue
        self._calls: GroupedCalls[Write, Any] = GroupedCalls(self._commit, MAX_IN_COMMIT)

    async def write(self, write: Callable[[QueueWrites], Result]) -> Result:
        """Call `write` in a thread, and return its result once its changes are durable.

        Raises StoreUnavailable if the database cannot be written.
        """
        result: Result = await self._calls.call(write)
        return result

    async def write_once_possible(self, write: Callable[[QueueWrites], Result]) -> Result:
        """Write as `write` does, and repeat until the database can be written."""
        is_reported = False
        while True:
            try:
                return await self.write(write)
            except StoreUnavailable as error:
                if not is_reported:
                    LOG.warning("a write waits: %s", error)
                is_reported = True
                await asyncio.sleep(RETRY_S)

    async def finish(self) -> None:
        """Return once no write is under way."""
        await self._calls.finish()

    async def _commit(self, writes: Sequence[Write]) -> Sequence[Any]:
        return await asyncio.to_thread(self.queue.write_together, writes)
