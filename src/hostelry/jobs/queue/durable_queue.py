"""The queue in a database. Processes of several hosts may share a queue in PostgreSQL.

state      becomes                  by
---------  -----------------------  -------------------------------------------------------------
waiting    running                  `claim`, `claim_overdue`: the next fence, under a lease
running    waiting                  `defer`, `release_lost` after the lease's end, `release_host`
running    completed, failed,       `complete` with the current fence
           expired
failed     waiting                  an operator's retry (`request_rows`)
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection, Row

from hostelry.base.clock import monotonic_s
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
    Write,
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
from hostelry.store.database import Database
from hostelry.store.protocol import StoreUnavailable

MAX_UNFINISHED = 1_000_000
MAX_BYTES = 8 * 1024**3
MAX_REASON_CHARS = 1024
RECOUNT_S = 10.0  # until other processes' requests are counted
HELD_S = 10.0  # how long the process that sends a notification holds it
DECODER = msgspec.msgpack.Decoder(AsyncRequest)
NOTIFICATION_DECODER = msgspec.msgpack.Decoder(Notification)


def _build_claimed_update(*columns: str) -> sa.Update:
    """Build an update of these columns of a request that runs under the claim's fence."""
    held = (
        REQUESTS.c.id == sa.bindparam("claimed_id"),
        REQUESTS.c.state == sa.literal_column(f"'{RUNNING}'"),
        REQUESTS.c.fence == sa.bindparam("claimed_fence"),
    )
    return sa.update(REQUESTS).where(*held).values({it: sa.bindparam(it) for it in columns})


# Built once, because building a statement takes longer than running it.
ENDED = {"owner": None, "lease_until": None}
RENEW = _build_claimed_update("lease_until")
COMPLETE = _build_claimed_update("state", "finished_at", "owner", "lease_until")
FAIL = _build_claimed_update("state", "finished_at", "owner", "lease_until", "reason")
DEFER = _build_claimed_update("state", "owner", "lease_until", "next_at", "attempt", "reason")
KEEP_REQUESTS, KEEP_LETTERS = sa.insert(REQUESTS), sa.insert(OUTBOX)
ANY_LETTER = sa.select(OUTBOX.c.id).limit(1)
FORGET_LETTER = sa.delete(OUTBOX).where(OUTBOX.c.id == sa.bindparam("letter_id"))


class _Commit(msgspec.Struct):
    """A transaction under way: new rows, and the sizes of requests that it adds and ends."""

    connection: Connection
    new_requests: list[dict[str, Any]] = msgspec.field(default_factory=list)
    new_letters: list[dict[str, Any]] = msgspec.field(default_factory=list)
    taken: list[int] = msgspec.field(default_factory=list)  # bytes of each request
    given_back: list[int] = msgspec.field(default_factory=list)

    def flush(self) -> None:
        """Keep new rows, all in one statement."""
        for insert, rows in ((KEEP_REQUESTS, self.new_requests), (KEEP_LETTERS, self.new_letters)):
            if rows:
                self.connection.execute(insert, rows)
                rows.clear()


