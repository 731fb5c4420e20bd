"""Control's data, in files of its home or in the store's database, and the collection of logs.

docs/cluster.md, "The data of a home", lists every file of a home.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import msgspec
import sqlalchemy as sa

from hostelry.audit.trail import AuditTrail
from hostelry.base.clock import Clock
from hostelry.base.concurrency import run_periodically
from hostelry.base.errors import RetryableError
from hostelry.base.json import decode
from hostelry.control.audit_opening import open_platform_trail
from hostelry.domain.load import LoadReceipt
from hostelry.home.home import Credentials, Home, UpConfig
from hostelry.home.home_paths import shown_paths
from hostelry.logs.collector import Collector, LogFiles
from hostelry.logs.retention import Retention, RetentionLimits
from hostelry.logs.store import LogStore
from hostelry.messaging.tables import MessageTables
from hostelry.metrics.persistence.durable import DurableMetrics
from hostelry.metrics.persistence.journal import PartKind, PartsOf
from hostelry.metrics.persistence.shared import SharedMetrics
from hostelry.store.database import Database
from hostelry.store.records import State
from hostelry.store.sqlite import SqliteFile
from hostelry.store.tables import OPAQUE_TEXT

LOG = logging.getLogger(__name__)
RECEIPTS = "load-reports"
LOOK_EVERY_S = 1.0
SWEEP_EVERY_S = 5.0
METADATA = sa.MetaData()
PARTS = sa.Table(
    "metric_part",
    METADATA,
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("part", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
MARKS = sa.Table(
    "metric_mark",
    METADATA,
    sa.Column("name", OPAQUE_TEXT, primary_key=True),
    sa.Column("value", sa.LargeBinary, nullable=False),
)


class MetricRows:
    """`JournalRows` in `database`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.place = database.place
        database.create(METADATA)

    def list_parts(self) -> Sequence[PartsOf]:
        """Every segment and snapshot, in ascending order of their numbers."""
        kind, number = PARTS.c.kind, PARTS.c.number
        size = sa.cast(sa.func.sum(sa.func.length(PARTS.c.body)), sa.BigInteger)
        query = sa.select(kind, number, sa.func.count(), size).group_by(kind, number)
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(number)).all()
        return [
            PartsOf(kind=PartKind(kind), number=number, num_parts=parts, size_bytes=size)
            for kind, number, parts, size in rows
        ]

    def read_parts(self, kind: PartKind, number: int, first: int, most: int) -> Sequence[bytes]:
        """The bytes of up to `most` parts, in order, starting with part `first`."""
        query = sa.select(PARTS.c.body).where(*_is(kind, number), PARTS.c.part >= first)
        query = query.order_by(PARTS.c.part).limit(most)
        with self._database.read() as connection:
            return [bytes(row.body) for row in connection.execute(query)]

    def write(
        self, kind: PartKind, number: int, part: int, body: bytes, marks: Mapping[str, bytes]
    ) -> None:
        """Write a part and `marks`, in place of the part of this number and of equal marks."""
        row = {"kind": kind, "number": number, "part": part, "body": body}
        with self._database.write() as connection:
            connection.execute(sa.delete(PARTS).where(*_is(kind, number), PARTS.c.part == part))
            connection.execute(sa.insert(PARTS), row)
            if marks:
                connection.execute(sa.delete(MARKS).where(MARKS.c.name.in_(marks)))
                kept = [{"name": name, "value": value} for name, value in marks.items()]
                connection.execute(sa.insert(MARKS), kept)

    def marks(self) -> Mapping[str, bytes]:
        """The last value of each mark."""
        with self._database.read() as connection:
            return {row.name: bytes(row.value) for row in connection.execute(sa.select(MARKS))}

    def finish_snapshot(self, number: int) -> None:
        """Make the unfinished snapshot valid, and remove all older parts."""
        finished = sa.update(PARTS).where(*_is(PartKind.UNFINISHED, number))
        with self._database.write() as connection:
            connection.execute(sa.delete(PARTS).where(PARTS.c.number < number))
            connection.execute(finished.values(kind=PartKind.SNAPSHOT))

    def remove_unfinished(self) -> None:
        """Remove the parts of unfinished snapshots."""
        with self._database.write() as connection:
            connection.execute(sa.delete(PARTS).where(PARTS.c.kind == PartKind.UNFINISHED))


