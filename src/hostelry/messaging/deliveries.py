"""Unfinished deliveries: messages of topics that a web address or file has not accepted yet."""

import json
from collections.abc import Mapping, Sequence

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from hostelry.messaging.queue_messages import NewMessage, insert
from hostelry.messaging.tables import DELIVERIES, PUBLISHED, MessageTables
from hostelry.store.tables import insert_once

MAX_WAITING = 10_000  # of one subscription
PUBLISHED_S = 86_400.0  # for this time a repeated publication is recognised
MAX_PUBLISHED = 200_000
# Built once, because building a statement takes longer than running it.
_OF = DELIVERIES.c.subscription == sa.bindparam("arn")
_THIS = DELIVERIES.c.id == sa.bindparam("number")
_COUNT = sa.select(sa.func.count()).select_from(DELIVERIES).where(_OF)
_ADD = sa.insert(DELIVERIES).inline()
_DUE = (
    sa.select(DELIVERIES)
    .where(_OF, DELIVERIES.c.next_at <= sa.bindparam("now"))
    .order_by(DELIVERIES.c.next_at, DELIVERIES.c.id)
    .limit(sa.bindparam("most"))
)
_NEXT = sa.select(sa.func.min(DELIVERIES.c.next_at)).where(_OF)
_POSTPONE = (
    sa.update(DELIVERIES)
    .where(_THIS)
    .values(attempts=sa.bindparam("failed"), next_at=sa.bindparam("again_at"))
)
_FORGET, _DROP = sa.delete(DELIVERIES).where(_THIS), sa.delete(DELIVERIES).where(_OF)


class RepeatedPublicationError(Exception):
    """The message was already published to its topic."""


class RepeatablePublication(msgspec.Struct, frozen=True, kw_only=True):
    """A message that its sender may send again with the same id."""

    topic_arn: str
    message_id: str
    at: float


class NewDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """A message to deliver to a subscription."""

    subscription_arn: str
    message_id: str
    body: str
    headers: Mapping[str, str]
    accepted_at: float


class WaitingDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery in the tables. `attempts` counts the failed attempts."""

    id: int
    subscription_arn: str
    message_id: str
    body: str
    headers: Mapping[str, str]
    accepted_at: float
    attempts: int


class Deliveries:
    """The deliveries of every subscription, in `tables`."""

    def __init__(self, tables: MessageTables) -> None:
        self._tables = tables

    def accept(
        self,
        deliveries: Sequence[NewDelivery],
        queued: Sequence[NewMessage],
        once: RepeatablePublication | None = None,
    ) -> Sequence[NewDelivery]:
        """Add all in one transaction. Returns the deliveries that are refused, if too many wait.

        Raises RepeatedPublicationError, and adds nothing, if `once` is already known.
        """
        refused = []
        with self._tables.changing(adds=True) as connection:
            if once is not None:
                _note(connection, once)
            insert(connection, queued)
            for new in deliveries:
                arn = new.subscription_arn
                if connection.execute(_COUNT, {"arn": arn}).scalar_one() >= MAX_WAITING:
                    refused.append(new)
                else:
                    connection.execute(_ADD, _to_row(new))
        return refused

    def forget_publications(self, now: float) -> None:
        """Forget old publications, and the oldest publications if there are too many."""
        with self._tables.changing() as connection:
            at = PUBLISHED.c.at
            newest = sa.select(at).order_by(at.desc()).offset(MAX_PUBLISHED).limit(1)
            newest_of_too_many = connection.execute(newest).scalar_one_or_none() or 0.0
            past = max(now - PUBLISHED_S, newest_of_too_many)
            connection.execute(sa.delete(PUBLISHED).where(at <= past))

    def subscriptions(self) -> Sequence[str]:
        """The subscriptions that have waiting deliveries."""
        with self._tables.reading() as connection:
            found = connection.execute(sa.select(DELIVERIES.c.subscription).distinct())
            return [row.subscription for row in found]

    def due(self, subscription_arn: str, now: float, most: int) -> Sequence[WaitingDelivery]:
        """The deliveries to attempt now. Those that have waited longest come first."""
        with self._tables.reading() as connection:
            wanted = {"arn": subscription_arn, "now": now, "most": most}
            rows = connection.execute(_DUE, wanted).all()
        return [
            WaitingDelivery(
                id=row.id,
                subscription_arn=subscription_arn,
                message_id=row.message_id,
                body=row.body,
                headers=json.loads(row.headers),
                accepted_at=row.accepted_at,
                attempts=row.attempts,
            )
            for row in rows
        ]

    def next_at(self, subscription_arn: str) -> float | None:
        """The instant of the next attempt, or None if no delivery waits."""
        with self._tables.reading() as connection:
            found: float | None = connection.execute(_NEXT, {"arn": subscription_arn}).scalar_one()
        return found

    def postpone(self, delivery: WaitingDelivery, next_at: float) -> None:
        """Count a failed attempt, and attempt again at `next_at`."""
        with self._tables.changing() as connection:
            later = {"failed": delivery.attempts + 1, "again_at": next_at}
            connection.execute(_POSTPONE, {"number": delivery.id, **later})

    def finish(self, delivery: WaitingDelivery, dead_letters: Sequence[NewMessage] = ()) -> None:
        """Remove a delivery that succeeded or failed for good, and queue its dead letter."""
        with self._tables.changing() as connection:
            insert(connection, dead_letters)
            connection.execute(_FORGET, {"number": delivery.id})

    def drop(self, subscription_arn: str) -> None:
        """Remove all deliveries of a subscription."""
        with self._tables.changing() as connection:
            connection.execute(_DROP, {"arn": subscription_arn})


def _to_row(new: NewDelivery) -> dict[str, object]:
    return {
        "subscription": new.subscription_arn,
        "message_id": new.message_id,
        "body": new.body,
        "headers": json.dumps(dict(new.headers)),
        "accepted_at": new.accepted_at,
        "attempts": 0,
        "next_at": new.accepted_at,
    }


def _note(connection: Connection, once: RepeatablePublication) -> None:
    row = {"topic": once.topic_arn, "id": once.message_id, "at": once.at}
    noted = connection.execute(insert_once(PUBLISHED, connection), row)
    if noted.rowcount == 0:
        raise RepeatedPublicationError(once.message_id)
