"""Deliveries under way: messages of topics that a web address or a file has not accepted yet."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hostelry.messaging.message_file import MessageFile
from hostelry.messaging.queue_messages import NewMessage, insert

MAX_WAITING = 10_000  # of one subscription
PUBLISHED_S = 86_400.0  # for which a publication is known, as long as its sender repeats it
MAX_PUBLISHED = 200_000


class RepeatedPublicationError(Exception):
    """The message was published to its topic before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatablePublication:
    """A message that its sender may send again, with the same id."""

    topic_arn: str
    message_id: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDelivery:
    """A message to deliver to a subscription."""

    subscription_arn: str
    message_id: str
    body: str
    headers: Mapping[str, str]
    accepted_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingDelivery:
    """A delivery as it is kept; `attempts` have failed."""

    id: int
    subscription_arn: str
    message_id: str
    body: str
    headers: Mapping[str, str]
    accepted_at: float
    attempts: int


class Deliveries:
    """The deliveries of every subscription, in `file`."""

    def __init__(self, file: MessageFile) -> None:
        self._file = file

    def accept(
        self,
        deliveries: Sequence[NewDelivery],
        queued: Sequence[NewMessage],
        once: RepeatablePublication | None = None,
    ) -> Sequence[NewDelivery]:
        """Keep all in one transaction; the result are those refused: too many wait already.

        Raises RepeatedPublicationError, and keeps nothing, where `once` is known already.
        """
        refused = []
        with self._file.changing(adds=True) as connection:
            if once is not None:
                _note(connection, once)
            insert(connection, queued)
            for new in deliveries:
                waiting = connection.execute(
                    "SELECT COUNT(*) FROM delivery WHERE subscription = ?", (new.subscription_arn,)
                ).fetchone()[0]
                if waiting >= MAX_WAITING:
                    refused.append(new)
                    continue
                connection.execute(
                    "INSERT INTO delivery (subscription, message_id, body, headers, accepted_at,"
                    " attempts, next_at) VALUES (?, ?, ?, ?, ?, 0, ?)",
                    (
                        new.subscription_arn,
                        new.message_id,
                        new.body,
                        json.dumps(dict(new.headers)),
                        new.accepted_at,
                        new.accepted_at,
                    ),
                )
        return refused

    def forget_publications(self, now: float) -> None:
        """Forget which messages were published long ago, and the oldest of too many."""
        with self._file.changing() as connection:
            connection.execute("DELETE FROM published WHERE at <= ?", (now - PUBLISHED_S,))
            connection.execute(
                "DELETE FROM published WHERE rowid IN"
                " (SELECT rowid FROM published ORDER BY at DESC LIMIT -1 OFFSET ?)",
                (MAX_PUBLISHED,),
            )

    def subscriptions(self) -> Sequence[str]:
        """The subscriptions that deliveries wait for."""
        with self._file.reading() as connection:
            rows = connection.execute("SELECT DISTINCT subscription FROM delivery").fetchall()
        return [row[0] for row in rows]

    def due(self, subscription_arn: str, now: float, most: int) -> Sequence[WaitingDelivery]:
        """Deliveries to attempt now, those that wait longest first."""
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT id, message_id, body, headers, accepted_at, attempts FROM delivery"
                " WHERE subscription = ? AND next_at <= ? ORDER BY next_at, id LIMIT ?",
                (subscription_arn, now, most),
            ).fetchall()
        return [
            WaitingDelivery(
                id=row[0],
                subscription_arn=subscription_arn,
                message_id=row[1],
                body=row[2],
                headers=json.loads(row[3]),
                accepted_at=row[4],
                attempts=row[5],
            )
            for row in rows
        ]

    def next_at(self, subscription_arn: str) -> float | None:
        """The instant of the next attempt; None where no delivery waits."""
        with self._file.reading() as connection:
            row = connection.execute(
                "SELECT MIN(next_at) FROM delivery WHERE subscription = ?", (subscription_arn,)
            ).fetchone()
        return None if row[0] is None else float(row[0])

    def postpone(self, delivery: WaitingDelivery, next_at: float) -> None:
        """Count a failed attempt, and attempt again at `next_at`."""
        with self._file.changing() as connection:
            connection.execute(
                "UPDATE delivery SET attempts = ?, next_at = ? WHERE id = ?",
                (delivery.attempts + 1, next_at, delivery.id),
            )

    def finish(self, delivery: WaitingDelivery, dead_letters: Sequence[NewMessage] = ()) -> None:
        """Forget a delivery that succeeded or failed, and queue its dead letter with it."""
        with self._file.changing() as connection:
            insert(connection, dead_letters)
            connection.execute("DELETE FROM delivery WHERE id = ?", (delivery.id,))

    def drop(self, subscription_arn: str) -> None:
        """Forget every delivery of a subscription."""
        with self._file.changing() as connection:
            connection.execute("DELETE FROM delivery WHERE subscription = ?", (subscription_arn,))


def _note(connection: sqlite3.Connection, once: RepeatablePublication) -> None:
    noted = connection.execute(
        "INSERT OR IGNORE INTO published VALUES (?, ?, ?)",
        (once.topic_arn, once.message_id, once.at),
    )
    if noted.rowcount == 0:
        raise RepeatedPublicationError(once.message_id)
