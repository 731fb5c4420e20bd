"""Contents of files: digests, and archives that have the same bytes for the same files."""

import gzip
import hashlib
import os
import tarfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hostelry.base.errors import TerminalError
from hostelry.cli.artifacts.object_order import FoundFile

BLOCK_BYTES = 4 * 1024 * 1024
THREADS = 4
ARCHIVE_SUFFIXES = (".tar.gz", ".tgz")
Advance = Callable[[float], None]
"""Called with a number of bytes that are done, by several threads."""


def digests_of(files: Iterable[FoundFile], advance: Advance = lambda _: None) -> dict[str, str]:
    """SHA-256 of each file by its path; `advance` is given bytes as they are read."""
    paths = sorted({it.path for it in files if it.path})
    with ThreadPoolExecutor(THREADS) as threads:
        return dict(zip(paths, threads.map(lambda it: sha256_of(it, advance), paths), strict=True))


def sha256_of(path: str, advance: Advance = lambda _: None) -> str:
    """The SHA-256 of a file, in hex. Raises TerminalError where it cannot be read."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb", buffering=0) as file:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
                advance(len(block))
    except OSError as error:
        raise TerminalError(f"{path} cannot be read: {error.strerror}") from None
    return digest.hexdigest()


def check_unchanged(file: FoundFile) -> None:
    """Raise TerminalError where a file is not what it was when it was found."""
    try:
        facts = os.stat(file.path)
    except OSError as error:
        raise TerminalError(f"{file.path} cannot be read: {error.strerror}") from None
    if (facts.st_size, facts.st_mtime_ns) != (file.size_bytes, file.modified_ns):
        raise TerminalError(f"{file.path} has changed meanwhile: run the command again")


def packed(files: Iterable[FoundFile], path: Path) -> Path:
    """A .tar.gz of the files, without the owner and the times of this machine.

    Raises TerminalError where one cannot be read, or is not what it was when it was found.
    """
    with (
        path.open("wb") as file,
        gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1, mtime=0, filename="") as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for found in files:
            member = tarfile.TarInfo(found.name)
            member.size = found.size_bytes
            try:
                with open(found.path, "rb") as source:
                    archive.addfile(member, source)
            except OSError as error:
                why = error.strerror or error
                raise TerminalError(f"{found.path} cannot be packed: {why}") from None
            check_unchanged(found)
    return path
