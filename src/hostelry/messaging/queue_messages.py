"""The messages of queues. A received message is hidden for a while, until it is deleted."""

import asyncio
import base64
import json
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection, Row

from hostelry.base.json import decode
from hostelry.domain.messaging import AttributeValue, DeadLetterRule, QueuedMessage
from hostelry.messaging.tables import QUEUED, MessageTables

MAX_IN_FLIGHT = 120_000
NONCE_BYTES = 18
# Built once, because building a statement takes longer than running it.
_COLUMNS = QUEUED.c
_NOW = sa.bindparam("now", type_=sa.Float)
_OF = _COLUMNS.queue == sa.bindparam("arn")
_SENT_UNTIL = sa.bindparam("sent_until", type_=sa.Float)
_RECEIVED = (
    _COLUMNS.id == sa.bindparam("name"),
    _OF,
    _COLUMNS.nonce == sa.bindparam("receipt"),
)
_ADD = sa.insert(QUEUED)
_DROP = sa.delete(QUEUED).where(_OF, _COLUMNS.sent_at <= _SENT_UNTIL)
_DEAD = (
    sa.update(QUEUED)
    .where(_OF, _COLUMNS.visible_at <= _NOW, _COLUMNS.receives >= sa.bindparam("most"))
    .values(queue=sa.bindparam("dead_letters"), visible_at=_NOW)
)
_IN_FLIGHT = (
    sa.select(sa.func.count())
    .select_from(QUEUED)
    .where(_OF, _COLUMNS.receives > 0, _COLUMNS.visible_at > _NOW)
)
_VISIBLE = (
    sa.select(QUEUED)
    .where(_OF, _COLUMNS.visible_at <= _NOW)
    .order_by(_COLUMNS.visible_at)
    .limit(sa.bindparam("most"))
    .with_for_update(skip_locked=True)
)
_RECEIVE = (
    sa.update(QUEUED)
    .where(_COLUMNS.id == sa.bindparam("name"))
    .values(
        receives=_COLUMNS.receives + 1,
        first_received_at=sa.bindparam("first_at"),
        nonce=sa.bindparam("receipt"),
        visible_at=sa.bindparam("hidden_until"),
    )
)
_DELETE = sa.delete(QUEUED).where(*_RECEIVED)
_SHOW = (
    sa.update(QUEUED)
    .where(*_RECEIVED, _COLUMNS.visible_at > _NOW)
    .values(visible_at=sa.bindparam("shown_at"))
)
_NEXT = sa.select(sa.func.min(_COLUMNS.visible_at)).where(_OF)


