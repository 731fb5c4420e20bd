import os
from pathlib import Path

import msgspec
import pytest
from tests.cases import case, cases
from tests.unit.dataplane.routes_sample import HERE, SNAPSHOT

from hostelry.base.files import write_whole
from hostelry.dataplane.route_table import EMPTY_SNAPSHOT
from hostelry.dataplane.routes import FixedRoutes, KeptRoutes, RouteFile


def test_routes_survive_on_disk_private_to_their_owner(tmp_path: Path) -> None:
    path = tmp_path / "routes.json"
    RouteFile(path, write_whole).save(SNAPSHOT)
    assert RouteFile(path, write_whole).load() == SNAPSHOT
    assert path.stat().st_mode & 0o777 == 0o600
    assert [it.name for it in tmp_path.iterdir()] == ["routes.json"]


def test_a_file_shows_which_routes_it_has_and_since_when(tmp_path: Path) -> None:
    path = tmp_path / "routes.json"
    file = RouteFile(path, write_whole)
    assert file.get_version() is None, "there is none"
    file.save(SNAPSHOT)
    os.utime(path, (5.0, 5.0))
    assert file.get_version() == KeptRoutes(version=SNAPSHOT.version, written_at=5.0)
    path.write_bytes(b'{"version":"abc')
    assert file.get_version() is None, "it is torn"
    path.write_bytes(b"\xff\x00")
    assert file.get_version() is None, "it is something else"


def test_no_file_means_no_routes_yet(tmp_path: Path) -> None:
    assert RouteFile(tmp_path / "routes.json", write_whole).load() == EMPTY_SNAPSHOT


@cases(
    "content",
    case("an empty file", b""),
    case("half a file", b"{"),
    case("a torn file", msgspec.json.encode(SNAPSHOT)[:-20]),
    case("zeros, as after a power cut", b"\x00" * 100),
    case("the wrong types", b'{"version": 1, "endpoints": []}'),
    case("no UTF-8", b'{"version": "\xff", "endpoints": []}'),
)
def test_a_broken_file_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    path = tmp_path / "routes.json"
    path.write_bytes(content)
    assert RouteFile(path, write_whole).load() == EMPTY_SNAPSHOT
    assert not path.exists()
    assert (tmp_path / "routes.json.broken").read_bytes() == content
    assert "routes.json.broken" in caplog.text


def test_a_file_that_cannot_be_read_is_no_crash(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "routes.json"
    path.mkdir()
    assert RouteFile(path, write_whole).load() == EMPTY_SNAPSHOT
    assert "cannot be read" in caplog.text


def test_a_broken_file_that_cannot_be_renamed_is_no_crash(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "routes.json"
    path.write_bytes(b"{")
    (tmp_path / "routes.json.broken").mkdir()  # as in a home that can only be read, also for root
    assert RouteFile(path, write_whole).load() == EMPTY_SNAPSHOT
    assert path.exists()
    assert "cannot be read" in caplog.text


def test_replaced_routes_leave_the_old_table_unchanged() -> None:
    routes = FixedRoutes(SNAPSHOT)
    before = routes.table
    routes.replace(EMPTY_SNAPSHOT)
    assert routes.table.endpoint(HERE, "llms") is None
    assert before.endpoint(HERE, "llms") is not None
