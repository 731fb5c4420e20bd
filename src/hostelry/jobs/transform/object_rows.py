"""The rows of transform jobs' objects, so that no finished object is done again.

state      becomes        by
--------   ------------   ----------------------------------------------------
waiting    done, failed   `ended`, once its output is written, or has failed

After a kill between an output and its row, the object is done again, with the same key and content.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from hostelry.domain.transform_job import TransformJob
from hostelry.jobs.queue.tables import METADATA
from hostelry.jobs.records.object_keys import InputObject
from hostelry.store.database import Database

WAITING, DONE, FAILED = "waiting", "done", "failed"
AT_ONCE = 500

LISTED = sa.Table(
    "transform_listed",
    METADATA,
    sa.Column("job", sa.Text, primary_key=True),
    sa.Column("created_at", sa.Float, nullable=False),
)
OBJECTS = sa.Table(
    "transform_object",
    METADATA,
    sa.Column("job", sa.Text, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("uri", sa.Text, nullable=False),
    sa.Column("relative", sa.Text, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("records", sa.BigInteger, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Index("transform_object_state", "job", "state", "number"),
)


@dataclass(frozen=True, slots=True)
class NumberedObject:
    """An object of a job. `number` is its place in the list, from 1."""

    number: int
    uri: str
    relative: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectTotals:
    """Sums of a job. `first_failed` is the reason of the first failed object."""

    objects: int
    ended: int
    failed: int
    records: int
    bytes: int
    bytes_total: int
    first_failed: str | None


class ObjectRows:
    """The rows of all jobs. Calls block."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.create(METADATA)

    def is_listed(self, job: str) -> bool:
        """True if all objects of the job are in the file."""
        with self._database.read() as connection:
            return (
                connection.execute(sa.select(LISTED).where(LISTED.c.job == job)).first() is not None
            )

    def forget(self, job: str) -> None:
        """Drop the job's rows."""
        with self._database.write() as connection:
            connection.execute(sa.delete(OBJECTS).where(OBJECTS.c.job == job))
            connection.execute(sa.delete(LISTED).where(LISTED.c.job == job))

    def add(self, job: str, first_number: int, objects: Sequence[InputObject]) -> None:
        """Add objects of an unfinished list."""
        rows = [
            {
                "job": job,
                "number": number,
                "uri": it.uri,
                "relative": it.relative,
                "size_bytes": it.size_bytes or 0,
                "state": WAITING,
                "records": 0,
            }
            for number, it in enumerate(objects, first_number)
        ]
        with self._database.write() as connection:
            connection.execute(sa.insert(OBJECTS), rows)

    def listed(self, job: str, created_at: float) -> None:
        """Mark the list as whole."""
        with self._database.write() as connection:
            connection.execute(sa.insert(LISTED), {"job": job, "created_at": created_at})

    def waiting(self, job: str, after: int) -> list[NumberedObject]:
        """The next waiting objects, whose numbers are above `after`."""
        return self._in_state(job, WAITING, after)

    def done(self, job: str, after: int) -> list[NumberedObject]:
        """The next finished objects, whose numbers are above `after`."""
        return self._in_state(job, DONE, after)

    def _in_state(self, job: str, state: str, after: int) -> list[NumberedObject]:
        chosen = (
            sa.select(OBJECTS.c.number, OBJECTS.c.uri, OBJECTS.c.relative, OBJECTS.c.size_bytes)
            .where(OBJECTS.c.job == job, OBJECTS.c.state == state, OBJECTS.c.number > after)
            .order_by(OBJECTS.c.number)
            .limit(AT_ONCE)
        )
        with self._database.read() as connection:
            return [NumberedObject(*row) for row in connection.execute(chosen)]

    def ended(self, job: str, number: int, records: int, reason: str | None) -> None:
        """Mark an object as done, or as failed for `reason`."""
        state = DONE if reason is None else FAILED
        with self._database.write() as connection:
            connection.execute(
                sa.update(OBJECTS)
                .where(OBJECTS.c.job == job, OBJECTS.c.number == number)
                .values(state=state, records=records, reason=reason)
            )

    def totals(self, job: str) -> ObjectTotals:
        """The sums of a job."""
        size, records = _sum(OBJECTS.c.size_bytes), _sum(OBJECTS.c.records)
        grouped = (
            sa.select(OBJECTS.c.state, sa.func.count(), size, records)
            .where(OBJECTS.c.job == job)
            .group_by(OBJECTS.c.state)
        )
        first = (
            sa.select(OBJECTS.c.reason)
            .where(OBJECTS.c.job == job, OBJECTS.c.state == FAILED)
            .order_by(OBJECTS.c.number)
            .limit(1)
        )
        with self._database.read() as connection:
            by_state = {row[0]: row for row in connection.execute(grouped)}
            failed = connection.execute(first).first()
        ended = [row for state, row in by_state.items() if state != WAITING]
        return ObjectTotals(
            objects=sum(row[1] for row in by_state.values()),
            ended=sum(row[1] for row in ended),
            failed=by_state[FAILED][1] if FAILED in by_state else 0,
            records=sum(row[3] for row in ended),
            bytes=sum(row[2] for row in ended),
            bytes_total=sum(row[2] for row in by_state.values()),
            first_failed=None if failed is None else failed[0],
        )

    def jobs(self) -> list[str]:
        """The jobs that have rows."""
        with self._database.read() as connection:
            found = connection.execute(sa.select(OBJECTS.c.job).distinct())
            return [row[0] for row in found]


def _sum(column: sa.Column[int]) -> sa.ColumnElement[int]:
    """Build a sum as an integer, because PostgreSQL's sum is a decimal number."""
    return sa.cast(sa.func.sum(column), sa.BigInteger)


def row_key(job: TransformJob) -> str:
    """Build the name of a job in the rows. A deleted and recreated job gets another name."""
    return f"{job.arn}@{job.created_at!r}"
