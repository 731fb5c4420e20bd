"""Upgrades a schema with Alembic, through the revisions in this package."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

MIGRATIONS = Path(__file__).parent / "migrations"


def upgrade(connection: Connection, wanted: str) -> None:
    """Run the revisions up to `wanted` in the caller's transaction."""
    config = migration_config()
    config.attributes["connection"] = connection
    command.upgrade(config, wanted)


def floors() -> dict[str, str]:
    """The floor of each revision: the oldest revision whose programs can use its schema."""
    scripts = ScriptDirectory.from_config(migration_config()).walk_revisions()
    return {it.revision: it.module.USABLE_FROM for it in scripts}


def migration_config() -> Config:
    """Alembic's configuration for the revisions in this package."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
