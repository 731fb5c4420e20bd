"""The trail in files: it survives kills and full disks, and can be verified after each."""

import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.cases import case, cases
from tests.unit.audit.samples import KEY, chain

from hostelry.audit.chain import ChainHead, SealedFile, StoredLine, TrailAnchor
from hostelry.audit.check import ChainCheck
from hostelry.audit.file_writer import FileLimits, TrailFiles
from hostelry.audit.folder import TrailFolder
from hostelry.base.errors import TerminalError

WRITER = """
import sys
from pathlib import Path
from tests.unit.audit.samples import KEY, chain
from hostelry.audit.file_writer import FileLimits, TrailFiles

files = TrailFiles(Path(sys.argv[1]), KEY, FileLimits(max_file_bytes=20_000))
while True:
    lines = chain(1, files.head)
    files.append(lines)
    print(lines[-1].head.number, flush=True)
"""


def write(files: TrailFiles, count: int) -> list[StoredLine]:
    lines = chain(count, files.head)
    files.append(lines)
    return lines


def verify(
    folder: Path, head: ChainHead | None = None, anchor: TrailAnchor | None = None
) -> list[str]:
    check = ChainCheck(KEY, anchor, () if head is None else (head,))
    for place, lines in TrailFolder(folder).read_forwards():
        check.begin_file()
        for number, line in enumerate(lines, start=1):
            check.take(line, f"{place}:{number}")
    check.finish()
    return [f"{it.kind} {it.place}" for it in check.problems]


def numbers(folder: Path, before: int | None = None) -> list[int]:
    return [it.number for it in TrailFolder(folder).read_backwards(before)]


def test_records_are_read_newest_first_across_files(tmp_path: Path) -> None:
    with closing(TrailFiles(tmp_path, KEY, FileLimits(max_file_bytes=3000))) as files:
        for _ in range(5):
            write(files, 7)
        assert len(files.reader.list_files()) > 3
        assert numbers(tmp_path) == list(range(35, 0, -1))
        assert numbers(tmp_path, before=12) == list(range(11, 0, -1))
        assert verify(tmp_path, files.head) == []
    names = sorted(it.name for it in tmp_path.glob("*.jsonl"))
    assert names[0] == "000000000001.jsonl"
    assert all(stat.S_IMODE(it.stat().st_mode) == 0o600 for it in tmp_path.iterdir())
    assert all(it.stat().st_size <= 3600 for it in tmp_path.glob("*.jsonl")), "a seal is above it"


def test_the_next_writer_continues(tmp_path: Path) -> None:
    for _ in range(4):
        with closing(TrailFiles(tmp_path, KEY, FileLimits(max_file_bytes=2000))) as files:
            write(files, 5)
            head = files.head
    assert head.number == 20
    assert verify(tmp_path, head) == []


def test_a_record_that_a_kill_cut_is_removed(tmp_path: Path) -> None:
    with closing(TrailFiles(tmp_path, KEY)) as files:
        write(files, 3)
    (path,) = tmp_path.glob("*.jsonl")
    path.write_bytes(path.read_bytes() + b'{"number":4,"prev')
    assert verify(tmp_path) == [], "a reader leaves it out"
    with closing(TrailFiles(tmp_path, KEY)) as files:
        assert files.head.number == 3
        write(files, 1)
        assert verify(tmp_path, files.head) == []


def test_an_empty_file_that_a_kill_left_is_filled(tmp_path: Path) -> None:
    with closing(TrailFiles(tmp_path, KEY)) as files:
        write(files, 3)
    (tmp_path / "000000000004.jsonl").touch()
    with closing(TrailFiles(tmp_path, KEY)) as files:
        assert files.head.number == 3
        write(files, 2)
        assert verify(tmp_path, files.head) == []
    assert (tmp_path / "000000000004.jsonl").stat().st_size > 0


def test_one_process_writes_a_folder(tmp_path: Path) -> None:
    with (
        closing(TrailFiles(tmp_path, KEY)),
        pytest.raises(TerminalError, match="another process writes"),
    ):
        TrailFiles(tmp_path, KEY, FileLimits(lock_wait_s=0.0))
    TrailFiles(tmp_path, KEY).close()


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    last = 0
    for _ in range(2):
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                last = int(line)
                if last % 150 == 0:
                    break
            process.kill()
            last = max([last, *(int(it) for it in process.stdout.read().split())])
    assert last >= 300
    with closing(TrailFiles(tmp_path, KEY)) as files:
        assert files.head.number >= last
        write(files, 1)
        assert verify(tmp_path, files.head) == []
    assert len(list(tmp_path.glob("*.jsonl"))) > 3


