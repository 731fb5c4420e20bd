"""Files of a local folder that may be uploaded: none outside of it, none that is no plain file."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from hostelry.base.errors import TerminalError
from hostelry.cli.artifacts.object_order import FoundFile

MAX_FILES = 10_000
# What other tools leave in a folder; none of it is part of a model.
OTHERS = ("__pycache__", "node_modules")


def files_in(folder: Path, given: str, *, with_others: bool = False) -> list[FoundFile]:
    """The files below a folder, in the order of their names; `given` is what errors call it.

    Folders that are hidden or another tool's are left out, unless `with_others`. Raises
    TerminalError for links out of the folder, for what is no file or cannot be read, and for more
    than MAX_FILES.
    """
    roots = allowed_roots(folder)
    found: list[FoundFile] = []
    for path in _walked(folder, given, with_others=with_others):
        if len(found) == MAX_FILES:
            raise TerminalError(
                f"{given} has more than {MAX_FILES} files: name the model's own folder"
            )
        found.append(file_at(path, path.relative_to(folder).as_posix(), given, roots))
    return sorted(found, key=lambda it: it.name)


def file_at(path: Path, name: str, given: str, roots: Sequence[Path] = ()) -> FoundFile:
    """A plain file, below one of the `roots` where there are some. Raises TerminalError."""
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
    """The folder itself; of a snapshot in the hub's cache also the blobs that it links to."""
    own = Path(os.path.realpath(folder))
    blobs = own.parent.parent / "blobs"
    return [own, blobs] if own.parent.name == "snapshots" and blobs.is_dir() else [own]


def hub_folder(model_id: str, revision: str | None = None) -> Path | None:
    """The folder of a hub model in the cache on this machine; None where it is not there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model_id, revision=revision, local_files_only=True))
    except (HFValidationError, LocalEntryNotFoundError, FileNotFoundError):
        return None


def _walked(folder: Path, given: str, *, with_others: bool) -> Iterator[Path]:
    """Each file below the folder, links too."""

    def unreadable(error: OSError) -> NoReturn:
        raise TerminalError(f"{given}: {error.filename} cannot be read: {error.strerror}")

    for root, folders, names in os.walk(folder, onerror=unreadable):
        if not with_others:
            folders[:] = [it for it in folders if it not in OTHERS and not it.startswith(".")]
        # A linked folder is not entered: it is refused as a link, or as no file.
        names += [it for it in folders if (Path(root) / it).is_symlink()]
        yield from (Path(root) / it for it in names)
