"""Untrusted archives and keys: unpacked within their folder and limits, or refused."""

import gzip
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.fuzz.conftest import Cases, assert_short
from tests.unit.base.tars import Member, header, padded, pax_targz, tar

from hostelry.base.archive import ArchiveLimits, unpack
from hostelry.base.files import UnsafeFilesError
from hostelry.containers.lmi.adapters.s3_fetcher import ADAPTER_FILES, unpack_adapter
from hostelry.domain.model import ArtifactSource, SourceKind
from hostelry.engine.lora.errors import AdapterError
from hostelry.fleet.artifacts.objects import ObjectFacts
from hostelry.fleet.artifacts.store import Version, local_paths

LIMITS = ArchiveLimits(
    max_members=12, max_total_bytes=20_000, max_member_bytes=9_000, ratio_floor_bytes=60_000,
    max_depth=6,
)  # fmt: skip
PARTS = (
    "a", "b", "model.safetensors", "..", ".", "", "\u00e9", "e\u0301", "A", "x" * 255, "x" * 256,
    "\0", "\udcff", "a\nb", "CON", "~", "-rf", "\u202e", *ADAPTER_FILES,
)  # fmt: skip
KINDS = (
    *(tarfile.REGTYPE,) * 12, *(tarfile.DIRTYPE,) * 4, tarfile.AREGTYPE, tarfile.LNKTYPE,
    tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE,
    tarfile.GNUTYPE_SPARSE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE,
    tarfile.XGLTYPE, b"Q", b"V",
)  # fmt: skip
SIZES = (0, 1, 511, 512, 513, -1, 9_001, 2**33, 2**63)


def test_an_archive_stays_in_its_folder_and_limits(cases: Cases, tmp_path: Path) -> None:
    packed, target = tmp_path / "within" / "packed", tmp_path / "within" / "target"
    packed.parent.mkdir()
    for random in cases(600):
        packed.write_bytes(archive(random))
        try:
            unpack(packed, target, LIMITS)
        except UnsafeFilesError as error:
            assert_short(error)
        if target.exists():
            found = list(target.rglob("*"))
            assert not any(it.is_symlink() for it in found)
            assert len(found) <= LIMITS.max_members
            assert sum(it.stat().st_size for it in found if it.is_file()) <= LIMITS.max_total_bytes
            assert max((len(it.relative_to(target).parts) for it in found), default=0) <= 6
            shutil.rmtree(target)
        assert [it.name for it in tmp_path.iterdir()] == ["within"]
        assert [it.name for it in packed.parent.iterdir()] == ["packed"]


def test_an_adapters_archive_gives_its_files_and_no_other(cases: Cases, tmp_path: Path) -> None:
    packed, into = tmp_path / "packed", tmp_path / "into"
    for random in cases(600):
        into.mkdir()
        packed.write_bytes(archive(random))
        try:
            unpack_adapter(packed, into, max_bytes=20_000)
        except AdapterError as error:
            assert_short(error)
        found = {it.name: it.lstat().st_size for it in into.iterdir()}
        assert found.keys() <= set(ADAPTER_FILES)
        assert sum(found.values()) <= 20_000
        assert {it.name for it in tmp_path.iterdir()} == {"packed", "into"}
        shutil.rmtree(into)


def test_the_keys_of_a_prefix_are_paths_below_a_folder(cases: Cases, tmp_path: Path) -> None:
    for random in cases(10_000):
        keys = [path(random) for _ in range(random.randint(1, 6))]
        facts = [ObjectFacts(bucket="b", key=f"p/{it}", size_bytes=1, etag="e") for it in keys]
        source = ArtifactSource(uri="s3://b/p/", kind=SourceKind.PREFIX)
        try:
            found = local_paths(Version(key="k", source=source, objects=tuple(facts)))
        except UnsafeFilesError as error:
            assert_short(error)
        else:
            assert len(set(found)) == len(keys)
            assert all((tmp_path / it).is_relative_to(tmp_path) for it in found)
            assert not any(part in ("", ".", "..") for it in found for part in it.split("/"))


def archive(random: Random) -> bytes:
    """An archive: of odd members, or damaged, as a tar or a .tar.gz."""
    if random.random() < 0.1:
        return pax(random)
    members = [member(random) for _ in range(random.randint(0, 14))]
    plain = tar(members) if random.random() < 0.8 else open_end(members)
    if random.random() < 0.5:
        plain = damaged(random, plain)
    if random.random() < 0.3:
        return plain
    compressed = gzip.compress(plain, 1)
    return damaged(random, compressed) if random.random() < 0.3 else compressed


def pax(random: Random) -> bytes:
    """A member whose extended headers contradict its own header."""
    values = ("../x", "/etc/x", "a" * 3_000, "9" * 400, "-1", "", "nan", "\u00e9", path(random))
    names = (
        "path",
        "linkpath",
        "size",
        "mtime",
        "GNU.sparse.major",
        "GNU.sparse.size",
        "hdrcharset",
    )
    headers = {random.choice(names): random.choice(values) for _ in range(random.randint(1, 3))}
    clean = {name: value.encode(errors="replace").decode() for name, value in headers.items()}
    return pax_targz("a", b"x" * random.choice((0, 1, 600)), clean)


def open_end(members: list[Member]) -> bytes:
    return b"".join(header(it) + padded(it.body) for it in members)


def member(random: Random) -> Member:
    body = bytes(random.choice((0, 1, 511, 600, 9_001)))
    return Member(
        name=path(random),
        body=body if random.random() < 0.8 else random.randbytes(len(body)),
        kind=random.choice(KINDS),
        link=path(random) if random.random() < 0.3 else "",
        mode=random.choice((0o644, 0o755, 0o7777, 0)),
        size=random.choice(SIZES) if random.random() < 0.1 else None,
    )


def path(random: Random) -> str:
    depth = random.choice((1, 1, 1, 2, 2, 3, 7, 60))
    root = random.choice(("",) * 9 + ("/",))
    return root + "/".join(random.choice(PARTS[:2] * 9 + PARTS) for _ in range(depth))


def damaged(random: Random, content: bytes) -> bytes:
    """The content with bytes changed, doubled, taken out or cut off."""
    changed = bytearray(content)
    for _ in range(random.randint(1, 6)):
        if not changed:
            break
        at = random.randrange(min(len(changed), random.choice((600, len(changed)))))
        change: Callable[[], None] = random.choice(
            (
                lambda at=at: changed.__setitem__(at, random.randrange(256)),
                lambda at=at: changed.__setitem__(slice(at, at), changed[at : at + 512]),
                lambda at=at: changed.__delitem__(slice(at, at + random.choice((1, 512)))),
                lambda at=at: changed.__delitem__(slice(at, None)),
            )
        )
        change()
    return bytes(changed)
