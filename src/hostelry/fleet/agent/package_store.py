"""The packages of an instance's copies on disk: sets, the copies that use them, and locks.

    packages/KEY/site/...       one set, published whole by a rename, read-only
    packages/KEY/record.json    its number of files and bytes. Its mtime is the last use
    packages/.making-...        an unfinished set, removed by the next agent
    copies/COPY_ID/packages     a link to KEY: the copy uses the set, which is not removed
    LOCKS/KEY.txt               versions and hashes, which later installations of the set get

Knows nothing of uv. Calls block. Only the agent's process makes them.
"""

import os
import secrets
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
    select_sets_to_remove,
)

MAKING = ".making-"
RECORD = "record.json"
SITE = "site"
UV_LOCK = ".lock"  # uv's own, which any process could write


class PackageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """record.json: the size of a published set."""

    num_files: int
    num_bytes: int


class PackageStore:
    """The packages of one instance. Raises OSError if the disk does not take them."""

    def __init__(self, instance: InstanceFolder, limits: PackageLimits) -> None:
        """Removes sets that a previous agent did not finish."""
        self.limits = limits
        self.folder = instance.packages
        self._copies = instance.copies
        self._locks = instance.package_locks
        self._own = f"{MAKING}{secrets.token_hex(4)}-"
        self._remove_unfinished()

    def use(self, copy: CopyFolder, key: str | None) -> None:
        """Record that the copy uses this set, which may not exist yet, or no set."""
        copy.packages.unlink(missing_ok=True)
        if key is not None:
            copy.packages.symlink_to(key)

    def find(self, key: str, now: float) -> Path | None:
        """The folder of the set's packages, marked as used now. None if the set is not whole."""
        root = self.folder / key
        record = _load(root)
        if record is None or _measure(root / SITE) != record:
            return None
        os.utime(root / RECORD, (now, now))
        return root / SITE

    def lock(self, key: str) -> Path:
        """The path of the set's versions and hashes. The file may not exist."""
        return self._locks / f"{key}.txt"

    def keep_lock(self, key: str, text: str) -> None:
        """Save versions and hashes, unless another agent was first. Removes the oldest locks."""
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
        """Create a folder for a new set, which no other user can enter."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o711)
        return Path(tempfile.mkdtemp(prefix=self._own, dir=self.folder))

    def publish(self, key: str, made: Path) -> Path:
        """Make `made`/site the set, read-only for all users. Raises TerminalError."""
        site = made / SITE
        (site / UV_LOCK).unlink(missing_ok=True)
        for path, found in list(_entries(site)):
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                raise TerminalError(f"a package has {path.name}, which is no file and no folder")
            path.chmod(0o555 if found.st_mode & 0o111 else 0o444)
        site.chmod(0o555)
        (made / RECORD).write_bytes(msgspec.json.encode(_measure(site)))
        os.sync()
        made.chmod(0o711)
        remove_tree(self.folder / key)
        made.rename(self.folder / key)
        return self.folder / key / SITE

    def remove_unused(self, now: float) -> None:
        """Remove sets that no copy uses and that are old or beyond the limits."""
        in_use = self.in_use()
        for key in in_use:  # from now on, once no copy uses it
            with suppress(OSError):
                os.utime(self.folder / key / RECORD, (now, now))
        for key in select_sets_to_remove(self._sets(), in_use, now, self.limits):
            remove_tree(self.folder / key)
        self._remove_unfinished()

    def _remove_unfinished(self) -> None:
        """Remove sets of an earlier agent. Its installer may write for a while after its kill."""
        for left in self.folder.glob(f"{MAKING}*"):
            if not left.name.startswith(self._own):
                remove_tree(left)

    def make_room(self) -> bool:
        """Remove all sets that no copy uses. False if nothing was removed."""
        in_use = self.in_use()
        unused = [it.key for it in self._sets() if it.key not in in_use]
        for key in unused:
            remove_tree(self.folder / key)
        return bool(unused)

    def room_bytes(self) -> int:
        """The bytes that another set may take."""
        return room_bytes(self._sets(), self.in_use(), self.limits)

    def free_bytes(self) -> int:
        """The free bytes of the store's disk."""
        return shutil.disk_usage(self.folder).free

    def in_use(self) -> set[str]:
        """The keys of the sets that copies use."""
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
    """The bytes that a folder's files take. A file with several names counts once."""
    seen = {}
    for _, found in _entries(folder):
        seen[found.st_ino] = found.st_blocks * 512
    return sum(seen.values())


def remove_tree(folder: Path) -> None:
    """Remove a folder, even if it is read-only. Its record goes first."""
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


def _measure(site: Path) -> PackageRecord:
    sizes = [it.st_size for _, it in _entries(site) if stat.S_ISREG(it.st_mode)]
    return PackageRecord(num_files=len(sizes), num_bytes=sum(sizes))


def _children(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def _entries(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """All entries below the folder. Does not follow links. Skips entries that vanish meanwhile."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent) / name
            with suppress(FileNotFoundError):
                yield path, path.lstat()
