"""Values for found files, and for the objects that they become."""

import gzip
import hashlib
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import msgspec

from hostelry.base.errors import TerminalError

BLOCK_BYTES = 4 * 1024 * 1024
THREADS = 4
ARCHIVE_SUFFIXES = (".tar.gz", ".tgz")
Advance = Callable[[float], None]
"""Called with a number of bytes that are done, by several threads."""
MAX_FILES = 10_000
# Folders of other tools, which are not part of a model.
OTHERS = ("__pycache__", "node_modules")


class FoundFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a source: its name below the source, and the facts that identify its content.

    `path` is the local path of the file, and `modified_ns` its time of modification. A file in an
    archive or in S3 has an empty path and the time 0.
    """

    name: str
    size_bytes: int
    path: str = ""
    modified_ns: int = 0
    etag: str = ""


class ObjectOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An object that must exist: a file, or files packed into one .tar.gz.

    The key contains a digest of the content, so an object with this key and size is correct. Has no
    `size` if that is known only after packing.
    """

    key: str
    files: tuple[FoundFile, ...]
    packed: bool = False

    @property
    def size_bytes(self) -> int | None:
        """The object's size. None if the object is packed."""
        return None if self.packed else self.files[0].size_bytes

    @property
    def num_bytes(self) -> int:
        """The total size of its files."""
        return sum(it.size_bytes for it in self.files)


def digest_files(files: Iterable[FoundFile], advance: Advance = lambda _: None) -> dict[str, str]:
    """SHA-256 of each file by its path. `advance` is called with the number of bytes read."""
    paths = sorted({it.path for it in files if it.path})
    with ThreadPoolExecutor(THREADS) as threads:
        return dict(zip(paths, threads.map(lambda it: hash_file(it, advance), paths), strict=True))


def hash_file(path: str, advance: Advance = lambda _: None) -> str:
    """The SHA-256 of a file, in hexadecimal. Raises TerminalError if it cannot be read."""
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
    """Raise TerminalError if a file has changed since it was found."""
    try:
        facts = os.stat(file.path)
    except OSError as error:
        raise TerminalError(f"{file.path} cannot be read: {error.strerror}") from None
    if (facts.st_size, facts.st_mtime_ns) != (file.size_bytes, file.modified_ns):
        raise TerminalError(f"{file.path} has changed meanwhile: run the command again")


def pack_files(files: Iterable[FoundFile], path: Path) -> Path:
    """Pack the files into a .tar.gz, without the owner and the times of this machine.

    Raises TerminalError if a file cannot be read or has changed since it was found.
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


def files_in(folder: Path, given: str, *, with_others: bool = False) -> list[FoundFile]:
    """The files below a folder, ordered by name. `given` names the folder in errors.

    Hidden folders and folders of other tools are left out, unless `with_others`. Raises
    TerminalError for links out of the folder, special or unreadable files, and more than MAX_FILES.
    """
    roots = allowed_roots(folder)
    found: list[FoundFile] = []
    for path in _walk_files(folder, given, with_others=with_others):
        if len(found) == MAX_FILES:
            raise TerminalError(
                f"{given} has more than {MAX_FILES} files: name the model's own folder"
            )
        found.append(file_at(path, path.relative_to(folder).as_posix(), given, roots))
    return sorted(found, key=lambda it: it.name)


def file_at(path: Path, name: str, given: str, roots: Sequence[Path] = ()) -> FoundFile:
    """Describe a plain file. Raises TerminalError if it is outside all `roots` or unreadable."""
    target = Path(os.path.realpath(path))
    if roots and not any(target.is_relative_to(it) for it in roots):
        raise TerminalError(
            f"{given}: {name} is a link to {target}, outside the folder: put the file itself "
            "there, or remove the link"
        )
    try:
        if not target.is_file():
            raise TerminalError(f"{given}: {name} is no plain file: remove it from the folder")
        with target.open("rb") as file:
            facts = os.fstat(file.fileno())
    except OSError as error:
        raise TerminalError(f"{given}: {name} cannot be read: {error.strerror}") from None
    return FoundFile(
        name=name, size_bytes=facts.st_size, path=str(target), modified_ns=facts.st_mtime_ns
    )


def allowed_roots(folder: Path) -> list[Path]:
    """The folder itself. For a snapshot in the hub's cache, also the blobs that it links to."""
    own = Path(os.path.realpath(folder))
    blobs = own.parent.parent / "blobs"
    return [own, blobs] if own.parent.name == "snapshots" and blobs.is_dir() else [own]


def hub_folder(model_id: str, revision: str | None = None) -> Path | None:
    """The folder of a hub model in this machine's cache. None if the cache does not have it."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model_id, revision=revision, local_files_only=True))
    except (HFValidationError, LocalEntryNotFoundError, FileNotFoundError):
        return None


def _walk_files(folder: Path, given: str, *, with_others: bool) -> Iterator[Path]:
    """Each file below the folder, including links."""

    def unreadable(error: OSError) -> NoReturn:
        raise TerminalError(f"{given}: {error.filename} cannot be read: {error.strerror}")

    for root, folders, names in os.walk(folder, onerror=unreadable):
        if not with_others:
            folders[:] = [it for it in folders if it not in OTHERS and not it.startswith(".")]
        # A linked folder is not entered. The caller refuses it as a link or a special file.
        names += [it for it in folders if (Path(root) / it).is_symlink()]
        yield from (Path(root) / it for it in names)
