import gzip
import os
import tarfile
from pathlib import Path

import pytest
from tests.cases import case, cases
from tests.unit.base.tars import Member, header, padded, pax_targz, tar, targz

from hostelry.base.archive import ArchiveLimits, unpack
from hostelry.base.errors import RetryableError
from hostelry.base.files import UnsafeFilesError

SMALL = ArchiveLimits(
    max_members=5, max_total_bytes=10_000, max_member_bytes=6_000, ratio_floor_bytes=50_000
)
HONEST = [
    Member(name="./", kind=tarfile.DIRTYPE, mode=0o755),
    Member(name="./config.json", body=b"{}"),
    Member(name="adapters/es/adapter_config.json", body=b"es"),
    Member(name="run.sh", body=b"#!/bin/sh", mode=0o4755),
]


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def unpacked(tmp_path: Path, archive: bytes, limits: ArchiveLimits = SMALL) -> Path:
    packed = tmp_path / "packed"
    packed.write_bytes(archive)
    unpack(packed, tmp_path / "target", limits)
    return tmp_path / "target"


@cases("archive", case("tar.gz", targz(HONEST)), case("plain tar", tar(HONEST)))
def test_an_honest_archive_is_unpacked(tmp_path: Path, archive: bytes) -> None:
    assert files_of(unpacked(tmp_path, archive)) == {
        "config.json": b"{}",
        "adapters/es/adapter_config.json": b"es",
        "run.sh": b"#!/bin/sh",
    }


def test_setuid_is_stripped_and_execution_is_kept(tmp_path: Path) -> None:
    target = unpacked(tmp_path, targz(HONEST))
    assert oct((target / "run.sh").stat().st_mode & 0o7777) == "0o755"
    assert oct((target / "config.json").stat().st_mode & 0o7777) == "0o644"


def test_long_names_and_folders_named_twice_are_fine(tmp_path: Path) -> None:
    deep = "/".join(["folder" * 10] * 8) + "/file"
    folder = Member(name="a", kind=tarfile.DIRTYPE)
    members = [folder, folder, Member(name=deep, body=b"x")]
    target = unpacked(tmp_path, targz(members), ArchiveLimits())
    assert (target / deep).read_bytes() == b"x"


def test_extended_headers_are_read(tmp_path: Path) -> None:
    name = "ä" * 100 + "/modèle.bin"
    target = unpacked(tmp_path, pax_targz(name, b"weights", {"comment": "made by hand"}))
    assert (target / name).read_bytes() == b"weights"


def test_what_the_tar_program_writes_is_read(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "weights").write_bytes(os.urandom(3000))
    assert os.spawnlp(os.P_WAIT, "tar", "tar", "-czf", f"{tmp_path}/a", "-C", str(source), ".") == 0
    target = unpacked(tmp_path, (tmp_path / "a").read_bytes())
    assert files_of(target) == files_of(source)


def nested_headers(count: int) -> bytes:
    record = b"11 path=abc\n"
    one = header(Member(name="h", body=record, kind=tarfile.XHDTYPE)) + padded(record)
    return gzip.compress(one * count + tar([Member(name="x")]))


def oversized_header() -> bytes:
    return gzip.compress(header(Member(name="h", kind=tarfile.XHDTYPE, size=2**40)) + b"\0" * 1024)


BOMB = gzip.compress(header(Member(name="zeros", size=2**26)) + b"\0" * 2**26 + b"\0" * 1024)
DAMAGED = bytearray(targz([Member(name="a", body=os.urandom(2000))]))
DAMAGED[-6] ^= 0xFF
HALF = targz([Member(name="a", body=os.urandom(4000))])[:2000]
MID_JUNK = gzip.compress(
    header(Member(name="a")) + b"this is no header".ljust(512, b"!") + tar([Member(name="b")])
)


