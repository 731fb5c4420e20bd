"""Interface of the queue of asynchronous requests: claims with leases and fences, and an outbox.

A request is waiting, or claimed by one owner under a lease, or finished. Each claim has a fence, a
number that no other claim of that request has: what is done under an older one changes nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hostelry.domain.async_request import AsyncRequest
from hostelry.domain.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A request that its owner may process; `attempt` is its number, the first being 1."""

    request: AsyncRequest
    fence: int
    attempt: int


@dataclass(frozen=True, slots=True)
class RequestCompleted:
    """The output object is written."""


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """The request failed for good, for `reason`."""

    reason: str


@dataclass(frozen=True, slots=True)
class RequestExpired:
    """The request was not begun in time."""


Outcome = RequestCompleted | RequestFailed | RequestExpired


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A message for a topic; `id` stays the same however often it is sent."""

    id: str
    topic_arn: str
    subject: str | None
    message: str
    scope: Scope
    endpoint_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingNotification:
    """A notification that control has not taken yet; `attempts` have failed."""

    notification: Notification
    attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The unfinished requests of one endpoint; `oldest_at` is of the oldest that waits."""

    scope: Scope
    endpoint_name: str
    waiting: int
    running: int
    oldest_at: float | None


class QueueWrites(Protocol):
    """Calls that change a queue, durable once they return; instants are seconds since the epoch.

    Each blocks, may be called from any thread, and raises StoreUnavailable where it cannot be done
    now: then nothing was changed.
    """

    def submit(self, requests: Sequence[AsyncRequest]) -> None:
        """Keep new requests; once this returns they survive the process."""
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
        """Claim up to `limit` waiting requests of an endpoint that may be begun, by arrival."""
        ...

    def overdue(self, owner: str, limit: int, now: float, lease_s: float) -> list[Claim]:
        """Claim requests past their `expires_at` that wait, of any endpoint."""
        ...

    def renew(self, claims: Sequence[Claim], now: float, lease_s: float) -> list[Claim]:
        """Extend the leases; the claims that are still held."""
        ...

    def complete(
        self, claim: Claim, outcome: Outcome, now: float, notifications: Sequence[Notification]
    ) -> bool:
        """End a request, its notifications in the outbox; False where the fence is stale."""
        ...

    def defer(self, claim: Claim, next_at: float, reason: str, now: float, counts: bool) -> bool:
        """Put a request back in its place, not begun before `next_at`; False where stale.

        With `counts` its next attempt has the next number.
        """
        ...

    def release_lost(self, now: float) -> int:
        """Put back the requests whose lease has ended; their number."""
        ...

    def release_of(self, host: str | None) -> int:
        """Put back what processes of `host` (None: any) had claimed and left; their number."""
        ...

    def delivered(self, notification_id: str) -> None:
        """Forget a notification."""
        ...

    def undelivered(self, notification_id: str, next_at: float, reason: str) -> None:
        """Count a failed attempt, and send it again at `next_at`."""
        ...


Write = Callable[[QueueWrites], Any]


class RequestQueue(QueueWrites, Protocol):
    """Requests and the outbox."""

    def together(self, writes: Sequence[Write]) -> list[Any]:
        """Make several writes in one commit; the result of each.

        In place of a result is the StoreUnavailable of a write that was refused before it changed
        anything. Any other failure is raised, and then none of them is made.
        """
        ...

    def may_have_requests(self) -> bool:
        """False if no request is unfinished, which is known without a look at the database."""
        ...

    def has_notifications(self) -> bool:
        """Whether a notification is in the outbox, due or not, or another process may add one."""
        ...

    def backlog(self) -> list[Backlog]:
        """Every endpoint with unfinished requests."""
        ...

    def pending(self, now: float, limit: int) -> list[PendingNotification]:
        """Notifications to send now, the oldest first."""
        ...
