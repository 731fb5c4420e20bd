"""Copies tables from one database to another, and verifies that both are equal.

Rows are copied in the caller's transactions. The target is empty until these are committed.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from sqlalchemy import Connection, MetaData, Table, delete, func, insert, inspect, select, text

from hostelry.base.errors import TerminalError

ROWS_AT_ONCE = 500
PAGED = {"yield_per": ROWS_AT_ONCE}
DIGEST_BITS = 256
Report = Callable[[str, int, int], None]  # table, rows copied so far, rows in the source


class CopiedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A copied table: the number of its rows, and a digest of the rows in any order."""

    name: str
    num_rows: int
    digest: str


def copy_tables(
    source: Connection, target: Connection, metadata: MetaData, report: Report
) -> list[CopiedTable]:
    """Replace the rows of every target table by the source's rows. The source may lack tables.

    Raises TerminalError if the target's rows differ from the source's rows afterwards.
    """
    copied = []
    for table in reversed(metadata.sorted_tables):
        target.execute(delete(table))
    for table in metadata.sorted_tables:
        rows = _rows(source, table, report)
        read = _Fingerprint()
        while page := [dict(row) for _, row in zip(range(ROWS_AT_ONCE), rows, strict=False)]:
            for row in page:
                read.add(row)
            target.execute(insert(table), page)
        _continue_numbers(target, table)
        copied.append(_check_copied(target, table, read))
    return copied


def has_rows(connection: Connection, metadata: MetaData, apart_from: Table) -> bool:
    """True if any table except `apart_from` has a row. Tables may be missing."""
    found = set(inspect(connection).get_table_names())
    return any(
        connection.execute(select(table.c[0]).limit(1)).first() is not None
        for table in metadata.sorted_tables
        if table is not apart_from and table.name in found
    )


class _Fingerprint:
    """The number of rows, and a sum of their digests, which does not depend on the order."""

    def __init__(self) -> None:
        self.num_rows = 0
        self._sum = 0

    def add(self, row: dict[str, Any]) -> None:
        """Include one row."""
        content = msgspec.msgpack.encode(list(row.values()))
        self.num_rows += 1
        self._sum += int.from_bytes(hashlib.sha256(content).digest(), "big")

    @property
    def digest(self) -> str:
        return f"{self._sum % (1 << DIGEST_BITS):064x}"


def _rows(source: Connection, table: Table, report: Report) -> Iterator[dict[str, Any]]:
    if not inspect(source).has_table(table.name):
        return
    total = int(source.execute(select(func.count()).select_from(table)).scalar_one())
    report(table.name, 0, total)
    found = source.execute(select(table), execution_options=PAGED)
    for number, row in enumerate(found.mappings(), start=1):
        yield dict(row)
        if number % ROWS_AT_ONCE == 0 or number == total:
            report(table.name, number, total)


def _check_copied(target: Connection, table: Table, read: _Fingerprint) -> CopiedTable:
    written = _Fingerprint()
    found = target.execute(select(table), execution_options=PAGED)
    for row in found.mappings():
        written.add(dict(row))
    if (written.num_rows, written.digest) != (read.num_rows, read.digest):
        raise TerminalError(
            f"the copy of {table.name} is not what was read ({read.num_rows} rows read,"
            f" {written.num_rows} written); nothing was changed"
        )
    return CopiedTable(name=table.name, num_rows=read.num_rows, digest=read.digest)


def _continue_numbers(target: Connection, table: Table) -> None:
    """Have PostgreSQL number new rows after the copied rows, as SQLite does by default."""
    column = table.autoincrement_column
    if target.dialect.name != "postgresql" or column is None:
        return
    target.execute(
        text(
            "SELECT setval(pg_get_serial_sequence(:table, :column),"
            f' (SELECT coalesce(max("{column.name}"), 0) + 1 FROM "{table.name}"), false)'
            " WHERE pg_get_serial_sequence(:table, :column) IS NOT NULL"
        ),
        {"table": table.name, "column": column.name},
    )
