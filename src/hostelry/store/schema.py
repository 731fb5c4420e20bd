"""Brings a database to the schema this version knows, and refuses one from a newer version."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from hostelry.store.errors import StoreRefused

SCHEMA_REVISION = "0001"
MIGRATIONS = Path(__file__).parent / "migrations"


def migrate(connection: Connection) -> None:
    """Run what is missing inside the caller's transaction.

    Raises StoreRefused when the database holds a revision that this version does not know.
    """
    current = MigrationContext.configure(connection).get_current_revision()
    if current == SCHEMA_REVISION:
        return
    config = migration_config()
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if current is not None and current not in known:
        raise StoreRefused(
            f"the store has schema revision {current}, made by a newer hostelry; this version"
            f" knows up to {SCHEMA_REVISION}: upgrade hostelry, or use another home folder"
        )
    config.attributes["connection"] = connection
    command.upgrade(config, SCHEMA_REVISION)


def migration_config() -> Config:
    """Alembic's configuration for the revisions that ship with the package."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
