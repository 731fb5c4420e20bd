"""Calls that wait to be made, on disk beside the messages of topics and queues."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from hostelry.base.json import decode
from hostelry.domain.event_rule import EventCall
from hostelry.messaging.message_file import MessageFile
from hostelry.messaging.queue_messages import NewMessage, insert

SEEN_S = 86_400.0  # an event that is reported again within this is known
MAX_WAITING = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCall:
    """A call as it is kept: `attempts` have failed; `is_begun` where one may have been made."""

    call: EventCall
    attempts: int
    is_begun: bool


class TooManyCallsError(Exception):
    """So many calls wait that no further event is taken."""


class CallRows:
    """The calls that wait, in `file`; `on_new` is called after each event that asks for one."""

    def __init__(self, file: MessageFile, on_new: Callable[[], None] = lambda: None) -> None:
        self._file = file
        self._on_new = on_new

    def accept(self, event_id: str, calls: Sequence[EventCall], now: float) -> bool:
        """Keep the calls of an event; False where it is known. Once this returns it is durable.

        Raises TooManyCallsError.
        """
        with self._file.changing(adds=True) as connection:
            made = connection.execute(
                "INSERT OR IGNORE INTO event_seen VALUES (?, ?)", (event_id, now)
            )
            if made.rowcount == 0:
                return False
            waiting = connection.execute("SELECT COUNT(*) FROM event_call").fetchone()[0]
            if calls and waiting >= MAX_WAITING:
                raise TooManyCallsError(f"{waiting} calls of events wait")
            connection.executemany(
                "INSERT OR IGNORE INTO event_call VALUES (?, ?, 0, 0, ?)",
                [(it.id, msgspec.json.encode(it).decode(), now) for it in calls],
            )
        if calls:
            self._on_new()
        return True

    def due(self, now: float, most: int) -> Sequence[WaitingCall]:
        """Calls to make now, those that wait longest first."""
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT body, attempts, begun FROM event_call WHERE next_at <= ?"
                " ORDER BY next_at, rowid LIMIT ?",
                (now, most),
            ).fetchall()
        return [
            WaitingCall(call=decode(row[0], EventCall), attempts=row[1], is_begun=bool(row[2]))
            for row in rows
        ]

    def next_at(self) -> float | None:
        """The instant of the next call; None where none waits."""
        with self._file.reading() as connection:
            row = connection.execute("SELECT MIN(next_at) FROM event_call").fetchone()
        return None if row[0] is None else float(row[0])

    def begin(self, call: EventCall) -> None:
        """Note that the call is about to be made."""
        with self._file.changing() as connection:
            connection.execute("UPDATE event_call SET begun = 1 WHERE id = ?", (call.id,))

    def postpone(self, call: EventCall, attempts: int, next_at: float) -> None:
        """Make the call again at `next_at`: the last attempt failed, and changed nothing."""
        with self._file.changing() as connection:
            connection.execute(
                "UPDATE event_call SET attempts = ?, next_at = ?, begun = 0 WHERE id = ?",
                (attempts, next_at, call.id),
            )

    def finish(self, call: EventCall, dead_letters: Sequence[NewMessage] = ()) -> None:
        """Forget a call that is over, and queue its dead letter with it."""
        with self._file.changing() as connection:
            insert(connection, dead_letters)
            connection.execute("DELETE FROM event_call WHERE id = ?", (call.id,))

    def sweep(self, now: float) -> None:
        """Forget which events were taken long ago."""
        with self._file.changing() as connection:
            connection.execute("DELETE FROM event_seen WHERE at <= ?", (now - SEEN_S,))
