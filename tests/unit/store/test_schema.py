import subprocess
import sys
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from tests.cases import case, cases

from hostelry import __version__
from hostelry.base.errors import HostelryError
from hostelry.store.protocol import StoreRefused, StoreUnavailable
from hostelry.store.schema import FLOORS, SCHEMA_FLOOR, SCHEMA_REVISION, get_revision, migrate
from hostelry.store.sql import SqlStore
from hostelry.store.sqlite import SqliteFile, sqlite_engine, store_error
from hostelry.store.tables import METADATA
from hostelry.store.upgrade import floors, migration_config, upgrade


def test_the_revisions_make_the_tables_that_the_code_uses(tmp_path: Path) -> None:
    """A new store is made without them."""
    engine = sqlite_engine(tmp_path / "state.db")
    with engine.connect() as connection, connection.begin():
        upgrade(connection, SCHEMA_REVISION)
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, METADATA) == []
        by_revisions = contents(connection)
    engine.dispose()
    SqlStore(SqliteFile(tmp_path / "new.db")).close()
    engine = sqlite_engine(tmp_path / "new.db")
    with engine.connect() as connection:
        made = contents(connection)
        assert made.pop(FLOORS.name)[1] == [(1, SCHEMA_FLOOR, __version__)]
        assert made == by_revisions
    engine.dispose()


def contents(connection: sa.Connection) -> dict[str, Any]:
    """The definitions (without spaces) and the rows of each table in SQLite."""
    master = connection.execute(sa.text("SELECT tbl_name, sql FROM sqlite_master"))
    statements: dict[str, list[list[str]]] = {}
    for name, statement in master:
        statements.setdefault(name, []).append((statement or "").split())
    return {
        name: (sorted(made), list(map(tuple, connection.execute(sa.text(f"SELECT * FROM {name}")))))
        for name, made in statements.items()
    }


def test_the_newest_revision_is_the_one_that_is_opened() -> None:
    script = ScriptDirectory.from_config(migration_config())
    assert script.get_heads() == [SCHEMA_REVISION]


def test_the_floor_of_a_revision_is_none_that_comes_later_and_never_goes_back() -> None:
    revisions = sorted(floors())
    found = [floors()[it] for it in revisions]
    assert found[-1] == SCHEMA_FLOOR
    assert found == sorted(found)
    assert all(floor <= it for floor, it in zip(found, revisions, strict=True))


@cases("is_new", case("a new one", True), case("one that was made before", False))
def test_a_store_that_is_up_to_date_is_opened_without_the_migrations(
    tmp_path: Path, is_new: bool
) -> None:
    path = tmp_path / "state.db"
    if not is_new:
        SqlStore(SqliteFile(path)).close()
    program = (
        "import sys; from pathlib import Path; from hostelry.store.sqlite import SqliteFile; "
        "from hostelry.store.sql import SqlStore; "
        "SqlStore(SqliteFile(Path(sys.argv[1]))).close(); print('alembic' in sys.modules)"
    )
    command = [sys.executable, "-c", program, str(path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == "False\n"


def test_a_migration_that_is_cut_short_leaves_nothing(tmp_path: Path) -> None:
    engine = sqlite_engine(tmp_path / "state.db")
    with engine.connect() as connection:
        transaction = connection.begin()
        migrate(connection)
        transaction.rollback()
    with engine.connect() as connection:
        assert sa.inspect(connection).get_table_names() == []
    engine.dispose()


def test_the_revisions_run_on_an_engine_that_is_not_sqlite_by_file() -> None:
    engine = sa.create_engine("sqlite+pysqlite://")
    with engine.connect() as connection, connection.begin():
        migrate(connection)
        migrate(connection)
        assert set(sa.inspect(connection).get_table_names()) >= set(METADATA.tables)
        assert get_revision(connection) == SCHEMA_REVISION
    engine.dispose()


def error_with_code(code: int) -> sa.exc.DBAPIError:
    raw = Exception("what SQLite said")
    raw.sqlite_errorcode = code  # type: ignore[attr-defined] # as sqlite3 sets it
    return sa.exc.OperationalError("INSERT", {}, raw)


@cases(
    "code, kind, advice",
    case("readonly", 8, StoreRefused, "read-only"),
    case("an extended readonly", 8 | (6 << 8), StoreRefused, "read-only"),
    case("corrupt", 11, StoreRefused, "damaged"),
    case("cannot open", 14, StoreRefused, "cannot be opened"),
    case("not a database", 26, StoreRefused, "not a database"),
    case("full", 13, StoreUnavailable, "disk is full"),
    case("busy", 5, StoreUnavailable, "another process"),
    case("an extended I/O error", 10 | (3 << 8), StoreUnavailable, "disk failed"),
    case("anything else", 1, StoreUnavailable, "answered with an error"),
)
def test_the_databases_errors_say_what_to_do(
    code: int, kind: type[HostelryError], advice: str
) -> None:
    error = store_error(Path("home/state.db"), error_with_code(code))
    assert type(error) is kind
    assert advice in str(error)
    assert "home/state.db" in str(error)
    assert "what SQLite said" in str(error)
