"""A request queue in memory for tests. It fulfils the contract of the durable queue."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hostelry.domain.async_request import AsyncRequest
from hostelry.domain.scope import Scope
from hostelry.jobs.queue.protocol import (
    Backlog,
    Claim,
    Notification,
    Outcome,
    PendingNotification,
    Write,
)


@dataclass(slots=True)
class _Row:
    request: AsyncRequest
    attempt: int = 1
    fence: int = 0
    next_at: float = 0.0
    lease_until: float | None = None
    outcome: Outcome | None = None


@dataclass(slots=True)
class _Letter:
    notification: Notification
    attempts: int = 0
    next_at: float = 0.0

    @property
    def pending(self) -> PendingNotification:
        return PendingNotification(notification=self.notification, attempts=self.attempts)


@dataclass(slots=True)
class MemoryQueue:
    """A `RequestQueue` without a file. `completions` counts the ends of each request."""

    rows: dict[str, _Row] = field(default_factory=dict)
    letters: dict[str, _Letter] = field(default_factory=dict)
    completions: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write_together(self, writes: Sequence[Write]) -> list[Any]:
        """Make several writes, and return the result of each."""
        return [write(self) for write in writes]

    def submit(self, requests: Sequence[AsyncRequest]) -> None:
        """Keep new requests."""
        with self._lock:
            self.rows.update({it.id: _Row(it) for it in requests})

    def claim(
        self,
        scope: Scope,
        endpoint_name: str,
        owner: str,
        limit: int,
        now: float,
        lease_s: float,
    ) -> list[Claim]:
        """Claim waiting requests of an endpoint, by arrival."""
        with self._lock:
            mine = [it for it in self._waiting() if _belongs_to(it, scope, endpoint_name)]
            due = [it for it in mine if it.next_at <= now < it.request.expires_at]
            return [_claim_row(it, now, lease_s) for it in due[:limit]]

    def claim_overdue(self, owner: str, limit: int, now: float, lease_s: float) -> list[Claim]:
        """Claim waiting requests that are past their `expires_at`."""
        with self._lock:
            due = [it for it in self._waiting() if it.request.expires_at <= now]
            return [_claim_row(it, now, lease_s) for it in due[:limit]]

    def renew(self, claims: Sequence[Claim], now: float, lease_s: float) -> list[Claim]:
        """Extend the leases, and return the claims that are still held."""
        with self._lock:
            held = [it for it in claims if self._find_claimed(it) is not None]
            for claim in held:
                self.rows[claim.request.id].lease_until = now + lease_s
            return held

    def complete(
        self, claim: Claim, outcome: Outcome, now: float, notifications: Sequence[Notification]
    ) -> bool:
        """End a request. False if the fence is stale."""
        with self._lock:
            row = self._find_claimed(claim)
            if row is None:
                return False
            row.outcome, row.lease_until = outcome, None
            done = self.completions
            done[claim.request.id] = done.get(claim.request.id, 0) + 1
            self.letters.update({it.id: _Letter(it) for it in notifications})
            return True

    def defer(self, claim: Claim, next_at: float, reason: str, now: float, counts: bool) -> bool:
        """Put a request back in its place. False if the fence is stale."""
        with self._lock:
            row = self._find_claimed(claim)
            if row is None:
                return False
            row.lease_until, row.next_at = None, next_at
            row.attempt += counts
            return True

    def release_lost(self, now: float) -> int:
        """Put back the requests whose lease has ended."""
        with self._lock:
            return self._release(now)

    def release_host(self, host: str | None) -> int:
        """Put back every claimed request, because all were claimed by this process."""
        with self._lock:
            return self._release(float("inf"))

    def may_have_requests(self) -> bool:
        """False if no request is unfinished."""
        return any(it.outcome is None for it in self.rows.values())

    def has_notifications(self) -> bool:
        """Whether a notification is in the outbox, due or not."""
        return bool(self.letters)

    def backlog(self) -> list[Backlog]:
        """The backlog of every endpoint with unfinished requests."""
        with self._lock:
            left = [it for it in self.rows.values() if it.outcome is None]
            places = {(it.request.scope, it.request.endpoint_name) for it in left}
            return [_backlog(*place, left) for place in places]

    def list_due_notifications(self, now: float, limit: int) -> list[PendingNotification]:
        """The notifications to send now."""
        with self._lock:
            due = [it for it in self.letters.values() if it.next_at <= now]
            return [it.pending for it in due[:limit]]

    def forget_notification(self, notification_id: str) -> None:
        """Forget a notification."""
        with self._lock:
            self.letters.pop(notification_id, None)

    def defer_notification(self, notification_id: str, next_at: float, reason: str) -> None:
        """Count a failed attempt."""
        with self._lock:
            letter = self.letters.get(notification_id)
            if letter is not None:
                letter.attempts, letter.next_at = letter.attempts + 1, next_at

    def _waiting(self) -> list[_Row]:
        rows = self.rows.values()
        return [it for it in rows if it.outcome is None and it.lease_until is None]

    def _find_claimed(self, claim: Claim) -> _Row | None:
        row = self.rows.get(claim.request.id)
        is_held = row is not None and row.lease_until is not None and row.fence == claim.fence
        return row if is_held else None

    def _release(self, now: float) -> int:
        claimed = [it for it in self.rows.values() if it.lease_until is not None]
        lost = [it for it in claimed if (it.lease_until or 0.0) <= now]
        for row in lost:
            row.lease_until = None
        return len(lost)


def _belongs_to(row: _Row, scope: Scope, endpoint_name: str) -> bool:
    return (row.request.scope, row.request.endpoint_name) == (scope, endpoint_name)


def _claim_row(row: _Row, now: float, lease_s: float) -> Claim:
    row.fence += 1
    row.lease_until = now + lease_s
    return Claim(request=row.request, fence=row.fence, attempt=row.attempt)


def _backlog(scope: Scope, endpoint_name: str, rows: Sequence[_Row]) -> Backlog:
    mine = [it for it in rows if _belongs_to(it, scope, endpoint_name)]
    waiting = [it for it in mine if it.lease_until is None]
    return Backlog(
        scope=scope,
        endpoint_name=endpoint_name,
        waiting=len(waiting),
        running=len(mine) - len(waiting),
        oldest_at=min((it.request.accepted_at for it in waiting), default=None),
    )
