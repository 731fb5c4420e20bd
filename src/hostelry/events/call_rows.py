"""Calls that wait to be made, in the database of topics and queues."""

from collections.abc import Callable, Sequence

import msgspec
import sqlalchemy as sa

from hostelry.base.json import decode
from hostelry.domain.event_rule import EventCall
from hostelry.messaging.queue_messages import NewMessage, insert
from hostelry.messaging.tables import EVENT_CALLS, EVENTS_SEEN, MessageTables
from hostelry.store.tables import insert_once

SEEN_S = 86_400.0  # an event that is reported again within this is known
MAX_WAITING = 1_000_000
# Made once: to build a statement takes longer than to carry it out.
_THIS = EVENT_CALLS.c.id == sa.bindparam("name")
_COUNT = sa.select(sa.func.count()).select_from(EVENT_CALLS)
_DUE = (
    sa.select(EVENT_CALLS)
    .where(EVENT_CALLS.c.next_at <= sa.bindparam("now"))
    .order_by(EVENT_CALLS.c.next_at, EVENT_CALLS.c.id)
    .limit(sa.bindparam("most"))
)
_NEXT = sa.select(sa.func.min(EVENT_CALLS.c.next_at))
_BEGIN = sa.update(EVENT_CALLS).where(_THIS).values(begun=1)
_POSTPONE = (
    sa.update(EVENT_CALLS)
    .where(_THIS)
    .values(attempts=sa.bindparam("failed"), next_at=sa.bindparam("again_at"), begun=0)
)
_FORGET = sa.delete(EVENT_CALLS).where(_THIS)


class WaitingCall(msgspec.Struct, frozen=True, kw_only=True):
    """A stored call. `attempts` have failed. `is_begun`: an attempt may have been made."""

    call: EventCall
    attempts: int
    is_begun: bool


class TooManyCallsError(Exception):
    """Too many calls wait: no further event is accepted."""


class CallRows:
    """The waiting calls, in `tables`. `on_new` is called after each event with calls."""

    def __init__(self, tables: MessageTables, on_new: Callable[[], None] = lambda: None) -> None:
        self._tables = tables
        self._on_new = on_new

    def accept(self, event_id: str, calls: Sequence[EventCall], now: float) -> bool:
        """Store the calls of an event, durably. False if the event is known.

        Raises TooManyCallsError.
        """
        with self._tables.changing(adds=True) as connection:
            seen, add = (insert_once(it, connection) for it in (EVENTS_SEEN, EVENT_CALLS))
            made = connection.execute(seen, {"id": event_id, "at": now})
            if made.rowcount == 0:
                return False
            waiting = connection.execute(_COUNT).scalar_one()
            if calls and waiting >= MAX_WAITING:
                raise TooManyCallsError(f"{waiting} calls of events wait")
            new = {"attempts": 0, "begun": 0, "next_at": now}
            for call in calls:
                body = msgspec.json.encode(call).decode()
                connection.execute(add, {"id": call.id, "body": body, **new})
        if calls:
            self._on_new()
        return True

    def due(self, now: float, most: int) -> Sequence[WaitingCall]:
        """Calls to make now, those that wait longest first."""
        with self._tables.reading() as connection:
            rows = connection.execute(_DUE, {"now": now, "most": most}).all()
        return [
            WaitingCall(
                call=decode(row.body, EventCall), attempts=row.attempts, is_begun=bool(row.begun)
            )
            for row in rows
        ]

    def next_at(self) -> float | None:
        """The instant of the next call, or None if no call waits."""
        with self._tables.reading() as connection:
            found: float | None = connection.execute(_NEXT).scalar_one()
        return found

    def begin(self, call: EventCall) -> None:
        """Note that the call is about to be made."""
        with self._tables.changing() as connection:
            connection.execute(_BEGIN, {"name": call.id})

    def postpone(self, call: EventCall, attempts: int, next_at: float) -> None:
        """Make the call again at `next_at`: the last attempt failed, and changed nothing."""
        with self._tables.changing() as connection:
            later = {"failed": attempts, "again_at": next_at}
            connection.execute(_POSTPONE, {"name": call.id, **later})

    def finish(self, call: EventCall, dead_letters: Sequence[NewMessage] = ()) -> None:
        """Forget a call that is over, and queue its dead letter with it."""
        with self._tables.changing() as connection:
            insert(connection, dead_letters)
            connection.execute(_FORGET, {"name": call.id})

    def sweep(self, now: float) -> None:
        """Forget which events were taken long ago."""
        with self._tables.changing() as connection:
            connection.execute(sa.delete(EVENTS_SEEN).where(EVENTS_SEEN.c.at <= now - SEEN_S))