def _is(kind: PartKind, number: int) -> tuple[sa.ColumnElement[bool], ...]:
    return PARTS.c.kind == kind, PARTS.c.number == number


class ControlData(msgspec.Struct, frozen=True, kw_only=True):
    """The records of the store, and control's other data. `close` closes all but the store."""

    state: State
    messages: MessageTables
    metrics: DurableMetrics | SharedMetrics
    audit: AuditTrail
    close: Callable[[], None]
    receipts: Mapping[str, LoadReceipt] = msgspec.field(
        default_factory=dict
    )  # kept by an earlier control
    keep_receipts: Callable[[Mapping[str, LoadReceipt]], None] | None = None


def open_data(
    home: Home,
    config: UpConfig,
    credentials: Credentials,
    state: State,
    database: Database,
    clock: Clock,
) -> ControlData:
    """Open control's data. `database` is the store's."""
    metrics: DurableMetrics | SharedMetrics
    trail = open_platform_trail(home, config, credentials, database, clock)
    if config.store_url is not None:
        metrics = shared = SharedMetrics(
            MetricRows(database), clock, max_bytes=config.metrics_bytes
        )
        return ControlData(
            state=state,
            messages=MessageTables(database),
            metrics=metrics,
            audit=trail,
            close=partial(_close_all, trail, metrics),
            receipts=load_receipts(shared),
            keep_receipts=lambda it: shared.mark(RECEIPTS, msgspec.json.encode(it)),
        )
    metrics = DurableMetrics(home.metrics, clock, max_bytes=config.metrics_bytes)
    messages = SqliteFile(home.messages)
    return ControlData(
        state=state,
        messages=MessageTables(messages),
        metrics=metrics,
        audit=trail,
        close=partial(_close_all, trail, metrics, messages),
    )


class _Closable(Protocol):
    def close(self) -> None:
        """Close it."""
        ...


def _close_all(*parts: _Closable) -> None:
    for part in parts:
        part.close()


def load_receipts(metrics: SharedMetrics) -> Mapping[str, LoadReceipt]:
    """The receipts that an earlier control kept. Empty if they cannot be read."""
    try:
        kept = metrics.marks().get(RECEIPTS)
        return {} if kept is None else decode(kept, dict[str, LoadReceipt])
    except (RetryableError, msgspec.MsgspecError) as error:
        LOG.warning("reports of load that are sent again may count twice: %s", error)
        return {}


class LogCollection:
    """The store of log events, and the tasks that collect and remove events.

    A failure is logged and does not end control. Meanwhile the output of copies stays in files.
    Call `run`, cancel it, then call `close`.
    """

    def __init__(self, home: Home, config: UpConfig, clock: Clock) -> None:
        self._clock = clock
        self.store = LogStore(home.log_events)
        shown = shown_paths(home, os.environ).text
        self._collector = Collector(self.store, LogFiles(home.instances).find, shown)
        limits = RetentionLimits(days=config.logs_days, max_bytes=config.logs_bytes)
        self._retention = Retention(self.store, limits)

    async def run(self) -> None:
        """Collect and remove until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for name, step, pause_s in (
                ("collecting output of copies", self._look, LOOK_EVERY_S),
                ("removing old log events", self._sweep, SWEEP_EVERY_S),
            ):
                tasks.create_task(run_periodically(name, step, pause_s), name=name)

    def close(self) -> None:
        """Close the file."""
        self.store.close()

    async def _look(self) -> None:
        await asyncio.to_thread(self._collector.look, self._clock.now())

    async def _sweep(self) -> None:
        await asyncio.to_thread(self._retention.sweep, int(self._clock.now() * 1000))


@contextlib.asynccontextmanager
async def collect_logs(logs: LogCollection) -> AsyncIterator[LogCollection]:
    """Run `logs` for the block, then close it."""
    task = asyncio.create_task(logs.run())
    try:
        yield logs
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        logs.close()
