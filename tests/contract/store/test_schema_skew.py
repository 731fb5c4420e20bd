"""A schema by another version is used if it only has additions, and otherwise refused."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.cases import case, cases
from tests.contract.store.test_store_contract import key, place_of

from hostelry import __version__
from hostelry.store.database import Database, open_database
from hostelry.store.protocol import StoreRefused
from hostelry.store.schema import FLOORS, REVISIONS, SCHEMA_REVISION
from hostelry.store.sql import SqlStore
from hostelry.store.upgrade import floors

NEWER = "0002"
GROWN = (
    "ALTER TABLE records ADD COLUMN note TEXT",
    "ALTER TABLE counter ADD COLUMN written_by TEXT NOT NULL DEFAULT 'nobody'",
    "CREATE TABLE further (id INTEGER PRIMARY KEY)",
    "CREATE INDEX records_by_note ON records (note)",
)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path | str]:
    with place_of(request.param, tmp_path) as made:
        assert made is not None
        yield made


def upgraded(database: Database, floor: str | None, statements: Sequence[str] = ()) -> None:
    """Change the database as the next version does. Programs from `floor` on can use it."""
    with database.write() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
        connection.execute(sa.update(REVISIONS).values(version_num=NEWER))
        if floor is None:
            FLOORS.drop(connection)
        else:
            connection.execute(sa.update(FLOORS).values(revision=floor, made_by="0.2.0"))


def test_a_control_goes_on_and_one_that_starts_joins_it_when_the_schema_has_grown(
    place: Path | str,
) -> None:
    with closing(SqlStore(open_database(place))) as running:
        before = running.put(key("before"), b"1", expect=None)
        with closing(open_database(place)) as newer:
            upgraded(newer, SCHEMA_REVISION, GROWN)
        during = running.put(key("during"), b"2", expect=None)
        with closing(SqlStore(open_database(place))) as started:
            assert started.get(key("before")) == before
            assert started.get(key("during")) == during
            started.put(key("before"), b"3", expect=before.version)
            started.delete(key("during"), expect=during.version)
            after = started.put(key("after"), b"4", expect=None)
        assert [it.record for it in running.changes(during.version)][-1] == after
    with closing(open_database(place)) as left, left.read() as connection:
        assert connection.execute(sa.select(REVISIONS.c.version_num)).scalar_one() == NEWER
        assert connection.execute(sa.select(FLOORS.c.made_by)).scalar_one() == "0.2.0"


@cases(
    "floor, by",
    case("its floor", NEWER, "a newer hostelry (0.2.0, of use from revision 0002)"),
    case("nothing that says who can use it", None, "a newer hostelry;"),
)
def test_a_schema_that_this_version_cannot_use_is_refused_and_left(
    place: Path | str, floor: str | None, by: str
) -> None:
    SqlStore(open_database(place)).close()
    with closing(open_database(place)) as newer:
        upgraded(newer, floor, GROWN)
    with pytest.raises(StoreRefused) as refused:
        SqlStore(open_database(place))
    for words in (f"schema revision {NEWER}", by, f"this version, {__version__}"):
        assert words in str(refused.value)
    with closing(open_database(place)) as left, left.read() as connection:
        assert connection.execute(sa.select(REVISIONS.c.version_num)).scalar_one() == NEWER


def test_the_version_that_made_a_schema_is_kept_with_its_floor(place: Path | str) -> None:
    SqlStore(open_database(place)).close()
    with closing(open_database(place)) as made, made.read() as connection:
        row = connection.execute(sa.select(FLOORS)).one()
    assert (row.revision, row.made_by) == (floors()[SCHEMA_REVISION], __version__)
