"""The store's two tables, and column types that compare texts alike on every database."""

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

# PostgreSQL's text cannot contain NUL. Pairs with U+0001 keep the order of characters.
ESCAPES = (("\x01", "\x01\x02"), ("\0", "\x01\x01"))


class EscapedText(TypeDecorator[str]):
    """Text with any character, in a column that cannot contain NUL. Sorted by code point."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Convert a text to its stored form."""
        return None if value is None else escape_text(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> str | None:
        """Convert a stored text back."""
        return None if value is None else unescape_text(value)


def escape_text(text: str) -> str:
    """Escape NUL. The result sorts as `text` does."""
    if "\x01" not in text and "\0" not in text:
        return text
    for character, pair in ESCAPES:
        text = text.replace(character, pair)
    return text


def unescape_text(text: str) -> str:
    """Undo `escape_text`."""
    if "\x01" not in text:
        return text
    for character, pair in reversed(ESCAPES):
        text = text.replace(pair, character)
    return text


# Stored unchanged and compared by code point, whatever the collation of the database.
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

# One row (id 1). Every write first updates this row, so writers wait for each other on every
# database, and revisions become visible in order.
COUNTER = Table(
    "counter",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("revision", BigInteger, nullable=False),
    Column("forgotten", BigInteger, nullable=False),
)


def insert_once(table: sa.Table, connection: sa.Connection) -> sa.Insert:
    """Build an insert that does nothing if the row exists. Then the result's `rowcount` is 0."""
    return _insert_once(table, connection.dialect.name)


@cache  # building a statement takes longer than running it
def _insert_once(table: sa.Table, dialect: str) -> sa.Insert:
    made: sa.Insert
    if dialect == "postgresql":
        # Imported late, so that a platform on SQLite starts sooner.
        from sqlalchemy.dialects import postgresql

        made = postgresql.insert(table).on_conflict_do_nothing()
    else:
        made = sqlite.insert(table).on_conflict_do_nothing()
    return made.execution_options(preserve_rowcount=True)
