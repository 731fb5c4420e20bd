"""The lock by which a running platform shows that it uses a database of PostgreSQL."""

from sqlalchemy import Connection, func, select

from hostelry.base.errors import TerminalError
from hostelry.store.schema import lock_schema

USE_LOCK = 0x686F7374656C7278  # an advisory lock, shared by all that use the database
HOLD_STATEMENT = f"SELECT pg_advisory_lock_shared({USE_LOCK})"  # until the session ends


def refuse_if_used(connection: Connection, name: str) -> None:
    """Keep platforms from starting on the database until the transaction ends.

    Raises TerminalError where one runs. Files of SQLite have their home's lock for this.
    """
    if connection.dialect.name != "postgresql":
        return
    lock_schema(connection)
    if not connection.execute(select(func.pg_try_advisory_xact_lock(USE_LOCK))).scalar_one():
        raise TerminalError(f"a platform runs on the store {name}: `hostelry down` ends it")
