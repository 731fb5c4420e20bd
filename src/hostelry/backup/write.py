"""`hostelry backup`: a home's state into a folder that its owner alone can read."""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hostelry import __version__
from hostelry.backup.cut import CutFile, make_cut, one_backup
from hostelry.backup.manifest import (
    DATA,
    FORMAT,
    MANIFEST,
    UNFINISHED,
    BackedUpFile,
    BackupManifest,
    encode_manifest,
)
from hostelry.base.errors import TerminalError
from hostelry.base.files import sync_folder, write_whole
from hostelry.home.cut_off_copy import refuse_marked
from hostelry.home.home import Home, UpConfig
from hostelry.home.run_file import live_run_files, lock_home
from hostelry.home.store_option import place_shown

CHUNK_BYTES = 1024 * 1024
Report = Callable[[str, int, int], None]  # a file, bytes so far, bytes of all


def back_up(
    home: Home,
    config: UpConfig,
    folder: Path,
    report: Report,
    now: float,
    pause: Callable[[float], None],
) -> BackupManifest:
    """Write a backup of a home into a new or empty folder. The home may run.

    Raises TerminalError, and leaves nothing in the folder, if that is impossible.
    """
    check_home(home, config)
    check_place(home, folder)
    with ExitStack() as stack:
        stack.enter_context(one_backup(home))
        if not live_run_files(home):
            stack.enter_context(lock_home(home))  # it does not start meanwhile
        stack.enter_context(_new_folder(folder))
        files = stack.enter_context(make_cut(home, pause))
        check_room(folder, sum(it.num_bytes for it in files))
        written = _copy(files, folder / DATA, report)
        manifest = BackupManifest(
            format=FORMAT,
            version=__version__,
            created_at=now,
            s3_endpoint=config.s3_endpoint,
            files=tuple(written),
        )
        write_whole(folder / MANIFEST, encode_manifest(manifest))
    (folder / UNFINISHED).unlink(missing_ok=True)
    return manifest


def check_home(home: Home, config: UpConfig) -> None:
    """Raise TerminalError for a home whose state is elsewhere, or part of a copy."""
    refuse_marked(home)
    if config.is_gateway_host or config.host_name:
        raise TerminalError(
            f"{home.root} is a further host's home, which has no records: back up the home of the"
            " first host, and let this one join again"
        )
    if config.store_url is not None:
        raise TerminalError(
            f"the records of {home.root} are in PostgreSQL, {place_shown(home, config)}: back up"
            " that database with pg_dump, and keys, settings and objects by copying the home after"
            " `hostelry down`. `hostelry store copy --from URL --to HOME` makes a home that has all"
            " of it in its own files, which this command backs up"
        )


def check_place(home: Home, folder: Path) -> None:
    """Raise TerminalError for a folder that cannot have a backup of the home."""
    root, place = home.root.resolve(), folder.resolve()
    if place.is_relative_to(root) or root.is_relative_to(place):
        raise TerminalError(f"{folder} and the home {home.root} are in one another: choose another")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise TerminalError(f"{folder} is not a folder: choose another")
    if not folder.exists():
        return
    if folder.stat().st_uid != os.geteuid():  # who could put links where files are written
        raise TerminalError(f"{folder} is another user's: choose a new folder")
    if (folder / MANIFEST).exists():
        raise TerminalError(f"{folder} has a backup already: choose another folder, or remove it")
    names = set(os.listdir(folder)) - {"lost+found"}
    if names and UNFINISHED not in names:
        raise TerminalError(f"{folder} is not empty: choose a new or an empty folder")


def check_room(folder: Path, num_bytes: int) -> None:
    """Raise TerminalError if the disk of `folder` has less room than that."""
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if free < num_bytes:
        raise TerminalError(
            f"the disk of {folder} has {free} bytes free, and {num_bytes} are needed: choose"
            " another disk, or free some space"
        )


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Explain errors of the disk that `folder` is on, as TerminalError."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TerminalError(
                f"the disk of {folder} is full: free some space, or choose another disk"
            ) from error
        where = error.filename or folder
        raise TerminalError(f"{where}: {error.strerror or error}") from error


@contextmanager
def _new_folder(folder: Path) -> Iterator[None]:
    """Create the folder, empty and private. Empties it again if the block raises."""
    with disk_errors(folder):
        made = not folder.exists()
        make_private(folder)
        folder.chmod(0o700)
        shutil.rmtree(folder / DATA, ignore_errors=True)  # of a backup that was killed
        write_whole(folder / UNFINISHED, b"by `hostelry backup`, until it has ended\n")
        try:
            yield
        except BaseException:
            _empty(folder, made=made)
            raise


def _empty(folder: Path, *, made: bool) -> None:
    shutil.rmtree(folder / DATA, ignore_errors=True)
    for name in (MANIFEST, UNFINISHED):
        (folder / name).unlink(missing_ok=True)
    if made:
        folder.rmdir()


def _copy(files: list[CutFile], data: Path, report: Report) -> list[BackedUpFile]:
    total, before = sum(it.num_bytes for it in files), 0
    written, folders = [], {data}
    data.mkdir(mode=0o700)
    for file in files:
        target = data / file.path
        if target.parent not in folders:
            make_private(target.parent)
            folders.add(target.parent)
        copied = build_progress(report, file.path, before, total)
        copied(0)
        if file.database is not None:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            file.database.copy_to(target, copied)
            file.database.close()
            num_bytes, digest = sync_and_digest(target)
        else:
            num_bytes, digest = (
                file.num_bytes,
                copy_file(file.source, target, file.num_bytes, copied),
            )
        before += file.num_bytes
        written.append(BackedUpFile(path=file.path, num_bytes=num_bytes, sha256=digest))
    for folder in sorted(folders):
        sync_folder(folder)
    return written


def make_private(folder: Path) -> None:
    """Make a folder and those above it that are missing, for their owner alone."""
    for place in (*reversed(folder.parents), folder):
        place.mkdir(mode=0o700, exist_ok=True)


def build_progress(report: Report, path: str, done: int, total: int) -> Callable[[int], None]:
    """Build a callback for the bytes of one file. `done` bytes of `total` were before it."""
    return lambda num_bytes: report(path, done + num_bytes, total)


def copy_file(source: Path, target: Path, num_bytes: int, copied: Callable[[int], None]) -> str:
    """Copy the first `num_bytes` durably into a new private file, and return its digest.

    Raises TerminalError if there are fewer bytes.
    """
    digest, left = hashlib.sha256(), num_bytes
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with source.open("rb") as reader, os.fdopen(descriptor, "wb") as writer:
        while left > 0 and (chunk := reader.read(min(CHUNK_BYTES, left))):
            writer.write(chunk)
            digest.update(chunk)
            left -= len(chunk)
            copied(num_bytes - left)
        writer.flush()
        os.fsync(writer.fileno())
    if left > 0:
        raise TerminalError(f"{source} became {left} bytes shorter while it was copied")
    return digest.hexdigest()


def sync_and_digest(path: Path) -> tuple[int, str]:
    """Make a file durable, and return its size and digest."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return file.tell(), digest
