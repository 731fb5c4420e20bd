"""Rows of requests for operators: lists, retries and drops requests, and removes old rows."""

from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec.structs import replace
from sqlalchemy import Row

from hostelry.base.errors import HostelryError
from hostelry.domain.async_request import AsyncRequest
from hostelry.domain.scope import Scope
from hostelry.jobs.queue.durable_queue import DECODER, DurableQueue
from hostelry.jobs.queue.tables import (
    COMPLETED,
    EXPIRED,
    FAILED,
    OUTBOX,
    REQUESTS,
    RUNNING,
    WAITING,
)

KEEP_COMPLETED_S = 86_400.0
KEEP_FAILED_S = 14 * 86_400.0
KEEP_NOTIFICATIONS_S = 86_400.0
MAX_FINISHED = 100_000
SWEEP_AT_ONCE = 10_000
DEAD = (FAILED, EXPIRED)


class RequestStateError(HostelryError):
    """The state of the request does not allow this. The message names the state."""


class RequestRow(msgspec.Struct, frozen=True, kw_only=True):
    """A request and its state. `reason` is the reason of the last failed attempt, or of its end."""

    sequence: int
    id: str
    inference_id: str
    account: str
    region: str
    endpoint_name: str
    state: str
    attempt: int
    accepted_at: float
    expires_at: float
    finished_at: float | None
    reason: str | None
    input_uri: str | None
    body_bytes: int | None
    output_uri: str
    failure_uri: str


class FinishedCount(msgspec.Struct, frozen=True, kw_only=True):
    """The number of an endpoint's requests that ended in a period."""

    scope: Scope
    endpoint_name: str
    number: int


class RowFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects rows. None matches any endpoint or state. `before` is a row's `sequence`."""

    endpoint_name: str | None = None
    state: str | None = None
    before: int | None = None
    limit: int = 100


class RequestRows:
    """The rows of a durable queue."""

    def __init__(self, queue: DurableQueue) -> None:
        self._queue = queue
        self._database = queue.database

    def page(self, wanted: RowFilter) -> list[RequestRow]:
        """List the selected rows, the newest first."""
        query = sa.select(REQUESTS).order_by(REQUESTS.c.sequence.desc()).limit(wanted.limit)
        if wanted.endpoint_name is not None:
            query = query.where(REQUESTS.c.endpoint == wanted.endpoint_name)
        if wanted.state is not None:
            query = query.where(REQUESTS.c.state == wanted.state)
        if wanted.before is not None:
            query = query.where(REQUESTS.c.sequence < wanted.before)
        with self._database.read() as connection:
            return [_to_request_row(row) for row in connection.execute(query)]

    def finished_since(self, since: float) -> list[FinishedCount]:
        """Count the requests of each endpoint that have ended since `since`."""
        columns = (REQUESTS.c.account, REQUESTS.c.region, REQUESTS.c.endpoint)
        counted = sa.select(*columns, sa.func.count()).where(REQUESTS.c.finished_at > since)
        with self._database.read() as connection:
            rows = connection.execute(counted.group_by(*columns)).all()
        return [
            FinishedCount(scope=Scope(account, region), endpoint_name=endpoint, number=number)
            for account, region, endpoint, number in rows
        ]

    def find(self, name: str) -> RequestRow | None:
        """Find the newest request with this id or inference id."""
        named = sa.or_(REQUESTS.c.id == name, REQUESTS.c.inference_id == name)
        query = sa.select(REQUESTS).where(named).order_by(REQUESTS.c.sequence.desc()).limit(1)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _to_request_row(row)

    def retry(self, request_id: str, now: float) -> None:
        """Put a failed or expired request back in its place, with its whole time to live.

        Raises RequestStateError if it is in another state, or missing.
        """
        with self._database.write() as connection:
            row = connection.execute(_by_id(request_id)).one_or_none()
            if row is None or row.state not in DEAD:
                state = "not there" if row is None else row.state
                raise RequestStateError(f"{request_id} is {state}: only failed ones are retried")
            before: AsyncRequest = DECODER.decode(row.request)
            # A manual retry is meant for the endpoint that has the name now.
            lasts_s = before.expires_at - before.accepted_at
            request = replace(before, expires_at=now + lasts_s, endpoint_created_at=0.0)
            body = msgspec.msgpack.encode(request)
            self._queue.reserve(1, len(body))
            values = {
                "state": WAITING,
                "attempt": 1,
                "next_at": now,
                "expires_at": request.expires_at,
                "finished_at": None,
                "reason": None,
                "request": body,
            }
            connection.execute(
                sa.update(REQUESTS).where(REQUESTS.c.id == request_id).values(values)
            )

    def drop(self, request_id: str) -> None:
        """Forget a request that is not running, without output, failure object or notification.

        Raises RequestStateError if it is running, or missing.
        """
        with self._database.write() as connection:
            row = connection.execute(_by_id(request_id)).one_or_none()
            if row is None or row.state == RUNNING:
                state = "not there" if row is None else "running: wait for its end"
                raise RequestStateError(f"{request_id} is {state}")
            connection.execute(sa.delete(REQUESTS).where(REQUESTS.c.id == request_id))
        if row.state == WAITING:
            self._queue.unreserve(1, len(row.request))

    def sweep(self, now: float) -> int:
        """Remove old finished rows and notifications. Returns the number of rows."""
        finished = REQUESTS.c.finished_at
        old = sa.or_(
            sa.and_(REQUESTS.c.state == COMPLETED, finished <= now - KEEP_COMPLETED_S),
            finished <= now - KEEP_FAILED_S,
        )
        with self._database.write() as connection:
            forgotten = _delete(connection, sa.select(REQUESTS.c.sequence).where(old))
            newest = sa.select(REQUESTS.c.sequence).where(finished.is_not(None))
            beyond = newest.order_by(finished.desc(), REQUESTS.c.sequence.desc())
            forgotten += _delete(connection, beyond.offset(MAX_FINISHED))
            late = OUTBOX.c.made_at <= now - KEEP_NOTIFICATIONS_S
            connection.execute(sa.delete(OUTBOX).where(late))
        return forgotten


def _delete(connection: sa.Connection, chosen: sa.Select[Any]) -> int:
    some = chosen.limit(SWEEP_AT_ONCE).scalar_subquery()
    return int(
        connection.execute(sa.delete(REQUESTS).where(REQUESTS.c.sequence.in_(some))).rowcount
    )


def _by_id(request_id: str) -> sa.Select[Any]:
    return sa.select(REQUESTS).where(REQUESTS.c.id == request_id).with_for_update()


def _to_request_row(row: Row[Any]) -> RequestRow:
    request = DECODER.decode(row.request)
    return RequestRow(
        sequence=row.sequence,
        id=row.id,
        inference_id=row.inference_id,
        account=row.account,
        region=row.region,
        endpoint_name=row.endpoint,
        state=row.state,
        attempt=row.attempt,
        accepted_at=row.accepted_at,
        expires_at=row.expires_at,
        finished_at=row.finished_at,
        reason=row.reason,
        input_uri=request.input_uri,
        body_bytes=None if request.body is None else len(request.body),
        output_uri=request.output_uri,
        failure_uri=request.failure_uri,
    )
