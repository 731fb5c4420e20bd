"""The store that a platform chooses: checked before anything starts, and kept for later starts."""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update
from tests.cases import case, cases
from tests.postgres_rig import postgres_database

from hostelry.base.errors import TerminalError
from hostelry.domain.scope import Scope
from hostelry.home.home import Home, UpConfig, load_config, new_credentials, save_config
from hostelry.home.platform_store import check_store
from hostelry.home.store_option import VARIABLE, choose_store_url, place_shown, secret_in
from hostelry.home.up_options import UpOptions
from hostelry.processes.background import command_line
from hostelry.processes.services import service_environment
from hostelry.store.database import open_database
from hostelry.store.leaders import CONTROLS
from hostelry.store.leaders import METADATA as LEASE_TABLES
from hostelry.store.lease_rows import LeaseRows
from hostelry.store.protocol import Key, StoreRefused, StoreUnavailable
from hostelry.store.sql import SqlStore

CREDENTIALS = new_credentials("123456789012", "us-west-2")
ON_SQLITE = UpConfig(control_port=1)
URL = "postgresql://u:secret@db/h"
ON_SERVER = replace(ON_SQLITE, store_url=URL)


@pytest.fixture
def url() -> Iterator[str]:
    with postgres_database() as found:
        yield found


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.make()
    return home


def put_record(place: Path | str, kind: str = "endpoint") -> None:
    store = SqlStore(open_database(place))
    key = Key(kind=kind, scope=Scope("123456789012", "us-west-2"), name="e")
    store.put(key, b"", expect=None)
    store.close()


@cases(
    "option, before, chosen",
    case("a first start is on SQLite", None, None, None),
    case("a URL is taken", URL, None, URL),
    case("the home keeps its choice", None, ON_SERVER, URL),
    case("sqlite goes back to the home's file", "sqlite", ON_SERVER, None),
)
def test_the_choice_of_a_start(
    option: str | None, before: UpConfig | None, chosen: str | None
) -> None:
    assert choose_store_url(option, before) == chosen


@cases(
    "url, shown",
    case("the home's file", None, "state.db"),
    case("a URL", "postgresql://u:secret@db:5/h?a=b", "postgresql://db:5/h"),
    case("one that is not quoted", "postgres://u:se/cret@db/h", "postgresql://"),
)
def test_status_shows_where_the_store_is(home: Home, url: str | None, shown: str) -> None:
    found = place_shown(home, replace(ON_SERVER, store_url=url))
    assert found == (str(home.root / shown) if url is None else shown)
    assert place_shown(home, replace(ON_SERVER, controls=("https://c:7443",))) is None


def test_a_value_that_is_no_store_is_refused_without_repeating_it() -> None:
    with pytest.raises(TerminalError, match="--store: expected postgresql://") as caught:
        choose_store_url("mysql://u:secret@db/h", None)
    assert "secret" not in str(caught.value)


def test_the_url_is_kept_in_the_home_and_shown_by_nothing(home: Home) -> None:
    save_config(home, ON_SERVER)
    assert load_config(home).store_url == URL
    options = UpOptions(home=home.root, store=URL)
    assert "secret" not in f"{ON_SERVER} {options} {command_line(options)}"
    assert VARIABLE not in service_environment({VARIABLE: URL}, home)
    assert secret_in(URL)
    assert secret_in("postgresql://db/h?password=x")
    assert not secret_in("postgresql://u@db:5432/h?sslmode=require")


def test_an_empty_store_is_refused_where_the_last_one_has_records(home: Home, url: str) -> None:
    config = replace(ON_SQLITE, store_url=url)
    check_store(home, config, None, CREDENTIALS)  # nothing is left behind
    put_record(home.state)
    with pytest.raises(TerminalError, match=r"is empty, and .*state.db has this home's records"):
        check_store(home, config, ON_SQLITE, CREDENTIALS)
    put_record(url)
    check_store(home, config, ON_SQLITE, CREDENTIALS)
    home.state.unlink()
    with pytest.raises(TerminalError, match=r"state.db is empty, and postgresql://.* has this"):
        check_store(home, ON_SQLITE, config, CREDENTIALS)


def test_a_start_makes_the_root_key_for_all_controls_and_never_a_second_one(
    home: Home, url: str, tmp_path: Path
) -> None:
    config = replace(ON_SQLITE, store_url=url)
    check_store(home, config, None, CREDENTIALS)
    made = home.root_key.read_bytes()
    check_store(home, config, config, CREDENTIALS)
    assert home.root_key.read_bytes() == made
    home.root_key.unlink()
    put_record(url, "kms_key")
    check_store(home, config, config, CREDENTIALS)
    assert not home.root_key.exists(), "it would open none of the keys that are there"
    on_file = Home(tmp_path / "file")
    on_file.make()
    check_store(on_file, ON_SQLITE, None, CREDENTIALS)
    assert not on_file.root_key.exists(), "one control makes it with its first key"


def test_another_cluster_is_refused_with_both_homes(home: Home, url: str, tmp_path: Path) -> None:
    config = replace(ON_SQLITE, store_url=url)
    check_store(home, config, None, CREDENTIALS)
    for name in ("joined", "other"):
        Home(tmp_path / name).make()
    check_store(Home(tmp_path / "joined"), config, None, CREDENTIALS)  # the same internal key
    other = new_credentials("123456789012", "us-west-2")
    with pytest.raises(StoreRefused, match=f"{home.root}, and .*{tmp_path / 'other'} is another"):
        check_store(Home(tmp_path / "other"), config, None, other)


def test_a_missing_driver_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [it for it in sys.modules if it.startswith("hostelry.store.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert importlib.util.find_spec("hostelry.store.postgres") is not None
    with pytest.raises(StoreRefused, match=r"pip install 'hostelry\[postgresql\]'"):
        open_database(URL)


@cases(
    "version, is_refused",
    case("a neighbour", "0.2.0", False),
    case("a version too far away", "99.0.0", True),
)
def test_no_control_starts_beside_a_version_too_far_away(
    home: Home, url: str, version: str, is_refused: bool
) -> None:
    config = replace(ON_SERVER, store_url=url)
    check_store(home, config, None, CREDENTIALS)
    with closing(open_database(url)) as database:
        database.create(LEASE_TABLES)
    rows = LeaseRows(url, "other", "http://10.0.0.2:1", version)
    rows.register()
    if is_refused:
        with pytest.raises(StoreUnavailable, match=f"control other is {version}"):
            check_store(home, config, None, CREDENTIALS)
        with closing(open_database(url)) as database, database.write() as connection:
            connection.execute(update(CONTROLS).values(seen_at=0.0))  # it has ended
    check_store(home, config, None, CREDENTIALS)
    rows.close()
