"""An object store that reports a full disk, and the room that is left by then."""

from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.processes import store_disk
from hostelry.processes.store_disk import StoreDisk

FULL = "E filer.go:301 persisting /b/k : write data/filerldb2/00/1.log: no space left on device\n"
TOO_LARGE = "E volume_write.go:1 write data/b_1.dat: no space left on device\n"
OTHER = "I server.go: started\n"


@cases(
    "checks, needs_restart",
    case("it reports nothing", [(True, OTHER)], False),
    case("an object had no room: others may have it", [(True, TOO_LARGE)], False),
    case("the disk is full still", [(False, FULL)], False),
    case("there is room again", [(False, FULL), (True, "")], True),
    case("it was full for a moment", [(True, FULL), (True, OTHER)], True),
)
def test_a_store_whose_index_found_no_room_is_started_again_once_there_is_some(
    checks: list[tuple[bool, str]],
    needs_restart: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = tmp_path / "objectstore.log"
    output.write_text(FULL)  # of an earlier process
    disk = StoreDisk(tmp_path, output)
    found = False
    for has_room, text in checks:
        monkeypatch.setattr(store_disk, "ROOM_BYTES", 0 if has_room else 1 << 60)
        with output.open("a") as file:
            file.write(text)
        found = disk.needs_restart()
    assert found is needs_restart
    disk.forget_reports()
    assert not disk.needs_restart()


def test_output_that_is_shorter_than_before_is_read_from_its_start(tmp_path: Path) -> None:
    output = tmp_path / "objectstore.log"
    output.write_text(OTHER * 100)
    disk = StoreDisk(tmp_path, output)
    assert not disk.needs_restart()
    output.write_text(FULL)
    assert disk.needs_restart()
    output.unlink()
    disk.forget_reports()
    assert not disk.needs_restart()
