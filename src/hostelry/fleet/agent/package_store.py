"""The packages of an instance's copies on disk: sets, what uses them, and the versions they have.

    packages/KEY/site/...       one set, published whole by a rename, read-only
    packages/KEY/record.json    how many files and bytes it has; its time is that of its last use
    packages/.making-...        being made; removed at the next start
    copies/COPY_ID/packages     a link to KEY: the copy uses it, so that it is not removed
    LOCKS/KEY.txt               its packages by version and hash, which all later ones get

Knows nothing of uv. Blocking calls, by one process, the agent.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.base.files import write_whole
from hostelry.base.json import decode
from hostelry.fleet.records import CopyFolder, InstanceFolder
from hostelry.fleet.rules.code_packages import (
    InstalledSet,
    PackageLimits,
    room_bytes,
    sets_to_remove,
)

MAKING = ".making-"
RECORD = "record.json"
SITE = "site"
UV_LOCK = ".lock"  # uv's own, which any process could write


class PackageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """record.json: the size of what was published."""

    num_files: int
    num_bytes: int


class PackageStore:
    """The packages of one instance. Raises OSError where the disk does not take them."""

    def __init__(self, instance: InstanceFolder, limits: PackageLimits) -> None:
        """Removes what a previous agent had not finished."""
        self.limits = limits
        self.folder = instance.packages
        self._copies = instance.copies
        self._locks = instance.package_locks
        for left in self.folder.glob(f"{MAKING}*"):
            remove_tree(left)

    def use(self, copy: CopyFolder, key: str | None) -> None:
        """Note that the copy uses this set, which need not be there yet; or none."""
        copy.packages.unlink(missing_ok=True)
        if key is not None:
            copy.packages.symlink_to(key)

    def find(self, key: str, now: float) -> Path | None:
        """The set's packages, marked as used now; None where they are not there whole."""
        root = self.folder / key
        record = _load(root)
        if record is None or _measured(root / SITE) != record:
            return None
        os.utime(root / RECORD, (now, now))
        return root / SITE

    def lock(self, key: str) -> Path:
        """The file of the set's versions and hashes, whether it is there or not."""
        return self._locks / f"{key}.txt"

    def keep_lock(self, key: str, text: str) -> None:
        """Keep versions and hashes, unless another agent was first. The oldest locks go."""
        self._locks.mkdir(mode=0o700, parents=True, exist_ok=True)
        mine = self._locks / f".{key}.{os.getpid()}"
        write_whole(mine, text.encode())
        try:
            with suppress(FileExistsError):
                os.link(mine, self.lock(key))
        finally:
            mine.unlink()
        by_age = sorted(self._locks.glob("*.txt"), key=lambda it: it.stat().st_mtime)
        for old in by_age[: -self.limits.locks]:
            old.unlink(missing_ok=True)

    def begin(self) -> Path:
        """A new folder to make a set in, which no other user can enter."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o711)
        return Path(tempfile.mkdtemp(prefix=MAKING, dir=self.folder))

    def publish(self, key: str, made: Path) -> Path:
        """Make `made`/site the set: read-only, for all to read. Raises TerminalError."""
        site = made / SITE
        (site / UV_LOCK).unlink(missing_ok=True)
        for path, found in list(_entries(site)):
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                raise TerminalError(f"a package has {path.name}, which is no file and no folder")
            path.chmod(0o555 if found.st_mode & 0o111 else 0o444)
        site.chmod(0o555)
        (made / RECORD).write_bytes(msgspec.json.encode(_measured(site)))
        os.sync()
        made.chmod(0o711)
        remove_tree(self.folder / key)
        made.rename(self.folder / key)
        return self.folder / key / SITE

    def remove_unused(self, now: float) -> None:
        """Remove the sets that no copy uses and that are old, or too many."""
        in_use = self.in_use()
        for key in in_use:  # from now on, once no copy uses it
            with suppress(OSError):
                os.utime(self.folder / key / RECORD, (now, now))
        for key in sets_to_remove(self._sets(), in_use, now, self.limits):
            remove_tree(self.folder / key)

    def make_room(self) -> bool:
        """Remove all that no copy uses; whether there was anything."""
        in_use = self.in_use()
        unused = [it.key for it in self._sets() if it.key not in in_use]
        for key in unused:
            remove_tree(self.folder / key)
        return bool(unused)

    def room_bytes(self) -> int:
        """The bytes that one more set may take."""
        return room_bytes(self._sets(), self.in_use(), self.limits)

    def free_bytes(self) -> int:
        """The free bytes of its disk."""
        return shutil.disk_usage(self.folder).free

    def in_use(self) -> set[str]:
        """The sets that copies use."""
        links = (CopyFolder(it).packages for it in _children(self._copies))
        return {os.readlink(it) for it in links if it.is_symlink()}

    def _sets(self) -> list[InstalledSet]:
        found = []
        for root in _children(self.folder):
            record = None if root.name.startswith(".") else _load(root)
            if record is not None:
                used_at = (root / RECORD).stat().st_mtime
                found.append(
                    InstalledSet(key=root.name, num_bytes=record.num_bytes, used_at=used_at)
                )
        return found


def tree_bytes(folder: Path) -> int:
    """The bytes that a folder's files take; of one with several names once."""
    seen = {}
    for _, found in _entries(folder):
        seen[found.st_ino] = found.st_blocks * 512
    return sum(seen.values())


def remove_tree(folder: Path) -> None:
    """Remove a folder, also a read-only one; what cannot be removed stays, without its record."""
    with suppress(OSError):
        (folder / RECORD).unlink(missing_ok=True)
    for path, found in list(_entries(folder)):
        if stat.S_ISDIR(found.st_mode):
            with suppress(OSError):
                path.chmod(0o700)
    with suppress(OSError):
        (folder / SITE).chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _load(root: Path) -> PackageRecord | None:
    try:
        return decode((root / RECORD).read_bytes(), PackageRecord)
    except (OSError, msgspec.DecodeError):
        return None


def _measured(site: Path) -> PackageRecord:
    sizes = [it.st_size for _, it in _entries(site) if stat.S_ISREG(it.st_mode)]
    return PackageRecord(num_files=len(sizes), num_bytes=sum(sizes))


def _children(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def _entries(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Everything below the folder; links are not followed, what goes meanwhile is left out."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent) / name
            with suppress(FileNotFoundError):
                yield path, path.lstat()
