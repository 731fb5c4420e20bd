"""Migration of a database to this version's schema; refuses that of a newer version."""

from sqlalchemy import Connection, column, func, inspect, select, table

SCHEMA_REVISION = "0001"
REVISIONS = table("alembic_version", column("version_num"))  # as Alembic keeps them
SCHEMA_LOCK = 0x686F7374656C7279  # an advisory lock of PostgreSQL; any number of our own


def migrate(connection: Connection) -> None:
    """Run what is missing inside the caller's transaction.

    Raises StoreRefused when the database holds a revision that this version does not know.
    """
    current = revision_of(connection)
    if current == SCHEMA_REVISION:
        return
    lock_schema(connection)
    current = revision_of(connection)  # another process may have been first
    if current == SCHEMA_REVISION:
        return
    # Imported late: Alembic loads the dialects of every database, which delays control's start.
    from hostelry.store.upgrade import upgrade

    upgrade(connection, current, SCHEMA_REVISION)


def lock_schema(connection: Connection) -> None:
    """Wait until no other transaction makes tables; SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(SCHEMA_LOCK)))


def revision_of(connection: Connection) -> str | None:
    """The schema revision of a database; None where it has no schema yet."""
    if not inspect(connection).has_table(REVISIONS.name):
        return None
    found: str | None = connection.execute(select(REVISIONS.c.version_num)).scalar_one_or_none()
    return found
