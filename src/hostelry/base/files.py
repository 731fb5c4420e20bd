"""Files: written whole and private, stamped to see changes, and untrusted trees held to limits."""

import hashlib
import os
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from hostelry.base.errors import TerminalError

# Files of services and of the model servers below them are for the owner alone.
PRIVATE_UMASK = 0o077


def read_at_most(path: Path, max_bytes: int) -> bytes | None:
    """The content of a file, or None if it is longer, as a device without an end is."""
    with path.open("rb") as file:
        data = file.read(max_bytes + 1)
    return data if len(data) <= max_bytes else None


def write_whole(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write `data` atomically, readable only by the owner.

    With `durable` it survives a power cut, which takes the disk some milliseconds.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        scratch.replace(path)
    except OSError:
        scratch.unlink(missing_ok=True)  # free the space: the disk may be full
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync the folder's entries to disk: a power cut may lose a new file otherwise."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


Stamp = tuple[int, int, int] | str


def get_stamp(path: Path) -> Stamp | None:
    """Return modification time (ns), size and inode, which differ if the content differs.

    None if the file does not exist. If the file cannot be read, the error's text.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return str(error)
    return (found.st_mtime_ns, found.st_size, found.st_ino)


MAX_DEPTH = 64
MAX_FOLDERS = 10_000
MAX_PATH_BYTES = 1024
MAX_NAME_BYTES = 255
SHOWN_CHARACTERS = 80


class UnsafeFilesError(TerminalError):
    """These files must not be stored. The message names the path and the limit."""


class FileTree(msgspec.Struct):
    """The paths so far. Names are compared in one Unicode form, as some file systems store them.

    `max_entries` bounds files and folders together, `max_folders` folders, including folders that
    a path only implies.
    """

    max_entries: int
    max_depth: int = MAX_DEPTH
    max_folders: int = MAX_FOLDERS
    files: set[str] = msgspec.field(default_factory=set)
    folders: set[str] = msgspec.field(default_factory=set)

    def enter(self, parts: list[str], *, is_folder: bool) -> None:
        """Add a path. A folder may come again. Raises UnsafeFilesError naming path and limit."""
        name = unicodedata.normalize("NFC", "/".join(parts))
        quoted = quote(name)
        if len(parts) > self.max_depth:
            raise UnsafeFilesError(
                f"{quoted} lies {len(parts)} folders deep; {self.max_depth} are allowed"
            )
        ends = name.split("/")
        above = {"/".join(ends[:depth]) for depth in range(1, len(ends))}
        if name in self.files or (name in self.folders and not is_folder):
            raise UnsafeFilesError(f"{quoted} comes twice")
        if blocked := above & self.files:
            raise UnsafeFilesError(f"{quoted} lies below the file {quote(min(blocked))}")
        self.folders |= above
        (self.folders if is_folder else self.files).add(name)
        if len(self.folders) > self.max_folders:
            raise UnsafeFilesError(
                f"its paths make more than {self.max_folders} folders, at {quoted}"
            )
        if len(self.files) + len(self.folders) > self.max_entries:
            raise UnsafeFilesError(
                f"its paths make more than {self.max_entries} files and folders, at {quoted}"
            )


def check_lengths(parts: list[str], name: str) -> None:
    """Raise UnsafeFilesError for a path, or a part of one, that is too long or no UTF-8."""
    try:
        sizes = [len(part.encode("utf-8")) for part in parts]
    except UnicodeEncodeError as error:
        raise UnsafeFilesError(f"{quote(name)} is not UTF-8") from error
    if max(sizes, default=0) > MAX_NAME_BYTES or sum(sizes) + len(sizes) > MAX_PATH_BYTES:
        raise UnsafeFilesError(
            f"{quote(name)} is too long a name: {MAX_NAME_BYTES} bytes a part and "
            f"{MAX_PATH_BYTES} in all are allowed"
        )


def quote(name: str) -> str:
    """Quote the name for a message, and shorten it to a line."""
    return repr(name) if len(name) <= SHOWN_CHARACTERS else f"{name[:SHOWN_CHARACTERS]!r}..."


# Shared memory outlives the processes that use it. The prefix identifies a copy's regions, so that
# they can be removed after its server was killed.
REGIONS = Path("/dev/shm")


def region_prefix(folder: Path) -> str:
    """Return the prefix of the names of the shared memory of a copy's folder."""
    return f"hostelry-{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}-"


def remove_regions(prefix: str, regions: Path = REGIONS) -> int:
    """Remove the regions whose names begin with `prefix`, and return their number."""
    found = list(_regions(prefix, regions))
    for file in found:
        with suppress(OSError):
            file.unlink(missing_ok=True)
    return len(found)


def close_regions(prefix: str, regions: Path = REGIONS) -> None:
    """Make the regions whose names begin with `prefix` accessible to their owner only."""
    for file in _regions(prefix, regions):
        with suppress(OSError):
            file.chmod(0o600)


def _regions(prefix: str, regions: Path) -> Iterator[Path]:
    with suppress(OSError):
        for file in regions.iterdir():
            if file.name.startswith(prefix):
                yield file


def user_folder(below: str, instead: str) -> Path:
    """Return the folder `~/below`. `instead` is the advice for a user without a home folder.

    Raises TerminalError if the user has no home folder.
    """
    try:
        return Path.home() / below
    except RuntimeError:
        raise TerminalError(
            f"~/{below} cannot be found: user {os.getuid()} has no home folder. Set HOME, or "
            f"{instead}"
        ) from None


def expand_user(path: str | Path) -> Path:
    """Replace `~` and `~user` in `path`. Raises TerminalError if that user has no home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise TerminalError(
            f"{path} cannot be found: that user has no home folder here. Name the whole path"
        ) from None
