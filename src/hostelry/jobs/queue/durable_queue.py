"""The queue in a file: SQLite now; the statements are portable.

state      becomes                  by
---------  -----------------------  ------------------------------------------------------------
waiting    running                  `claim`, `overdue`: the next fence, under a lease
running    waiting                  `defer`; `release_lost` once its lease has ended; `release_all`
running    completed, failed,       `complete` with the present fence
           expired
failed     waiting                  an operator's retry (`request_rows`)
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection, Row

from hostelry.domain.async_request import AsyncRequest
from hostelry.domain.scope import Scope
from hostelry.jobs.queue.protocol import (
    Backlog,
    Claim,
    Notification,
    Outcome,
    PendingNotification,
    RequestCompleted,
    RequestFailed,
)
from hostelry.jobs.queue.tables import (
    COMPLETED,
    EXPIRED,
    FAILED,
    METADATA,
    OUTBOX,
    REQUESTS,
    RUNNING,
    WAITING,
)
from hostelry.store.errors import StoreUnavailable
from hostelry.store.sqlite import SqliteFile

MAX_UNFINISHED = 1_000_000
MAX_BYTES = 8 * 1024**3
MAX_REASON_CHARS = 1024
DECODER = msgspec.msgpack.Decoder(AsyncRequest)
NOTIFICATION_DECODER = msgspec.msgpack.Decoder(Notification)


class DurableQueue:
    """A `RequestQueue` in one file, opened by one process at a time.

    `submit` raises StoreUnavailable where `max_unfinished` requests or `max_bytes` of them are in
    the queue, and where the file cannot be written; then it kept none of them.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        max_unfinished: int = MAX_UNFINISHED,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.file = SqliteFile(path)
        self._max_unfinished = max_unfinished
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        with self.file.write() as connection:
            METADATA.create_all(connection)
            self._unfinished, self._bytes = _sizes(connection)

    def submit(self, requests: Sequence[AsyncRequest]) -> None:
        """Keep new requests; once this returns they survive the process."""
        rows = [_new_row(it) for it in requests]
        num_bytes = sum(len(row["request"]) for row in rows)
        self.reserve(len(rows), num_bytes)
        try:
            with self.file.write() as connection:
                connection.execute(sa.insert(REQUESTS), rows)
        except BaseException:
            self.unreserve(len(rows), num_bytes)
            raise

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
        due = (
            REQUESTS.c.account == scope.account,
            REQUESTS.c.region == scope.region,
            REQUESTS.c.endpoint == endpoint_name,
            REQUESTS.c.next_at <= now,
            REQUESTS.c.expires_at > now,
        )
        return self._claim(due, REQUESTS.c.sequence, owner, limit, now + lease_s)

    def overdue(self, owner: str, limit: int, now: float, lease_s: float) -> list[Claim]:
        """Claim requests past their `expires_at` that wait, of any endpoint."""
        due = (REQUESTS.c.expires_at <= now,)
        return self._claim(due, REQUESTS.c.expires_at, owner, limit, now + lease_s)

    def renew(self, claims: Sequence[Claim], now: float, lease_s: float) -> list[Claim]:
        """Extend the leases; the claims that are still held."""
        extended = {"lease_until": now + lease_s}
        with self.file.write() as connection:
            return [it for it in claims if _update_held(connection, it, extended)]

    def complete(
        self, claim: Claim, outcome: Outcome, now: float, notifications: Sequence[Notification]
    ) -> bool:
        """End a request, its notifications in the outbox; False where the fence is stale."""
        ended: dict[str, Any] = {
            "state": state_of(outcome),
            "finished_at": now,
            "owner": None,
            "lease_until": None,
        }
        if isinstance(outcome, RequestFailed):
            ended["reason"] = outcome.reason[:MAX_REASON_CHARS]
        with self.file.write() as connection:
            if not _update_held(connection, claim, ended):
                return False
            if notifications:
                connection.execute(
                    sa.insert(OUTBOX), [_new_letter(it, now) for it in notifications]
                )
        self.unreserve(1, len(msgspec.msgpack.encode(claim.request)))
        return True

    def defer(self, claim: Claim, next_at: float, reason: str, now: float, counts: bool) -> bool:
        """Put a request back in its place, not begun before `next_at`; False where stale."""
        back = {
            "state": WAITING,
            "owner": None,
            "lease_until": None,
            "next_at": next_at,
            "attempt": claim.attempt + counts,
            "reason": reason[:MAX_REASON_CHARS],
        }
        with self.file.write() as connection:
            return _update_held(connection, claim, back)

    def release_lost(self, now: float) -> int:
        """Put back the requests whose lease has ended; their number."""
        return self._release(REQUESTS.c.lease_until <= now)

    def release_all(self) -> int:
        """Put back every claimed request, as the owner before has ended; their number."""
        return self._release(sa.true())

    def backlog(self) -> list[Backlog]:
        """Every endpoint with unfinished requests."""
        columns = REQUESTS.c
        is_waiting = columns.state == WAITING
        query = (
            sa.select(
                columns.account,
                columns.region,
                columns.endpoint,
                sa.func.sum(sa.case((is_waiting, 1), else_=0)).label("waiting"),
                sa.func.count().label("unfinished"),
                sa.func.min(sa.case((is_waiting, columns.accepted_at))).label("oldest_at"),
            )
            .where(columns.finished_at.is_(None))
            .group_by(columns.account, columns.region, columns.endpoint)
        )
        with self.file.read() as connection:
            rows = connection.execute(query).all()
        return [
            Backlog(
                scope=Scope(row.account, row.region),
                endpoint_name=row.endpoint,
                waiting=row.waiting,
                running=row.unfinished - row.waiting,
                oldest_at=row.oldest_at,
            )
            for row in rows
        ]

    def pending(self, now: float, limit: int) -> list[PendingNotification]:
        """Notifications to send now, the oldest first."""
        due = sa.select(OUTBOX).where(OUTBOX.c.next_at <= now)
        with self.file.read() as connection:
            rows = connection.execute(due.order_by(OUTBOX.c.made_at).limit(limit)).all()
        return [
            PendingNotification(
                notification=NOTIFICATION_DECODER.decode(row.body), attempts=row.attempts
            )
            for row in rows
        ]

    def delivered(self, notification_id: str) -> None:
        """Forget a notification."""
        with self.file.write() as connection:
            connection.execute(sa.delete(OUTBOX).where(OUTBOX.c.id == notification_id))

    def undelivered(self, notification_id: str, next_at: float, reason: str) -> None:
        """Count a failed attempt, and send it again at `next_at`."""
        failed = {
            "attempts": OUTBOX.c.attempts + 1,
            "next_at": next_at,
            "reason": reason[:MAX_REASON_CHARS],
        }
        with self.file.write() as connection:
            connection.execute(
                sa.update(OUTBOX).where(OUTBOX.c.id == notification_id).values(failed)
            )

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def unreserve(self, num_requests: int, num_bytes: int) -> None:
        """Give back the room of requests that are finished, or were never kept."""
        with self._lock:
            self._unfinished = max(0, self._unfinished - num_requests)
            self._bytes = max(0, self._bytes - num_bytes)

    def reserve(self, num_requests: int, num_bytes: int) -> None:
        """Take the room of unfinished requests; raises StoreUnavailable where there is none."""
        with self._lock:
            if self._unfinished + num_requests > self._max_unfinished:
                raise StoreUnavailable(
                    f"{self._unfinished} asynchronous requests wait, of {self._max_unfinished} at"
                    " most: try again when some have been answered"
                )
            if self._bytes + num_bytes > self._max_bytes:
                raise StoreUnavailable(
                    f"asynchronous requests of {self._bytes} bytes wait, of {self._max_bytes} at"
                    " most: try again when some have been answered"
                )
            self._unfinished += num_requests
            self._bytes += num_bytes

    def _claim(
        self,
        due: Sequence[sa.ColumnElement[bool]],
        order: sa.Column[Any],
        owner: str,
        limit: int,
        lease_until: float,
    ) -> list[Claim]:
        chosen = (
            sa.select(REQUESTS.c.sequence)
            .where(REQUESTS.c.state == sa.literal_column(f"'{WAITING}'"), *due)
            .order_by(order)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        claimed = {
            "state": RUNNING,
            "fence": REQUESTS.c.fence + 1,
            "owner": owner,
            "lease_until": lease_until,
        }
        with self.file.write() as connection:
            update = sa.update(REQUESTS).where(REQUESTS.c.sequence.in_(chosen.scalar_subquery()))
            rows = connection.execute(update.values(claimed).returning(REQUESTS)).all()
        return [_claim_of(row) for row in sorted(rows, key=lambda row: row.sequence)]

    def _release(self, which: sa.ColumnElement[bool]) -> int:
        back = {"state": WAITING, "owner": None, "lease_until": None}
        running = REQUESTS.c.state == sa.literal_column(f"'{RUNNING}'")
        with self.file.write() as connection:
            done = connection.execute(sa.update(REQUESTS).where(running, which).values(back))
        return int(done.rowcount)


def state_of(outcome: Outcome) -> str:
    """The state of a request with this outcome."""
    if isinstance(outcome, RequestCompleted):
        return COMPLETED
    return FAILED if isinstance(outcome, RequestFailed) else EXPIRED


def _update_held(connection: Connection, claim: Claim, values: dict[str, Any]) -> bool:
    held = (
        REQUESTS.c.id == claim.request.id,
        REQUESTS.c.state == RUNNING,
        REQUESTS.c.fence == claim.fence,
    )
    return connection.execute(sa.update(REQUESTS).where(*held).values(values)).rowcount == 1


def _new_row(request: AsyncRequest) -> dict[str, Any]:
    return {
        "id": request.id,
        "inference_id": request.inference_id,
        "account": request.scope.account,
        "region": request.scope.region,
        "endpoint": request.endpoint_name,
        "state": WAITING,
        "accepted_at": request.accepted_at,
        "expires_at": request.expires_at,
        "next_at": request.accepted_at,
        "attempt": 1,
        "fence": 0,
        "request": msgspec.msgpack.encode(request),
    }


def _new_letter(notification: Notification, now: float) -> dict[str, Any]:
    body = msgspec.msgpack.encode(notification)
    return {
        "id": notification.id,
        "body": body,
        "made_at": now,
        "next_at": now,
        "attempts": 0,
    }


def _claim_of(row: Row[Any]) -> Claim:
    return Claim(request=DECODER.decode(row.request), fence=row.fence, attempt=row.attempt)


def _sizes(connection: Connection) -> tuple[int, int]:
    """The number of unfinished requests, and their bytes."""
    sizes = sa.select(sa.func.count(), sa.func.sum(sa.func.length(REQUESTS.c.request)))
    found = connection.execute(sizes.where(REQUESTS.c.finished_at.is_(None))).one()
    return int(found[0]), int(found[1] or 0)
