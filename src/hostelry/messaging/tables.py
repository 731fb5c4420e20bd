"""Tables of messages, and of calls that events ask for; statements on them are portable SQL.

They stand apart from the store's: messages come and go often, and no reconciler watches them.
"""

import sqlalchemy as sa

from hostelry.store.columns import OPAQUE_TEXT

METADATA = sa.MetaData()

QUEUED = sa.Table(
    "queued",
    METADATA,
    sa.Column("id", OPAQUE_TEXT, primary_key=True),
    sa.Column("queue", OPAQUE_TEXT, nullable=False),
    sa.Column("body", OPAQUE_TEXT, nullable=False),
    sa.Column("attributes", OPAQUE_TEXT, nullable=False),
    sa.Column("sender", OPAQUE_TEXT, nullable=False),
    sa.Column("sent_at", sa.Float, nullable=False),
    sa.Column("visible_at", sa.Float, nullable=False),
    sa.Column("receives", sa.Integer, nullable=False),
    sa.Column("first_received_at", sa.Float, nullable=False),
    sa.Column("nonce", OPAQUE_TEXT, nullable=False),
    sa.Index("queued_visible", "queue", "visible_at"),
    sa.Index("queued_sent", "queue", "sent_at"),
)
DELIVERIES = sa.Table(
    "delivery",
    METADATA,
    # SQLite numbers rows by itself only where the type is INTEGER.
    sa.Column(
        "id",
        sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    sa.Column("subscription", OPAQUE_TEXT, nullable=False),
    sa.Column("message_id", OPAQUE_TEXT, nullable=False),
    sa.Column("body", OPAQUE_TEXT, nullable=False),
    sa.Column("headers", OPAQUE_TEXT, nullable=False),
    sa.Column("accepted_at", sa.Float, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("next_at", sa.Float, nullable=False),
    sa.Index("delivery_next", "subscription", "next_at"),
    sqlite_autoincrement=True,
)
EVENT_CALLS = sa.Table(
    "event_call",
    METADATA,
    sa.Column("id", OPAQUE_TEXT, primary_key=True),
    sa.Column("body", OPAQUE_TEXT, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("begun", sa.Integer, nullable=False),
    sa.Column("next_at", sa.Float, nullable=False),
    sa.Index("event_call_next", "next_at"),
)
EVENTS_SEEN = sa.Table(
    "event_seen",
    METADATA,
    sa.Column("id", OPAQUE_TEXT, primary_key=True),
    sa.Column("at", sa.Float, nullable=False),
)
PUBLISHED = sa.Table(
    "published",
    METADATA,
    sa.Column("topic", OPAQUE_TEXT, primary_key=True),
    sa.Column("id", OPAQUE_TEXT, primary_key=True),
    sa.Column("at", sa.Float, nullable=False),
    sa.Index("published_at", "at"),
)
