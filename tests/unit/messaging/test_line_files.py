"""Files that subscribe to topics."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.messaging.line_files import OLD_FILES, LineFiles, build_line, is_file_name


@pytest.mark.parametrize(
    ("name", "is_name"),
    [
        ("a.jsonl", True),
        ("team_1-x.jsonl", True),
        ("a.txt", False),
        (".jsonl", False),
        ("../a.jsonl", False),
        ("a/b.jsonl", False),
        ("/etc/a.jsonl", False),
        ("a.jsonl\n", False),
        ("a\x00.jsonl", False),
        ("x" * 101 + ".jsonl", False),
        ("", False),
    ],
)
def test_names_lead_out_of_no_folder(name: str, is_name: bool) -> None:
    assert is_file_name(name) is is_name


def test_each_message_is_a_line(tmp_path: Path) -> None:
    files = LineFiles(tmp_path / "topics")
    files.append("a.jsonl", '{\n  "b": "ä"\n}')
    files.append("a.jsonl", "two\nlines")
    path = tmp_path / "topics" / "a.jsonl"
    assert path.read_text() == '{"b":"ä"}\n"two\\nlines"\n'
    assert path.stat().st_mode & 0o777 == 0o600


def test_half_a_surrogate_pair_is_written_as_its_escape() -> None:
    assert build_line('{"a": "\\ud800"}') == b'{"a":"\\ud800"}\n'


def test_a_line_that_a_kill_cut_off_stays_alone(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('"one"\n"tw')
    LineFiles(tmp_path).append("a.jsonl", "two")
    assert (tmp_path / "a.jsonl").read_text().splitlines() == ['"one"', '"tw', '"two"']


@cases(
    "limit_bytes",
    case("the disk has no room for a byte", 2),
    case("the disk has room for a part of the line", 6),
    case("the disk has room for all but the end of the line", 10),
    case("the disk does not confirm the line", None),
)
def test_a_line_that_the_disk_refuses_leaves_no_part_and_is_written_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit_bytes: int | None
) -> None:
    files, path = LineFiles(tmp_path), tmp_path / "a.jsonl"
    files.append("a.jsonl", "1")
    with monkeypatch.context() as patch, file_limit(limit_bytes):
        if limit_bytes is None:
            patch.setattr(os, "fsync", refused)
        with pytest.raises(OSError, match=r"large|refused"):
            files.append("a.jsonl", "second")
    assert path.read_text() == "1\n"
    files.append("a.jsonl", "second")
    assert path.read_text() == '1\n"second"\n'


@contextmanager
def file_limit(limit_bytes: int | None) -> Iterator[None]:
    """Limit the files of this process to `num_bytes`."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    soft = before[0] if limit_bytes is None else limit_bytes
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def refused(descriptor: int) -> None:
    raise OSError("refused")


def test_a_full_file_is_renamed_and_the_oldest_removed(tmp_path: Path) -> None:
    files = LineFiles(tmp_path, max_file_bytes=1)
    for number in range(10):
        files.append("a.jsonl", f"{number}")
    found = {it.name: it.read_text() for it in tmp_path.iterdir()}
    assert found == {"a.jsonl": "9\n", "a.jsonl.1": "8\n", "a.jsonl.2": "7\n", "a.jsonl.3": "6\n"}
    assert len(found) == OLD_FILES + 1


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("")
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic"):
        LineFiles(tmp_path).append("a.jsonl", "x")
    assert build_line("[" * 100_000).startswith(b'"[[')