@contextmanager
def files_of_at_most(num_bytes: int) -> Iterator[None]:
    """Writes beyond the size fail, as on a full disk (EFBIG)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_leaves_no_part_of_a_record(tmp_path: Path) -> None:
    with closing(TrailFiles(tmp_path, KEY, FileLimits(reserve_bytes=100))) as files:
        write(files, 3)
        (path,) = tmp_path.glob("*.jsonl")
        before = path.read_bytes()
        with files_of_at_most(len(before) + 50), pytest.raises(OSError, match="No space left"):
            write(files, 1)
        assert path.read_bytes() == before
        assert files.head.number == 3
        assert not (tmp_path / "reserve").exists(), "its space was given to the record"
        write(files, 2)
        assert verify(tmp_path, files.head) == []


@cases(
    "retry_s, then",
    case("there is room again", 0.0, None),
    case("the next attempt is not due", 60.0, "the disk is full"),
)
def test_a_full_disk_is_reported_until_there_is_room(
    tmp_path: Path, retry_s: float, then: str | None
) -> None:
    limits = FileLimits(reserve_bytes=4096, retry_s=retry_s)
    with closing(TrailFiles(tmp_path, KEY, limits)) as files:
        assert files.find_trouble() is None
        with files_of_at_most(50):
            with pytest.raises(OSError, match="No space left"):
                write(files, 1)
            assert files.find_trouble() is not None, "the reserve cannot be made again"
        assert files.find_trouble() == then
        if then is not None:
            return
        assert (tmp_path / "reserve").stat().st_size == 4096
        write(files, 1)
        assert verify(tmp_path, files.head) == []


def test_old_files_are_removed_by_size_and_by_age(tmp_path: Path) -> None:
    with closing(TrailFiles(tmp_path, KEY, FileLimits(max_file_bytes=2000))) as files:
        for _ in range(6):
            write(files, 5)
        assert files.choose_old(10**9, 0.0) == []
        by_age = files.choose_old(10**9, 12.0)
        assert by_age
        assert all(it.until < 12.0 for it in by_age)
        by_size = files.choose_old(4000, 0.0)
        removed = by_size[-1].head
        files.remove(by_size)
        anchor = TrailAnchor(head=removed, removed_at=1.0, reason="")
        assert verify(tmp_path, files.head, anchor) == []
        assert verify(tmp_path, files.head)[0].startswith("removed")
        assert min(numbers(tmp_path)) == removed.number + 1
    with closing(TrailFiles(tmp_path, KEY)) as files:
        assert files.choose_old(0, 0.0)[-1].head.number < files.head.number, "one file stays"


def test_files_without_a_seal_are_sealed_at_the_next_start(tmp_path: Path) -> None:
    lines = chain(6)
    for first, part in ((1, lines[:3]), (4, lines[3:])):
        path = tmp_path / f"{first:012}.jsonl"
        path.write_bytes(b"".join(it.line + b"\n" for it in part))
    with closing(TrailFiles(tmp_path, KEY)) as files:
        assert files.head == lines[-1].head
        (old,) = files.choose_old(0, 0.0)
        assert isinstance(old, SealedFile)
        assert (old.first, old.head, old.since, old.until) == (1, lines[2].head, 1.0, 3.0)
        assert verify(tmp_path, files.head) == []


def test_sealed_files_without_a_wanted_source_are_not_read(tmp_path: Path) -> None:
    with closing(TrailFiles(tmp_path, KEY, FileLimits(max_file_bytes=1500))) as files:
        for _ in range(4):
            write(files, 4)
    wanted = frozenset({"other"})
    found = [it.number for it in TrailFolder(tmp_path).read_backwards(None, wanted)]
    (newest,) = sorted(tmp_path.glob("*.jsonl"))[-1:]
    assert found == numbers(tmp_path)[: len(found)]
    assert len(found) == newest.read_bytes().count(b"\n")
    assert os.path.getsize(newest) < 1500
