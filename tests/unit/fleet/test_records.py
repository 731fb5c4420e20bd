import os
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.base.files import REGIONS, region_prefix, write_whole
from hostelry.base.proc import ProcessIdentity
from hostelry.domain.copy import CopySpec
from hostelry.domain.model import Container
from hostelry.fleet.agent.agent import is_worth_reporting
from hostelry.fleet.records import (
    CopyFolder,
    CopyRecord,
    InstanceFolder,
    plain_name,
)
from hostelry.fleet.rules.images import LMI_RULE

SPEC = CopySpec(
    id="c-1",
    owner="component/x",
    container=Container(image="lmi", environment={"HF_TOKEN": "secret"}),
    requirements=None,
    download_timeout_s=60.0,
    startup_timeout_s=60.0,
)


@pytest.mark.parametrize("name", ["i-0123", "c-abc.D_e", "x" * 128])
def test_plain_names_pass(name: str) -> None:
    assert plain_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "-x", ".x", "a\0b", "x" * 129, "ü"])
def test_other_names_never_become_paths(name: str) -> None:
    with pytest.raises(TerminalError, match="is not an id"):
        plain_name(name)


def test_desired_copies_come_back_as_they_were_written(tmp_path: Path) -> None:
    folder = InstanceFolder(tmp_path)
    assert folder.load_desired() is None
    folder.save_desired((SPEC,))
    assert folder.load_desired() == (SPEC,)
    assert folder.desired.stat().st_mode & 0o077 == 0, "it may hold a container's secrets"


def test_a_copys_record_comes_back_with_its_rule(tmp_path: Path) -> None:
    record = CopyRecord(
        spec_digest="d",
        process=ProcessIdentity(pid=1, start_ticks=2, boot_id="b"),
        port=3,
        adapters=("es@1",),
        rule=LMI_RULE,
    )
    CopyFolder(tmp_path).save(record)
    assert CopyFolder(tmp_path).load() == record


def test_a_copys_shared_memory_goes_with_its_folder(tmp_path: Path) -> None:
    folder = CopyFolder(tmp_path / "copy")
    own = REGIONS / f"{region_prefix(folder.root)}of-a-test"
    other = REGIONS / f"{region_prefix(tmp_path / 'other')}of-a-test"
    folder.root.mkdir()
    try:
        own.touch()
        other.touch()
        folder.remove()
        assert (folder.root.exists(), own.exists(), other.exists()) == (False, False, True)
    finally:
        own.unlink(missing_ok=True)
        other.unlink(missing_ok=True)


@pytest.mark.parametrize("text", [b"", b"{", b"3", b'{"pid": "x"}', b"\xff"])
def test_a_torn_record_is_no_record(tmp_path: Path, text: bytes) -> None:
    folder = InstanceFolder(tmp_path)
    for path in (folder.agent, folder.starting, folder.desired, CopyFolder(tmp_path).record):
        path.write_bytes(text)
    assert folder.load_agent() is None
    assert folder.load_starting() is None
    assert folder.load_desired() is None
    assert CopyFolder(tmp_path).load() is None


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_whole(path, b"old")
    # A folder where the scratch file would be: the write fails before anything is replaced.
    (tmp_path / f".x.json.{os.getpid()}").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"


@cases(
    "known, measured, expected",
    case("the first measurement", 0, 50 * 2**20, True),
    case("a MiB more of a GiB", 2**30, 2**30 + 2**20, False),
    case("an eighth more", 2**30, 2**30 + 2**27, True),
    case("gone", 2**30, 0, True),
    case("twice of nearly nothing", 2**20, 2 * 2**20, False),
)
def test_memory_is_reported_when_it_moved(known: int, measured: int, expected: bool) -> None:
    assert is_worth_reporting(known, measured) is expected