class DurableQueue:
    """A `RequestQueue` in `database`, used by one process at a time unless `is_shared`.

    `submit` raises StoreUnavailable if the queue would have more than `max_unfinished` requests or
    `max_bytes`, or if the database cannot be written. Then it keeps none of the requests. Processes
    that share a queue count each other's requests within `RECOUNT_S`.
    """

    def __init__(
        self,
        database: Database,
        *,
        is_shared: bool = False,
        max_unfinished: int = MAX_UNFINISHED,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.database = database
        self._is_shared = is_shared
        self._max_unfinished = max_unfinished
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._own = threading.local()  # the commit under way in each thread
        self._unfinished = self._bytes = 0
        self._recount_at = 0.0
        database.create(METADATA)
        with database.read() as connection:
            self._recount(connection)

    def write_together(self, writes: Sequence[Write]) -> list[Any]:
        """Make several writes in one commit, and return the result of each, or its refusal."""
        with self._commit():
            return [self._result(it) for it in writes]

    def submit(self, requests: Sequence[AsyncRequest]) -> None:
        """Add new requests."""
        rows = [_new_row(it) for it in requests]
        sizes = [len(row["request"]) for row in rows]
        with self._commit() as commit:
            self.reserve(len(rows), sum(sizes))
            commit.taken += sizes
            commit.new_requests += rows

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
        due = (
            REQUESTS.c.account == scope.account,
            REQUESTS.c.region == scope.region,
            REQUESTS.c.endpoint == endpoint_name,
            REQUESTS.c.next_at <= now,
            REQUESTS.c.expires_at > now,
        )
        return self._claim(due, REQUESTS.c.sequence, owner, limit, now + lease_s)

    def claim_overdue(self, owner: str, limit: int, now: float, lease_s: float) -> list[Claim]:
        """Claim waiting requests of any endpoint that are past their `expires_at`."""
        due = (REQUESTS.c.expires_at <= now,)
        return self._claim(due, REQUESTS.c.expires_at, owner, limit, now + lease_s)

    def renew(self, claims: Sequence[Claim], now: float, lease_s: float) -> list[Claim]:
        """Extend the leases, and return the claims that are still held."""
        extended = {"lease_until": now + lease_s}
        with self._commit() as commit:
            return [it for it in claims if _update_held(commit, RENEW, it, extended)]

    def complete(
        self, claim: Claim, outcome: Outcome, now: float, notifications: Sequence[Notification]
    ) -> bool:
        """End a request, and add its notifications to the outbox. False if the fence is stale."""
        update, ended = COMPLETE, {**ENDED, "state": to_state(outcome), "finished_at": now}
        if isinstance(outcome, RequestFailed):
            update, ended = FAIL, {**ended, "reason": outcome.reason[:MAX_REASON_CHARS]}
        with self._commit() as commit:
            if not _update_held(commit, update, claim, ended):
                return False
            commit.new_letters += [_new_letter(it, now) for it in notifications]
            commit.given_back.append(len(msgspec.msgpack.encode(claim.request)))
        return True

    def defer(self, claim: Claim, next_at: float, reason: str, now: float, counts: bool) -> bool:
        """Put a request back in its place, to begin at `next_at`. False if the fence is stale."""
        back = {
            **ENDED,
            "state": WAITING,
            "next_at": next_at,
            "attempt": claim.attempt + counts,
            "reason": reason[:MAX_REASON_CHARS],
        }
        with self._commit() as commit:
            return _update_held(commit, DEFER, claim, back)

    def release_lost(self, now: float) -> int:
        """Put back the requests whose lease has ended, and return their number."""
        return self._release(REQUESTS.c.lease_until <= now)

    def release_host(self, host: str | None) -> int:
        """Put back requests claimed by processes of `host` (None: any). Returns their number."""
        owner = REQUESTS.c.owner
        return self._release(sa.true() if host is None else owner.startswith(host_prefix(host)))

    def may_have_requests(self) -> bool:
        """False if no request is unfinished. Answered without the database."""
        return self._is_shared or self._unfinished > 0

    def has_notifications(self) -> bool:
        """True if the outbox has a notification, due or not, or another process may add one."""
        return self._is_shared or bool(self.database.query(ANY_LETTER))

    def backlog(self) -> list[Backlog]:
        """The backlog of every endpoint with unfinished requests."""
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
        with self.database.read() as connection:
            rows = connection.execute(query).all()
            if self._is_shared and monotonic_s() >= self._recount_at:
                self._recount(connection)
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

    def list_due_notifications(self, now: float, limit: int) -> list[PendingNotification]:
        """List the notifications to send now, the oldest first."""
        due = sa.select(OUTBOX).where(OUTBOX.c.next_at <= now)
        due = due.order_by(OUTBOX.c.made_at).limit(limit)
        with self.database.read() as connection:
            rows = connection.execute(due).all()
        if rows and self._is_shared:
            rows = self._hold(due, now + HELD_S)
        return [
            PendingNotification(
                notification=NOTIFICATION_DECODER.decode(row.body), attempts=row.attempts
            )
            for row in rows
        ]

    def forget_notification(self, notification_id: str) -> None:
        """Forget a notification."""
        with self._commit() as commit:
            commit.connection.execute(FORGET_LETTER, {"letter_id": notification_id})

    def defer_notification(self, notification_id: str, next_at: float, reason: str) -> None:
        """Count a failed attempt, and send the notification again at `next_at`."""
        failed = {
            "attempts": OUTBOX.c.attempts + 1,
            "next_at": next_at,
            "reason": reason[:MAX_REASON_CHARS],
        }
        update = sa.update(OUTBOX).where(OUTBOX.c.id == notification_id).values(failed)
        with self._commit() as commit:
            commit.connection.execute(update)

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def unreserve(self, num_requests: int, num_bytes: int) -> None:
        """Subtract requests that are finished, or were not kept, from the queue's size."""
        with self._lock:
            self._unfinished = max(0, self._unfinished - num_requests)
            self._bytes = max(0, self._bytes - num_bytes)

    def reserve(self, num_requests: int, num_bytes: int) -> None:
        """Add unfinished requests to the queue's size. Raises StoreUnavailable above a limit."""
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

    @contextmanager
    def _commit(self) -> Iterator[_Commit]:
        """The commit under way in this thread, else a new one, durable at the end of the block."""
        under_way: _Commit | None = getattr(self._own, "commit", None)
        if under_way is not None:
            yield under_way
            return
        commit: _Commit | None = None
        try:
            with self.database.write() as connection:
                commit = self._own.commit = _Commit(connection)
                yield commit
                commit.flush()
        except BaseException:
            if commit is not None:
                self.unreserve(len(commit.taken), sum(commit.taken))
            raise
        finally:
            self._own.commit = None
        self.unreserve(len(commit.given_back), sum(commit.given_back))

    def _result(self, write: Write) -> Any:
        try:
            return write(self)
        except StoreUnavailable as refusal:  # above a limit, so nothing was changed
            return refusal

    def _claim(
        self,
        due: Sequence[sa.ColumnElement[bool]],
        order: sa.Column[Any],
        owner: str,
        limit: int,
        lease_until: float,
    ) -> list[Claim]:
        waiting = REQUESTS.c.state == sa.literal_column(f"'{WAITING}'")
        chosen = sa.select(REQUESTS.c.sequence).where(waiting, *due).order_by(order).limit(limit)
        claimed = {
            "state": RUNNING,
            "fence": REQUESTS.c.fence + 1,
            "owner": owner,
            "lease_until": lease_until,
        }
        update = sa.update(REQUESTS).where(REQUESTS.c.sequence.in_(_lock_unlocked(chosen)))
        with self._commit() as commit:
            commit.flush()  # requests of the same commit may be claimed
            rows = commit.connection.execute(update.values(claimed).returning(REQUESTS)).all()
        return [_to_claim(row) for row in sorted(rows, key=lambda row: row.sequence)]

    def _release(self, which: sa.ColumnElement[bool]) -> int:
        back = {"state": WAITING, "owner": None, "lease_until": None}
        running = REQUESTS.c.state == sa.literal_column(f"'{RUNNING}'")
        chosen = _lock_unlocked(sa.select(REQUESTS.c.sequence).where(running, which))
        update = sa.update(REQUESTS).where(REQUESTS.c.sequence.in_(chosen)).values(back)
        with self._commit() as commit:
            return len(commit.connection.execute(update.returning(REQUESTS.c.sequence)).all())

    def _hold(self, due: sa.Select[Any], until: float) -> Sequence[Row[Any]]:
        """Hold the notifications of `due` for a while, so that other processes skip them."""
        mine = _lock_unlocked(due.with_only_columns(OUTBOX.c.id))
        update = sa.update(OUTBOX).where(OUTBOX.c.id.in_(mine)).values(next_at=until)
        with self._commit() as commit:
            rows = commit.connection.execute(update.returning(OUTBOX)).all()
        return sorted(rows, key=lambda row: row.made_at)

    def _recount(self, connection: Connection) -> None:
        """Count the requests in the queue, including other processes' requests."""
        sizes = sa.select(sa.func.count(), sa.func.sum(sa.func.length(REQUESTS.c.request)))
        number, size = connection.execute(sizes.where(REQUESTS.c.finished_at.is_(None))).one()
        with self._lock:
            self._unfinished, self._bytes = int(number), int(size or 0)
        self._recount_at = monotonic_s() + RECOUNT_S


def host_prefix(host: str) -> str:
    """The prefix of the names of owners on `host`."""
    return f"{host}/"


def _lock_unlocked(chosen: sa.Select[Any]) -> sa.Select[Any]:
    """Lock the rows of `chosen` that no other transaction has locked.

    A common table expression, because PostgreSQL may run a plain subquery more than once, and then
    choose more rows than its limit.
    """
    locked = chosen.with_for_update(skip_locked=True).cte("chosen")
    return sa.select(locked.c[0])


def to_state(outcome: Outcome) -> str:
    """The state of a request with this outcome."""
    if isinstance(outcome, RequestCompleted):
        return COMPLETED
    return FAILED if isinstance(outcome, RequestFailed) else EXPIRED


def _update_held(
    commit: _Commit, update: sa.Update, claim: Claim, values: Mapping[str, Any]
) -> bool:
    """Update the request of a claim. False if the claim is no longer held."""
    claimed = {"claimed_id": claim.request.id, "claimed_fence": claim.fence}
    return commit.connection.execute(update, {**claimed, **values}).rowcount == 1


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


def _to_claim(row: Row[Any]) -> Claim:
    return Claim(request=DECODER.decode(row.request), fence=row.fence, attempt=row.attempt)
