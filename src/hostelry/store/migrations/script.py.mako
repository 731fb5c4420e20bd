"""${message}."""

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
USABLE_FROM = ${repr(down_revision)}


def upgrade() -> None:
    """Apply this revision."""
    ${upgrades if upgrades else "pass"}
