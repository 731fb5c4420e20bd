import gzip
import os
import tarfile
from pathlib import Path

import pytest
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


@pytest.mark.parametrize(
    "archive",
    [pytest.param(targz(HONEST), id="tar.gz"), pytest.param(tar(HONEST), id="plain tar")],
)
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


@pytest.mark.parametrize(
    ("archive", "text"),
    [
        pytest.param(targz([Member(name="/etc/passwd")]), "'/etc/passwd' has an absolute", id="/"),
        pytest.param(targz([Member(name="../up")]), "'../up' leaves", id="parent"),
        pytest.param(targz([Member(name="a/../../up")]), "leaves", id="parent further in"),
        pytest.param(
            targz([Member(name="l", kind=tarfile.SYMTYPE, link="/etc"), Member(name="l/x")]),
            "'l' is a symbolic link",
            id="a link, then a file through it",
        ),
        pytest.param(
            targz([Member(name="l", kind=tarfile.LNKTYPE, link="/etc/passwd")]),
            "'l' is a hard link",
            id="hard link",
        ),
        pytest.param(targz([Member(name="d", kind=tarfile.CHRTYPE)]), "character dev", id="char"),
        pytest.param(targz([Member(name="d", kind=tarfile.BLKTYPE)]), "block device", id="block"),
        pytest.param(targz([Member(name="p", kind=tarfile.FIFOTYPE)]), "named pipe", id="fifo"),
        pytest.param(targz([Member(name="q", kind=b"Q")]), "unknown type b'Q'", id="odd type"),
        pytest.param(
            pax_targz("s", b"x", {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}),
            "archive",
            id="a sparse file that may claim any size",
        ),
        pytest.param(targz([Member(name="a"), Member(name="./a")]), "'a' comes twice", id="twice"),
        pytest.param(
            targz([Member(name="\u00e9"), Member(name="e\u0301")]),
            "comes twice",
            id="twice, in two Unicode forms",
        ),
        pytest.param(
            targz([Member(name="a"), Member(name="a/b")]), "below the file 'a'", id="file as folder"
        ),
        pytest.param(
            targz([Member(name="a/b"), Member(name="a")]), "comes twice", id="folder as file"
        ),
        pytest.param(targz([Member(name="x" * 256)]), "too long a name", id="a name too long"),
        pytest.param(targz([Member(name="x/" * 600 + "y")]), "too long a name", id="path too long"),
        pytest.param(
            targz([Member(name="\udcff\udcfe")]), "not UTF-8", id="a name that is no text"
        ),
        pytest.param(
            pax_targz("a", b"x", {"path": "../b"}), "leaves", id="a path in an extended header"
        ),
        pytest.param(targz([Member(name=str(n)) for n in range(6)]), "more than 5", id="members"),
        pytest.param(
            targz([Member(name="a/b/c/d/e", kind=tarfile.DIRTYPE), Member(name="f/g")]),
            "more than 5 files and folders",
            id="folders that paths imply",
        ),
        pytest.param(
            targz([Member(name="a/" * 64 + "b")]), "65 folders deep; 64", id="folders too deep"
        ),
        pytest.param(targz([Member(name="a", body=b"x" * 6001)]), "6000 are allowed", id="member"),
        pytest.param(
            targz([Member(name=str(n), body=os.urandom(4000)) for n in range(3)]),
            "more than 10000 bytes, at member '2'",
            id="total size",
        ),
        pytest.param(targz([Member(name="a", size=2**50)]), "bytes", id="a size that is a lie"),
        pytest.param(targz([Member(name="a", size=-5)]), "size of -5", id="a negative size"),
        pytest.param(oversized_header(), "extended header of", id="an endless extended header"),
        pytest.param(HALF, "cut off or corrupt", id="half of it"),
        pytest.param(bytes(DAMAGED), "cut off or corrupt", id="a wrong checksum at the very end"),
        pytest.param(MID_JUNK, "cut off or corrupt", id="junk in the middle"),
        pytest.param(
            gzip.compress(header(Member(name="a")) + header(Member(name="b", size=600))),
            "archive",
            id="no end mark",
        ),
        pytest.param(gzip.compress(b""), "archive", id="an empty stream"),
        pytest.param(b"", "neither", id="an empty file"),
        pytest.param(b"PK\x03\x04" + b"x" * 600, "zip archive", id="zip"),
        pytest.param(b"#!/bin/sh\n" * 60, "neither", id="something else"),
        pytest.param(gzip.compress(b"hello" * 200), "corrupt", id="gzip of something else"),
        pytest.param(gzip.compress(b"\0" * 512 + b"x" * 5000), "empty", id="an end at the start"),
    ],
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


@pytest.mark.parametrize(
    "archive",
    [
        pytest.param(tar([Member(name="a", body=b"x" * 3001)]), id="by its header"),
        pytest.param(tar([Member(name="a"), Member(name="b", size=3001)]), id="by a header's word"),
    ],
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