def _number_where(*conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    return sa.func.coalesce(sa.func.sum(sa.case((sa.and_(*conditions), 1), else_=0)), 0)


_IS_HIDDEN = _COLUMNS.visible_at > _NOW
_COUNTS = sa.select(
    _number_where(_COLUMNS.visible_at <= _NOW),
    _number_where(_IS_HIDDEN, _COLUMNS.receives > 0),
    _number_where(_IS_HIDDEN, _COLUMNS.receives == 0),
).where(_OF, _COLUMNS.sent_at > _SENT_UNTIL)


class InvalidHandleError(ValueError):
    """The text is not a valid receipt handle."""


class NotInFlightError(Exception):
    """No client has received the message at present."""


class NewMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message to send to the queue `queue_arn`."""

    id: str
    queue_arn: str
    body: str
    sent_at: float
    visible_at: float
    sender: str
    attributes: Mapping[str, AttributeValue] = msgspec.field(default_factory=dict)


class QueueCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a queue's messages: visible, in flight, and delayed."""

    visible: int
    in_flight: int
    delayed: int


class QueueMessages:
    """The messages of every queue, in `tables`."""

    def __init__(self, tables: MessageTables) -> None:
        self._tables = tables

    def send(self, messages: Sequence[NewMessage]) -> None:
        """Add `messages`. They are durable on return."""
        with self._tables.changing(adds=True) as connection:
            insert(connection, messages)

    def receive(
        self,
        queue_arn: str,
        now: float,
        *,
        most: int,
        visibility_s: float,
        sent_after: float,
        dead_letters: DeadLetterRule | None,
    ) -> Sequence[QueuedMessage]:
        """Receive up to `most` messages, which no other client receives for `visibility_s`."""
        with self._tables.changing() as connection:
            place = {"arn": queue_arn, "now": now}
            connection.execute(_DROP, {"arn": queue_arn, "sent_until": sent_after})
            if dead_letters is not None:
                to, receives = dead_letters.queue_arn, dead_letters.most_receives
                connection.execute(_DEAD, {**place, "dead_letters": to, "most": receives})
            in_flight = connection.execute(_IN_FLIGHT, place).scalar_one()
            limit = max(0, min(most, MAX_IN_FLIGHT - in_flight))
            rows = connection.execute(_VISIBLE, {**place, "most": limit}).all()
            return [_to_queued_message(connection, row, now, visibility_s) for row in rows]

    def delete(self, queue_arn: str, handle: str) -> None:
        """Delete the message of `handle`, unless it has been received again since."""
        name, nonce = parse_handle(handle)
        with self._tables.changing() as connection:
            connection.execute(_DELETE, {"name": name, "arn": queue_arn, "receipt": nonce})

    def change_visibility(self, queue_arn: str, handle: str, visible_at: float, now: float) -> None:
        """Make a received message visible again at `visible_at`. Raises NotInFlightError."""
        name, nonce = parse_handle(handle)
        with self._tables.changing() as connection:
            receipt = {"name": name, "arn": queue_arn, "receipt": nonce}
            changed = connection.execute(_SHOW, {**receipt, "now": now, "shown_at": visible_at})
            if changed.rowcount == 0:
                raise NotInFlightError

    def counts(self, queue_arn: str, now: float, sent_after: float) -> QueueCounts:
        """The number of messages by state."""
        with self._tables.reading() as connection:
            wanted = {"arn": queue_arn, "now": now, "sent_until": sent_after}
            row = connection.execute(_COUNTS, wanted).one()
        return QueueCounts(visible=row[0], in_flight=row[1], delayed=row[2])

    def next_visible_at(self, queue_arn: str) -> float | None:
        """When the first message becomes visible, or None without messages."""
        with self._tables.reading() as connection:
            found: float | None = connection.execute(_NEXT, {"arn": queue_arn}).scalar_one()
        return found

    def drop(self, queue_arn: str, sent_until: float) -> None:
        """Delete the queue's messages that were sent by then."""
        with self._tables.changing() as connection:
            connection.execute(_DROP, {"arn": queue_arn, "sent_until": sent_until})

    def queues(self) -> Sequence[str]:
        """The queues that have messages."""
        with self._tables.reading() as connection:
            return [row.queue for row in connection.execute(sa.select(_COLUMNS.queue).distinct())]


def insert(connection: Connection, messages: Sequence[NewMessage]) -> None:
    """Add `messages` in the caller's transaction."""
    rows = [
        {
            "id": message.id,
            "queue": message.queue_arn,
            "body": message.body,
            "attributes": msgspec.json.encode(dict(message.attributes)).decode(),
            "sender": message.sender,
            "sent_at": message.sent_at,
            "visible_at": message.visible_at,
            "receives": 0,
            "first_received_at": 0.0,
            "nonce": "",
        }
        for message in messages
    ]
    if rows:
        connection.execute(_ADD, rows)


def build_handle(name: str, nonce: str) -> str:
    """Build the receipt handle of one receipt of a message."""
    return base64.urlsafe_b64encode(json.dumps([name, nonce]).encode()).decode()


def parse_handle(handle: str) -> tuple[str, str]:
    """Return message and nonce of a receipt handle. Raises InvalidHandleError."""
    try:
        content = json.loads(base64.b64decode(handle, altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        content = None
    if (
        not isinstance(content, list)
        or len(content) != 2
        or not all(isinstance(it, str) for it in content)
    ):
        raise InvalidHandleError(handle)
    return content[0], content[1]


def _to_queued_message(
    connection: Connection, row: Row[Any], now: float, visibility_s: float
) -> QueuedMessage:
    nonce = secrets.token_urlsafe(NONCE_BYTES)
    first = row.first_received_at or now
    receipt = {"first_at": first, "receipt": nonce, "hidden_until": now + visibility_s}
    connection.execute(_RECEIVE, {"name": row.id, **receipt})
    return QueuedMessage(
        id=row.id,
        body=row.body,
        attributes=decode(row.attributes, dict[str, AttributeValue]),
        sent_at=row.sent_at,
        receives=row.receives + 1,
        first_received_at=first,
        handle=build_handle(row.id, nonce),
        sender=row.sender,
    )


MAX_WATCHERS = 1000


class Arrivals:
    """Events for clients that wait on a queue. `announce` may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self._count = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_full(self) -> bool:
        """Whether the maximum number of clients wait."""
        return self._count >= MAX_WATCHERS

    @contextmanager
    def watching(self, queue_arn: str) -> Iterator[asyncio.Event]:
        """An event of the running loop that is set when the queue gets a message."""
        event = asyncio.Event()
        with self._lock:
            self._loop = asyncio.get_running_loop()
            self._watchers.setdefault(queue_arn, set()).add(event)
            self._count += 1
        try:
            yield event
        finally:
            with self._lock:
                self._count -= 1
                watchers = self._watchers[queue_arn]
                watchers.discard(event)
                if not watchers:
                    del self._watchers[queue_arn]

    def announce(self, queue_arn: str) -> None:
        """Wake every watcher of the queue."""
        with self._lock:
            events, loop = list(self._watchers.get(queue_arn, ())), self._loop
        for event in events:
            if loop is not None and not loop.is_closed():
                loop.call_soon_threadsafe(event.set)
