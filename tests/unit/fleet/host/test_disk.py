import gc
import os
from pathlib import Path

import pytest

from hostelry.fleet.host.processes import own_identity
from hostelry.fleet.host.usage import remove_written, written_bytes

MIB = 2**20
AGENTS = ("copy.json", "model")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy's folder with what the agent keeps in it."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_bytes(bytes(MIB))
    (tmp_path / "copy.json").write_bytes(bytes(MIB))
    (tmp_path / "log").write_bytes(bytes(8192))
    return tmp_path


def test_what_a_copy_wrote_counts_wherever_it_is_in_its_folder(folder: Path) -> None:
    assert written_bytes(folder, [], AGENTS) == 8192, "the log"
    (folder / "work" / "deep").mkdir(parents=True)
    (folder / "work" / "deep" / "file").write_bytes(bytes(MIB))
    (folder / "work" / "model").write_bytes(bytes(MIB))
    (folder / "again").hardlink_to(folder / "work" / "model")
    written = written_bytes(folder, [], AGENTS)
    assert 2 * MIB + 8192 <= written < 2.1 * MIB, "what is linked twice takes room once"


def test_nothing_outside_counts(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "large").write_bytes(bytes(MIB))
    (folder / "work").symlink_to(outside, target_is_directory=True)
    assert written_bytes(folder, [], AGENTS) < MIB


def test_a_file_that_was_unlinked_and_is_open_still_counts(folder: Path) -> None:
    gc.collect()  # earlier tests of this process may have left such files, too
    others = written_bytes(folder, [own_identity()], AGENTS)
    with (folder / "hidden").open("wb", buffering=0) as hidden:
        hidden.write(bytes(MIB))
        (folder / "hidden").unlink()
        assert written_bytes(folder, [own_identity()], AGENTS) >= others + MIB
    assert written_bytes(folder, [own_identity()], AGENTS) < others + MIB


def test_empty_files_take_room_too(folder: Path) -> None:
    for number in range(100):
        (folder / str(number)).touch()
    assert written_bytes(folder, [], AGENTS) >= 100 * 4096


def test_a_folder_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    assert written_bytes(tmp_path / "gone", [], AGENTS) == 0
    remove_written(tmp_path / "gone", AGENTS)


def test_what_it_wrote_is_removed_and_the_rest_stays(folder: Path) -> None:
    (folder / "work" / "deep").mkdir(parents=True)
    (folder / "work" / "deep" / "file").touch()
    (folder / "core").touch()
    (folder / "link").symlink_to(folder / "model", target_is_directory=True)
    remove_written(folder, AGENTS)
    assert sorted(os.listdir(folder)) == ["copy.json", "log", "model"]
    assert (folder / "model" / "weights").stat().st_size == MIB