@cases(
    "archive, text",
    case("/", targz([Member(name="/etc/passwd")]), "'/etc/passwd' has an absolute"),
    case("parent", targz([Member(name="../up")]), "'../up' leaves"),
    case("parent further in", targz([Member(name="a/../../up")]), "leaves"),
    case(
        "a link, then a file through it",
        targz([Member(name="l", kind=tarfile.SYMTYPE, link="/etc"), Member(name="l/x")]),
        "'l' is a symbolic link",
    ),
    case(
        "hard link",
        targz([Member(name="l", kind=tarfile.LNKTYPE, link="/etc/passwd")]),
        "'l' is a hard link",
    ),
    case("char", targz([Member(name="d", kind=tarfile.CHRTYPE)]), "character dev"),
    case("block", targz([Member(name="d", kind=tarfile.BLKTYPE)]), "block device"),
    case("fifo", targz([Member(name="p", kind=tarfile.FIFOTYPE)]), "named pipe"),
    case("odd type", targz([Member(name="q", kind=b"Q")]), "unknown type b'Q'"),
    case(
        "a sparse file that may claim any size",
        pax_targz("s", b"x", {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}),
        "archive",
    ),
    case("twice", targz([Member(name="a"), Member(name="./a")]), "'a' comes twice"),
    case(
        "twice, in two Unicode forms",
        targz([Member(name="\u00e9"), Member(name="e\u0301")]),
        "comes twice",
    ),
    case("file as folder", targz([Member(name="a"), Member(name="a/b")]), "below the file 'a'"),
    case("folder as file", targz([Member(name="a/b"), Member(name="a")]), "comes twice"),
    case("a name too long", targz([Member(name="x" * 256)]), "too long a name"),
    case("path too long", targz([Member(name="x/" * 600 + "y")]), "too long a name"),
    case("a name that is no text", targz([Member(name="\udcff\udcfe")]), "not UTF-8"),
    case("a path in an extended header", pax_targz("a", b"x", {"path": "../b"}), "leaves"),
    case("members", targz([Member(name=str(n)) for n in range(6)]), "more than 5"),
    case(
        "folders that paths imply",
        targz([Member(name="a/b/c/d/e", kind=tarfile.DIRTYPE), Member(name="f/g")]),
        "more than 5 files and folders",
    ),
    case("folders too deep", targz([Member(name="a/" * 64 + "b")]), "65 folders deep; 64"),
    case("member", targz([Member(name="a", body=b"x" * 6001)]), "6000 are allowed"),
    case(
        "total size",
        targz([Member(name=str(n), body=os.urandom(4000)) for n in range(3)]),
        "more than 10000 bytes, at member '2'",
    ),
    case("a size that is a lie", targz([Member(name="a", size=2**50)]), "bytes"),
    case("a negative size", targz([Member(name="a", size=-5)]), "size of -5"),
    case("an endless extended header", oversized_header(), "extended header of"),
    case("half of it", HALF, "cut off or corrupt"),
    case("a wrong checksum at the very end", bytes(DAMAGED), "cut off or corrupt"),
    case("junk in the middle", MID_JUNK, "cut off or corrupt"),
    case(
        "no end mark",
        gzip.compress(header(Member(name="a")) + header(Member(name="b", size=600))),
        "archive",
    ),
    case("an empty stream", gzip.compress(b""), "archive"),
    case("an empty file", b"", "neither"),
    case("zip", b"PK\x03\x04" + b"x" * 600, "zip archive"),
    case("something else", b"#!/bin/sh\n" * 60, "neither"),
    case("gzip of something else", gzip.compress(b"hello" * 200), "corrupt"),
    case("an end at the start", gzip.compress(b"\0" * 512 + b"x" * 5000), "empty"),
)
def test_a_hostile_archive_is_refused_and_leaves_nothing(
    tmp_path: Path, archive: bytes, text: str
) -> None:
    with pytest.raises(UnsafeFilesError) as caught:
        unpacked(tmp_path, archive)
    assert text in str(caught.value)
    assert sorted(it.name for it in tmp_path.iterdir()) == ["packed"]


def test_a_bomb_is_refused_by_its_ratio_before_it_is_unpacked(tmp_path: Path) -> None:
    with pytest.raises(UnsafeFilesError, match="more than 200 times its size"):
        unpacked(tmp_path, BOMB, ArchiveLimits())


@cases(
    "archive",
    case("by its header", tar([Member(name="a", body=b"x" * 3001)])),
    case("by a header's word", tar([Member(name="a"), Member(name="b", size=3001)])),
)
def test_an_archive_larger_than_the_cache_is_refused_with_the_caches_bound(
    tmp_path: Path, archive: bytes
) -> None:
    with pytest.raises(UnsafeFilesError, match="more than 3000 bytes, of the cache"):
        unpacked(tmp_path, archive, SMALL.within(3000, ", of the cache"))
    assert sorted(it.name for it in tmp_path.iterdir()) == ["packed"]


def test_a_cache_larger_than_an_archive_may_be_changes_no_limit() -> None:
    assert SMALL.within(10_000, ", of the cache") == SMALL


def test_headers_upon_headers_upon_headers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsafeFilesError, match="unreadable header"):
        unpacked(tmp_path, nested_headers(3000), ArchiveLimits())


def test_well_packed_small_files_are_no_bomb(tmp_path: Path) -> None:
    archive = targz([Member(name="zeros", body=b"\0" * 2**22)])
    assert len(archive) * 200 < 2**22
    assert (unpacked(tmp_path, archive, ArchiveLimits()) / "zeros").stat().st_size == 2**22


def test_cancelling_leaves_nothing(tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    packed.write_bytes(targz(HONEST))

    def cancel() -> None:
        raise RetryableError("given up")

    with pytest.raises(RetryableError):
        unpack(packed, tmp_path / "target", SMALL, cancel)
    assert not (tmp_path / "target").exists()
