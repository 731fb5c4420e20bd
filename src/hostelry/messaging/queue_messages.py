"""Messages of queues: sent, received for a while, deleted."""

import base64
import json
import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from hostelry.base.json import decode
from hostelry.domain.queue import AttributeValue, DeadLetterRule, QueuedMessage
from hostelry.messaging.message_file import MessageFile

MAX_IN_FLIGHT = 120_000
NONCE_BYTES = 18


class InvalidHandleError(ValueError):
    """The text is no receipt handle."""


class NotInFlightError(Exception):
    """The message is not received by any client now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message to send to the queue `queue_arn`."""

    id: str
    queue_arn: str
    body: str
    sent_at: float
    visible_at: float
    sender: str
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """Messages of a queue: to be received, received and not yet deleted, delayed."""

    visible: int
    in_flight: int
    delayed: int


class QueueMessages:
    """The messages of every queue, in `file`."""

    def __init__(self, file: MessageFile) -> None:
        self._file = file

    def send(self, messages: Sequence[NewMessage]) -> None:
        """Keep `messages`; once this returns they survive the process."""
        with self._file.changing(adds=True) as connection:
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
        """Up to `most` messages, which no other client receives for `visibility_s`."""
        with self._file.changing() as connection:
            connection.execute(
                "DELETE FROM queued WHERE queue = ? AND sent_at <= ?", (queue_arn, sent_after)
            )
            if dead_letters is not None:
                connection.execute(
                    "UPDATE queued SET queue = ?, visible_at = ? WHERE queue = ? AND"
                    " visible_at <= ? AND receives >= ?",
                    (dead_letters.queue_arn, now, queue_arn, now, dead_letters.most_receives),
                )
            in_flight = _count(connection, queue_arn, "receives > 0 AND visible_at > ?", now)
            rows = connection.execute(
                "SELECT id, body, attributes, sender, sent_at, receives, first_received_at"
                " FROM queued WHERE queue = ? AND visible_at <= ? ORDER BY visible_at LIMIT ?",
                (queue_arn, now, max(0, min(most, MAX_IN_FLIGHT - in_flight))),
            ).fetchall()
            return [_received(connection, row, now, visibility_s) for row in rows]

    def delete(self, queue_arn: str, handle: str) -> None:
        """Delete the message that was received with `handle`; none where it was received again."""
        name, nonce = parts_of(handle)
        with self._file.changing() as connection:
            connection.execute(
                "DELETE FROM queued WHERE id = ? AND queue = ? AND nonce = ?",
                (name, queue_arn, nonce),
            )

    def change_visibility(self, queue_arn: str, handle: str, visible_at: float, now: float) -> None:
        """Show a received message again at `visible_at`; raises NotInFlightError."""
        name, nonce = parts_of(handle)
        with self._file.changing() as connection:
            changed = connection.execute(
                "UPDATE queued SET visible_at = ? WHERE id = ? AND queue = ? AND nonce = ?"
                " AND visible_at > ?",
                (visible_at, name, queue_arn, nonce, now),
            )
            if changed.rowcount == 0:
                raise NotInFlightError

    def counts(self, queue_arn: str, now: float, sent_after: float) -> QueueCounts:
        """The number of messages by state."""
        with self._file.reading() as connection:
            row = connection.execute(
                "SELECT COALESCE(SUM(visible_at <= :now), 0),"
                " COALESCE(SUM(visible_at > :now AND receives > 0), 0),"
                " COALESCE(SUM(visible_at > :now AND receives = 0), 0)"
                " FROM queued WHERE queue = :queue AND sent_at > :after",
                {"now": now, "queue": queue_arn, "after": sent_after},
            ).fetchone()
        return QueueCounts(visible=row[0], in_flight=row[1], delayed=row[2])

    def next_visible_at(self, queue_arn: str) -> float | None:
        """When the first message is to be received; None where there is none."""
        with self._file.reading() as connection:
            row = connection.execute(
                "SELECT MIN(visible_at) FROM queued WHERE queue = ?", (queue_arn,)
            ).fetchone()
        return None if row[0] is None else float(row[0])

    def drop(self, queue_arn: str, sent_until: float) -> None:
        """Delete the queue's messages that were sent until then."""
        with self._file.changing() as connection:
            connection.execute(
                "DELETE FROM queued WHERE queue = ? AND sent_at <= ?", (queue_arn, sent_until)
            )

    def queues(self) -> Sequence[str]:
        """The queues that have messages."""
        with self._file.reading() as connection:
            rows = connection.execute("SELECT DISTINCT queue FROM queued").fetchall()
        return [row[0] for row in rows]


def insert(connection: sqlite3.Connection, messages: Sequence[NewMessage]) -> None:
    """Add `messages`, in a transaction of the caller's."""
    connection.executemany(
        "INSERT INTO queued VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0, '')",
        [
            (
                message.id,
                message.queue_arn,
                message.body,
                msgspec.json.encode(dict(message.attributes)).decode(),
                message.sender,
                message.sent_at,
                message.visible_at,
            )
            for message in messages
        ],
    )


def handle_of(name: str, nonce: str) -> str:
    """The receipt handle of one receipt of a message."""
    return base64.urlsafe_b64encode(json.dumps([name, nonce]).encode()).decode()


def parts_of(handle: str) -> tuple[str, str]:
    """Message and nonce of a receipt handle; raises InvalidHandleError."""
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


def _count(connection: sqlite3.Connection, queue_arn: str, where: str, now: float) -> int:
    statement = f"SELECT COUNT(*) FROM queued WHERE queue = ? AND {where}"
    return int(connection.execute(statement, (queue_arn, now)).fetchone()[0])


def _received(
    connection: sqlite3.Connection, row: Sequence[object], now: float, visibility_s: float
) -> QueuedMessage:
    name, body, attributes, sender, sent_at, receives, first_at = row
    nonce = secrets.token_urlsafe(NONCE_BYTES)
    first = float(str(first_at)) or now
    connection.execute(
        "UPDATE queued SET receives = receives + 1, first_received_at = ?, nonce = ?,"
        " visible_at = ? WHERE id = ?",
        (first, nonce, now + visibility_s, name),
    )
    return QueuedMessage(
        id=str(name),
        body=str(body),
        attributes=decode(str(attributes), dict[str, AttributeValue]),
        sent_at=float(str(sent_at)),
        receives=int(str(receives)) + 1,
        first_received_at=first,
        handle=handle_of(str(name), nonce),
        sender=str(sender),
    )
