"""Alembic upgrade through the schema revisions that ship with the package."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from hostelry.store.errors import StoreRefused

MIGRATIONS = Path(__file__).parent / "migrations"


def upgrade(connection: Connection, current: str | None, wanted: str) -> None:
    """Run the revisions from `current` (None: from none) to `wanted`, in the caller's transaction.

    Raises StoreRefused when `current` is a revision that this version does not know.
    """
    config = migration_config()
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if current is not None and current not in known:
        raise StoreRefused(
            f"the store has schema revision {current}, made by a newer hostelry; this version"
            f" knows up to {wanted}: upgrade hostelry, or use another home folder"
        )
    config.attributes["connection"] = connection
    command.upgrade(config, wanted)


def migration_config() -> Config:
    """Alembic's configuration for the revisions that ship with the package."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
