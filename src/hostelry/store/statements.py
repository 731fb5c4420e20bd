"""Statements in which databases differ, written once for all of them."""

from functools import cache

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite


def insert_once(table: sa.Table, connection: sa.Connection) -> sa.Insert:
    """An insert of a row, unless it is there; `rowcount` of the result is 0 then."""
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
