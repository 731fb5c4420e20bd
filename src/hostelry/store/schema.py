"""Migrates a database to this version's schema, or uses a newer schema as it is.

| the database's revision | result |
| --- | --- |
| none | the tables are created in their present form |
| an older one | it is upgraded |
| this version's | it is used |
| a newer one, whose floor is at most this version's | it is used, because it only has additions |
| another newer one | StoreRefused |

The floor is the oldest revision whose programs can use the schema (`migrations`). While a platform
is upgraded, controls of two versions use one database, and the upgrade can be undone.
"""

from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Row,
    String,
    Table,
    Text,
    delete,
    func,
    insert,
    inspect,
    select,
)

from hostelry import __version__
from hostelry.base.errors import TerminalError
from hostelry.store.protocol import StoreRefused
from hostelry.store.tables import COUNTER, METADATA

SCHEMA_REVISION = "0001"  # the names of revisions sort in their order
SCHEMA_FLOOR = "0001"  # the floor of that revision
OWN = MetaData()
REVISIONS = Table(  # Alembic's own table
    "alembic_version",
    OWN,
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
FLOORS = Table(
    "schema_floor",
    OWN,
    Column("id", Integer, primary_key=True, autoincrement=False),  # the only row has 1
    Column("revision", Text, nullable=False),
    Column("made_by", Text, nullable=False),  # the version that made the schema
)
SCHEMA_LOCK = 0x686F7374656C7279  # number of an advisory lock of PostgreSQL, an arbitrary value


def migrate(connection: Connection) -> None:
    """Run the missing migrations in the caller's transaction, by the table above.

    Raises StoreRefused if the schema is newer and this version cannot use it.
    """
    if is_settled(connection):
        return
    lock_schema(connection)
    if is_settled(connection):  # another process may have migrated before
        return
    if get_revision(connection) is None:
        create(connection)
    else:
        # Imported late, because Alembic loads the dialects of all databases, which takes long.
        from hostelry.store.upgrade import upgrade

        upgrade(connection, SCHEMA_REVISION)
    FLOORS.create(connection, checkfirst=True)
    connection.execute(delete(FLOORS))
    connection.execute(insert(FLOORS).values(id=1, revision=SCHEMA_FLOOR, made_by=__version__))


def create(connection: Connection) -> None:
    """Create the tables of a new database, as the revisions would create them."""
    METADATA.create_all(connection, checkfirst=False)
    connection.execute(insert(COUNTER).values(id=1, revision=0, forgotten=0))
    REVISIONS.create(connection)
    connection.execute(insert(REVISIONS).values(version_num=SCHEMA_REVISION))


def is_settled(connection: Connection) -> bool:
    """True if the schema needs no migration. Raises StoreRefused if it cannot be used."""
    current = get_revision(connection)
    if current is None or current < SCHEMA_REVISION:
        return False
    if current == SCHEMA_REVISION:
        return True
    floor = get_floor(connection)
    if floor is None or floor.revision > SCHEMA_REVISION:
        by = "" if floor is None else f" ({floor.made_by}, of use from revision {floor.revision})"
        raise StoreRefused(
            f"the store has schema revision {current}, made by a newer hostelry{by}; this version,"
            f" {__version__}, knows up to {SCHEMA_REVISION}: upgrade hostelry, or use another home"
            " folder"
        )
    return True


def lock_schema(connection: Connection) -> None:
    """Wait until no other transaction creates tables. SQLite allows one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(SCHEMA_LOCK)))


def get_revision(connection: Connection) -> str | None:
    """Return the schema revision of a database, or None before its first schema."""
    if not inspect(connection).has_table(REVISIONS.name):
        return None
    found: str | None = connection.execute(select(REVISIONS.c.version_num)).scalar_one_or_none()
    return found


def get_floor(connection: Connection) -> Row[Any] | None:
    """The row with the floor. None if the database does not state a floor."""
    if not inspect(connection).has_table(FLOORS.name):
        return None
    return connection.execute(select(FLOORS)).one_or_none()


USE_LOCK = 0x686F7374656C7278  # an advisory lock, shared by all processes that use the database
HOLD_STATEMENT = f"SELECT pg_advisory_lock_shared({USE_LOCK})"  # held until the session ends


def refuse_if_used(connection: Connection, name: str) -> None:
    """Prevent platforms from starting on the database until the transaction ends.

    Raises TerminalError if a platform runs. For SQLite, the lock of the home does this.
    """
    if connection.dialect.name != "postgresql":
        return
    lock_schema(connection)
    if not connection.execute(select(func.pg_try_advisory_xact_lock(USE_LOCK))).scalar_one():
        raise TerminalError(f"a platform runs on the store {name}: `hostelry down` ends it")
