"""Statements in which databases differ, written once for all of them."""

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite


def insert_once(table: sa.Table) -> sa.Insert:
    """An insert of a row, unless it is there; `rowcount` of the result is 0 then."""
    # SQLite's clause, which PostgreSQL has too; its compiler asks for one attribute more.
    insert = sqlite.insert(table).on_conflict_do_nothing()
    insert._post_values_clause.constraint_target = None  # type: ignore[union-attr] # see above
    return insert.execution_options(preserve_rowcount=True)
