"""The store's two tables, and the column types that compare values alike on every database."""

from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import (
    BigInteger,
    Column,
    Dialect,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.types import TypeDecorator

# PostgreSQL's text has no NUL. Pairs that begin with U+0001 keep the order of the characters.
ESCAPES = (("\x01", "\x01\x02"), ("\0", "\x01\x01"))


class EscapedText(TypeDecorator[str]):
    """Text with any character in a column that cannot hold NUL, ordered by code point."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """The text as it is stored."""
        return None if value is None else escape_text(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> str | None:
        """The text as it was given."""
        return None if value is None else unescape_text(value)


def escape_text(text: str) -> str:
    """A text without NUL that sorts as `text` does."""
    if "\x01" not in text and "\0" not in text:
        return text
    for character, pair in ESCAPES:
        text = text.replace(character, pair)
    return text


def unescape_text(text: str) -> str:
    """What `escape_text` was given."""
    if "\x01" not in text:
        return text
    for character, pair in reversed(ESCAPES):
        text = text.replace(pair, character)
    return text


# Kept unchanged and compared by code point, whatever a database's collation is.
OPAQUE_TEXT = Text().with_variant(EscapedText(collation="C"), "postgresql")


METADATA = MetaData()

# A deleted record stays as a tombstone (body NULL) so that watchers see the deletion.
RECORDS = Table(
    "records",
    METADATA,
    Column("kind", OPAQUE_TEXT, primary_key=True),
    Column("account", OPAQUE_TEXT, primary_key=True),
    Column("region", OPAQUE_TEXT, primary_key=True),
    Column("name", OPAQUE_TEXT, primary_key=True),
    Column("revision", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=True),
    Index("records_by_revision", "revision", unique=True),
)

# One row (id 1). Its update is the first statement of every write, which serializes writers
# on every database: revisions become visible in order.
COUNTER = Table(
    "counter",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("revision", BigInteger, nullable=False),
    Column("forgotten", BigInteger, nullable=False),
)


def insert_once(table: sa.Table, connection: sa.Connection) -> sa.Insert:
    """Build an insert of a row, unless it exists. Then `rowcount` of the result is 0."""
    return _insert_once(table, connection.dialect.name)


@cache  # to build a statement takes longer than to carry it out
def _insert_once(table: sa.Table, dialect: str) -> sa.Insert:
    made: sa.Insert
    if dialect == "postgresql":
        # Imported late: a platform on SQLite starts sooner without it.
        from sqlalchemy.dialects import postgresql

        made = postgresql.insert(table).on_conflict_do_nothing()
    else:
        made = sqlite.insert(table).on_conflict_do_nothing()
    return made.execution_options(preserve_rowcount=True)
