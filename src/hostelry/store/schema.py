"""Migration of a database to this version's schema, or its use as it is where that is newer.

| the database's revision | then |
| --- | --- |
| none, or an older one | it is upgraded |
| this version's | it is used |
| a newer one, whose floor is at most this version's | it is used as it is: it only grew |
| another newer one | StoreRefused |

The floor is the oldest revision whose programs can use the schema (`migrations`): controls of two
versions use one database while a platform is upgraded, and a version that was upgraded can go back.
"""

from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Integer,
    MetaData,
    Row,
    Table,
    Text,
    column,
    delete,
    func,
    insert,
    inspect,
    select,
    table,
)

from hostelry import __version__
from hostelry.store.errors import StoreRefused

SCHEMA_REVISION = "0001"  # revisions are in the order of their names
REVISIONS = table("alembic_version", column("version_num"))  # as Alembic keeps them
FLOORS = Table(
    "schema_floor",
    MetaData(),
    Column("id", Integer, primary_key=True, autoincrement=False),  # one row: 1
    Column("revision", Text, nullable=False),
    Column("made_by", Text, nullable=False),  # the version that upgraded the schema
)
SCHEMA_LOCK = 0x686F7374656C7279  # an advisory lock of PostgreSQL; any number of our own


def migrate(connection: Connection) -> None:
    """Run what is missing inside the caller's transaction; see the module's table.

    Raises StoreRefused where the schema is newer and this version cannot use it.
    """
    if is_settled(connection):
        return
    lock_schema(connection)
    if is_settled(connection):  # another process may have been first
        return
    # Imported late: Alembic loads the dialects of every database, which delays control's start.
    from hostelry.store.upgrade import upgrade

    floor = upgrade(connection, SCHEMA_REVISION)
    FLOORS.create(connection, checkfirst=True)
    connection.execute(delete(FLOORS))
    connection.execute(insert(FLOORS).values(id=1, revision=floor, made_by=__version__))


def is_settled(connection: Connection) -> bool:
    """Whether the schema is used as it is; raises StoreRefused where it cannot be used."""
    current = revision_of(connection)
    if current is None or current < SCHEMA_REVISION:
        return False
    if current == SCHEMA_REVISION:
        return True
    floor = floor_of(connection)
    if floor is None or floor.revision > SCHEMA_REVISION:
        by = "" if floor is None else f" ({floor.made_by}, of use from revision {floor.revision})"
        raise StoreRefused(
            f"the store has schema revision {current}, made by a newer hostelry{by}; this version,"
            f" {__version__}, knows up to {SCHEMA_REVISION}: upgrade hostelry, or use another home"
            " folder"
        )
    return True


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


def floor_of(connection: Connection) -> Row[Any] | None:
    """The row of the floor; None where nothing says which programs can use the schema."""
    if not inspect(connection).has_table(FLOORS.name):
        return None
    return connection.execute(select(FLOORS)).one_or_none()
