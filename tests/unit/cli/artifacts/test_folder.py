"""Files of a folder: found, or refused by name."""

import os
from pathlib import Path

import pytest

from hostelry.base.errors import TerminalError
from hostelry.cli.artifacts.files import files_in


@pytest.mark.parametrize(
    ("target", "is_folder"),
    [
        pytest.param("outside.txt", False, id="a file"),
        pytest.param("outside", True, id="a folder"),
    ],
)
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, target: str, is_folder: bool) -> None:
    outside = tmp_path / target
    outside.mkdir() if is_folder else outside.write_text("secret")
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "weights").symlink_to(outside)
    with pytest.raises(TerminalError, match=r"weights is a link to .*outside the folder"):
        files_in(folder, "m")


def test_a_link_inside_is_followed_and_so_is_a_hub_snapshots_to_its_blobs(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--org--name" / "snapshots" / "abc"
    blobs = tmp_path / "models--org--name" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "123").write_text("{}")
    (snapshot / "config.json").symlink_to(Path("../../blobs/123"))
    (snapshot / "same.json").symlink_to("config.json")
    found = files_in(snapshot, "org/name")
    assert {it.name: it.path for it in found} == {
        "config.json": str(blobs / "123"), "same.json": str(blobs / "123"),
    }  # fmt: skip


def test_a_broken_link_and_a_pipe_are_refused(tmp_path: Path) -> None:
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    with pytest.raises(TerminalError, match="gone is no plain file"):
        files_in(tmp_path, "m")
    (tmp_path / "gone").unlink()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TerminalError, match="pipe is no plain file"):
        files_in(tmp_path, "m")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        pytest.param("pathlib.Path.open", "m: a/w cannot be read: Permission denied", id="a file"),
        pytest.param("os.scandir", "m: .*/a cannot be read: Permission denied", id="a folder"),
    ],
)
def test_what_cannot_be_read_is_named(
    call: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "w").write_text("")
    original = os.scandir

    def denied(path: object, *_: object) -> object:
        if Path(str(path)) == tmp_path:
            return original(tmp_path)
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(call, denied)
    with pytest.raises(TerminalError, match=text):
        files_in(tmp_path, "m")


def test_what_other_tools_leave_is_found_where_asked(tmp_path: Path) -> None:
    for name in (".git/config", "__pycache__/x.pyc", "a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert [it.name for it in files_in(tmp_path, "m")] == ["a"]
    every = files_in(tmp_path, "m", with_others=True)
    assert [it.name for it in every] == [".git/config", "__pycache__/x.pyc", "a"]


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostelry.cli.artifacts.files.MAX_FILES", 2)
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("")
    with pytest.raises(TerminalError, match="more than 2 files"):
        files_in(tmp_path, "m")
