"""The metrics' journal as rows of a database."""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from hostelry.metrics.persistence.journal_rows import PartKind, PartsOf
from hostelry.store.columns import OPAQUE_TEXT
from hostelry.store.database import Database

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

    def found(self) -> Sequence[PartsOf]:
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

    def read(self, kind: PartKind, number: int, first: int, most: int) -> Sequence[bytes]:
        """The bytes of up to `most` parts from `first` on, in their order."""
        query = sa.select(PARTS.c.body).where(*_is(kind, number), PARTS.c.part >= first)
        query = query.order_by(PARTS.c.part).limit(most)
        with self._database.read() as connection:
            return [bytes(row.body) for row in connection.execute(query)]

    def write(
        self, kind: PartKind, number: int, part: int, body: bytes, marks: Mapping[str, bytes]
    ) -> None:
        """Keep a part, in place of one of that number, and `marks`, each in place of its last."""
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
        """Make the unfinished snapshot one that is read, and remove whatever is older."""
        finished = sa.update(PARTS).where(*_is(PartKind.UNFINISHED, number))
        with self._database.write() as connection:
            connection.execute(sa.delete(PARTS).where(PARTS.c.number < number))
            connection.execute(finished.values(kind=PartKind.SNAPSHOT))

    def remove_unfinished(self) -> None:
        """Remove the parts of snapshots that were not finished."""
        with self._database.write() as connection:
            connection.execute(sa.delete(PARTS).where(PARTS.c.kind == PartKind.UNFINISHED))


def _is(kind: PartKind, number: int) -> tuple[sa.ColumnElement[bool], ...]:
    return PARTS.c.kind == kind, PARTS.c.number == number
