"""Records with their revisions, and the counter that revisions are drawn from."""

import sqlalchemy as sa
from alembic import op

from hostelry.store.tables import OPAQUE_TEXT

revision = "0001"
down_revision = None
USABLE_FROM = "0001"


def upgrade() -> None:
    """Create both tables. The counter starts at 0."""
    op.create_table(
        "records",
        sa.Column("kind", OPAQUE_TEXT, primary_key=True),
        sa.Column("account", OPAQUE_TEXT, primary_key=True),
        sa.Column("region", OPAQUE_TEXT, primary_key=True),
        sa.Column("name", OPAQUE_TEXT, primary_key=True),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=True),
    )
    op.create_index("records_by_revision", "records", ["revision"], unique=True)
    counter = op.create_table(
        "counter",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("forgotten", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(counter, [{"id": 1, "revision": 0, "forgotten": 0}])
