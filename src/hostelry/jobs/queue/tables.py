"""Tables of asynchronous requests and of work claims. Statements on them are portable SQL."""

import sqlalchemy as sa

from hostelry.store.tables import OPAQUE_TEXT

METADATA = sa.MetaData()
WAITING, RUNNING, COMPLETED, FAILED, EXPIRED = (
    "waiting",
    "running",
    "completed",
    "failed",
    "expired",
)
UNFINISHED = (WAITING, RUNNING)
STATES = (*UNFINISHED, COMPLETED, FAILED, EXPIRED)

REQUESTS = sa.Table(
    "async_request",
    METADATA,
    # SQLite numbers rows only if the type is INTEGER.
    sa.Column(
        "sequence",
        sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("inference_id", sa.Text, nullable=False, index=True),
    sa.Column("account", sa.Text, nullable=False),
    sa.Column("region", sa.Text, nullable=False),
    sa.Column("endpoint", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("accepted_at", sa.Float, nullable=False),
    sa.Column("expires_at", sa.Float, nullable=False),
    sa.Column("next_at", sa.Float, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("fence", sa.Integer, nullable=False),
    sa.Column("owner", sa.Text),
    sa.Column("lease_until", sa.Float),
    sa.Column("finished_at", sa.Float),
    sa.Column("reason", sa.Text),
    sa.Column("request", sa.LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)
_IS_WAITING = REQUESTS.c.state == sa.literal_column(f"'{WAITING}'")
_IS_RUNNING = REQUESTS.c.state == sa.literal_column(f"'{RUNNING}'")
_IS_UNFINISHED = REQUESTS.c.finished_at.is_(None)
_IS_FINISHED = REQUESTS.c.finished_at.is_not(None)


def _partial(name: str, *columns: sa.Column[object], where: sa.ColumnElement[bool]) -> None:
    index = sa.Index(name, *columns, sqlite_where=where)

    # Set late, because `postgresql_where` above would import that dialect (2 MB) in every process.
    def add_condition(_table: sa.Table, connection: sa.Connection, **_: object) -> None:
        if connection.dialect.name == "postgresql":
            index.dialect_options["postgresql"]["where"] = where

    sa.event.listen(REQUESTS, "before_create", add_condition)


_place = (REQUESTS.c.account, REQUESTS.c.region, REQUESTS.c.endpoint)
_partial("async_request_waiting", *_place, REQUESTS.c.sequence, where=_IS_WAITING)
_partial("async_request_expiry", REQUESTS.c.expires_at, where=_IS_WAITING)
_partial("async_request_leases", REQUESTS.c.lease_until, where=_IS_RUNNING)
_partial(
    "async_request_backlog",
    *_place,
    REQUESTS.c.state,
    REQUESTS.c.accepted_at,
    where=_IS_UNFINISHED,
)
_partial("async_request_finished", REQUESTS.c.finished_at, where=_IS_FINISHED)

OUTBOX = sa.Table(
    "notification",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("made_at", sa.Float, nullable=False),
    sa.Column("next_at", sa.Float, nullable=False, index=True),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("reason", sa.Text),
)

# Work that one of several jobs processes does at a time.
WORK = sa.Table(
    "work_claim",
    METADATA,
    sa.Column("name", OPAQUE_TEXT, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("lease_until", sa.Float, nullable=False),
)
