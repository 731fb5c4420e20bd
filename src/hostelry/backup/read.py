"""`hostelry backup verify` and `hostelry up --from`: a backup proved whole, and made a home."""

import hashlib
import os
import shutil
import stat
from pathlib import Path

from hostelry import __version__
from hostelry.backup.manifest import (
    DATA,
    MANIFEST,
    MAX_MANIFEST_BYTES,
    TOP_NAMES,
    BackedUpFile,
    BackupManifest,
    decode_manifest,
    problems_text,
)
from hostelry.backup.write import (
    Report,
    build_progress,
    check_room,
    copy_file,
    disk_errors,
    make_private,
)
from hostelry.base.errors import TerminalError
from hostelry.base.files import sync_folder
from hostelry.home.cut_off_copy import mark_restore, unmark_restore
from hostelry.home.home import Home, make_home
from hostelry.home.run_file import lock_home


def verify(folder: Path, report: Report) -> BackupManifest:
    """The manifest of a backup, every file of which is as it was written.

    Raises TerminalError, which names the files, if one was changed, cut, added or removed, and for
    a backup of a newer version.
    """
    manifest = read_manifest(folder)
    problems = [*_other_files(folder, manifest)]
    sizes = [(it, _size_problem(folder, it)) for it in manifest.files]
    problems += [problem for _, problem in sizes if problem is not None]
    total, done = manifest.num_bytes, 0
    for file, problem in sizes:
        report(file.path, done, total)
        if problem is None and _digest(folder / DATA / file.path) != file.sha256:
            problems.append(f"{file.path} was changed")
        done += file.num_bytes
    if problems:
        raise TerminalError(f"{folder} is no whole backup: {problems_text(problems)}")
    return manifest


def read_manifest(folder: Path) -> BackupManifest:
    """Read the manifest of a backup. Raises TerminalError."""
    path = folder / MANIFEST
    if not folder.is_dir():
        raise TerminalError(f"{folder} is not a folder")
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise TerminalError(f"{path} is no file: this is no whole backup")
        with path.open("rb") as file:
            body = file.read(MAX_MANIFEST_BYTES + 1)
    except FileNotFoundError:
        raise TerminalError(
            f"{folder} is no whole backup: it has no {MANIFEST}, which is written last. The backup"
            " was cut off, or this is another folder"
        ) from None
    except OSError as error:
        raise TerminalError(f"{path}: {error.strerror}") from error
    if len(body) > MAX_MANIFEST_BYTES:
        raise TerminalError(f"{path} was changed: it has more than {MAX_MANIFEST_BYTES} bytes")
    return decode_manifest(body, str(path), __version__)


def readable_by_others(folder: Path) -> bool:
    """Whether users other than the owner can enter a backup, which has keys."""
    return bool(stat.S_IMODE(folder.stat().st_mode) & 0o077)


def restore(folder: Path, root: Path, report: Report) -> BackupManifest:
    """Make a backup the state of an empty home, whose folder is made if it is missing.

    The home is marked until all is there: if this is killed, `up` refuses it until it is restored
    again. Raises TerminalError, with the home empty again, if the backup or the disk fails.
    """
    manifest = read_manifest(folder)
    home = make_home(root)
    with lock_home(home), disk_errors(home.root):
        if not home.cut_off_restore.exists():
            _check_empty(home)
        mark_restore(home)
        try:
            _clear(home)
            check_room(home.root, manifest.num_bytes)
            _restore_files(folder, manifest, home, report)
        except BaseException:
            _clear(home)
            unmark_restore(home)
            raise
        unmark_restore(home)
    return manifest


def _restore_files(folder: Path, manifest: BackupManifest, home: Home, report: Report) -> None:
    if problems := [*_other_files(folder, manifest)]:
        raise TerminalError(f"{folder} is no whole backup: {problems_text(problems)}")
    total, done, folders = manifest.num_bytes, 0, {home.root}
    for file in manifest.files:
        if problem := _size_problem(folder, file):
            raise TerminalError(f"{folder} is no whole backup: {problem}")
        target = home.root / file.path
        make_private(target.parent)
        folders.add(target.parent)
        copied = build_progress(report, file.path, done, total)
        digest = copy_file(folder / DATA / file.path, target, file.num_bytes, copied)
        if digest != file.sha256:
            raise TerminalError(f"{folder} is no whole backup: {file.path} was changed")
        done += file.num_bytes
    for place in sorted(folders):
        sync_folder(place)


def _check_empty(home: Home) -> None:
    kept = sorted(it for it in TOP_NAMES if _has_content(home.root / it))
    if kept:
        raise TerminalError(
            f"{home.root} is not an empty home: it has {', '.join(kept)}. Restore into another one"
            " (--home DIR), or move this one away"
        )


def _has_content(path: Path) -> bool:
    """True if there is a file. Empty folders, which `up` creates, do not count."""
    if path.is_dir() and not path.is_symlink():
        return any(names for _, _, names in os.walk(path))
    return path.exists() or path.is_symlink()


def _clear(home: Home) -> None:
    """Remove the files that a restore has written."""
    for name in TOP_NAMES:
        path = home.root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    home.make()


def _other_files(folder: Path, manifest: BackupManifest) -> list[str]:
    """The files below a backup's data that its manifest does not name."""
    known = {it.path for it in manifest.files}
    data, found = folder / DATA, []
    for place, folders, names in os.walk(data, followlinks=False):
        links = [it for it in folders if Path(place, it).is_symlink()]
        paths = (Path(place, it).relative_to(data).as_posix() for it in [*names, *links])
        found += [f"{shown(path)} is not one of its files" for path in paths if path not in known]
    return sorted(found)


def shown(path: str) -> str:
    """A path of others, which may have characters that move a terminal's cursor."""
    return path if path.isprintable() else ascii(path)


def _size_problem(folder: Path, file: BackedUpFile) -> str | None:
    try:
        found = (folder / DATA / file.path).lstat()
    except OSError:
        return f"{file.path} is missing"
    if not stat.S_ISREG(found.st_mode):
        return f"{file.path} is no file"
    if found.st_size != file.num_bytes:
        return f"{file.path} has {found.st_size} bytes, not {file.num_bytes}"
    return None


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TerminalError(f"{path}: {error.strerror}") from error
