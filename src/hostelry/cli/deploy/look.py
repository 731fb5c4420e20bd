"""Looks at a source on this machine: a folder, a file, an archive."""

import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from hostelry.base.errors import TerminalError
from hostelry.cli.deploy.found import (
    HEAD_BYTES,
    TAIL_BYTES,
    TEXT_BYTES,
    TEXT_NAMES,
    Found,
    FoundFile,
    Origin,
    is_model_name,
)

MAX_FILES = 10_000
MAX_HEADS = 32
# What other tools leave in a folder; none of it is part of a model.
OTHERS = ("__pycache__", "node_modules")
# Of a Hugging Face folder with safetensors: the same weights in forms that nothing reads.
OTHER_WEIGHTS: tuple[str, ...] = (".bin", ".h5", ".msgpack", ".ot", ".gguf", ".onnx", ".pth", ".pt")


def look_at_folder(folder: Path, given: str) -> Found:
    """What is in a folder. Raises TerminalError for links out of it, and for too many files."""
    inside = allowed_roots(folder)
    every: list[FoundFile] = []
    for path, name in walked(folder):
        target = Path(os.path.realpath(path))
        if not any(target.is_relative_to(it) for it in inside):
            raise TerminalError(
                f"{given}: {name} is a link to {target}, outside the folder: put the file itself "
                "there, or remove the link"
            )
        if not target.is_file():
            raise TerminalError(f"{given}: {name} is no plain file: remove it from the folder")
        every.append(FoundFile(name=name, size_bytes=target.stat().st_size, path=str(target)))
        if len(every) > MAX_FILES:
            raise TerminalError(
                f"{given} has more than {MAX_FILES} files: name the model's own folder"
            )
    files, left_out = deployed(every)
    heads = [it for it in files if is_model_name(it.name)][:MAX_HEADS]
    return Found(
        given=given,
        place=Origin.FOLDER,
        files=files,
        heads={it.name: head_of(Path(it.path)) for it in heads},
        texts=texts_of(files),
        left_out=left_out,
    )


def deployed(
    every: Sequence[FoundFile],
) -> tuple[tuple[FoundFile, ...], tuple[FoundFile, ...]]:
    """The files that are deployed, by name, and those that are left out."""
    top = {it.name for it in every}
    has_weights = any(it.endswith(".safetensors") and "/" not in it for it in top)
    others = OTHER_WEIGHTS if "config.json" in top and has_weights else ()
    out = [it for it in every if is_left_out(it.name) or it.name.endswith(others)]
    kept = [it for it in every if it not in out]
    return tuple(sorted(kept, key=lambda it: it.name)), tuple(out)


def look_at_file(path: Path, given: str) -> Found:
    """What a single model file is."""
    target = Path(os.path.realpath(path))
    if not target.is_file():
        raise TerminalError(f"{given} is neither a plain file nor a folder")
    found = FoundFile(name=path.name, size_bytes=target.stat().st_size, path=str(target))
    if not found.size_bytes:
        raise TerminalError(f"{given} is empty: there is nothing to deploy")
    return Found(given=given, place=Origin.FILE, files=(found,), heads={path.name: head_of(target)})


def look_at_archive(path: Path, given: str) -> Found:
    """What is in a .tar.gz; nothing is unpacked."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            found = read_archive(archive, given)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise TerminalError(f"{given} is no .tar.gz that can be read: {error}") from None
    size = path.stat().st_size
    own = FoundFile(name=path.name, size_bytes=size, path=os.path.realpath(path))
    return Found(
        given=given,
        place=Origin.ARCHIVE,
        files=found.files,
        heads=found.heads,
        texts=found.texts,
        archive=own,
    )


def read_archive(archive: tarfile.TarFile, given: str) -> Found:
    """Names, sizes and first bytes of an archive's members."""
    files: list[FoundFile] = []
    heads: dict[str, bytes] = {}
    texts: dict[str, str] = {}
    for member in archive:
        name = os.path.normpath(member.name)
        if not member.isfile() or is_left_out(name):
            continue
        if len(files) == MAX_FILES:
            raise TerminalError(f"{given} has more than {MAX_FILES} files")
        files.append(FoundFile(name=name, size_bytes=member.size))
        stream = archive.extractfile(member)
        if stream is None:
            continue
        if name in TEXT_NAMES and member.size <= TEXT_BYTES:
            texts[name] = stream.read().decode(errors="replace")
        elif is_model_name(name) and len(heads) < MAX_HEADS:
            heads[name] = stream.read(HEAD_BYTES + TAIL_BYTES)
    return Found(given=given, place=Origin.ARCHIVE, files=tuple(files), heads=heads, texts=texts)


def walked(folder: Path) -> Iterator[tuple[Path, str]]:
    """Each file below the folder, links too, with its name relative to it."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(it for it in folders if it not in OTHERS and not it.startswith("."))
        for linked in [it for it in folders if (Path(root) / it).is_symlink()]:
            names.append(linked)  # os.walk does not enter it: it is refused as a link or no file
        for name in sorted(names):
            path = Path(root) / name
            yield path, path.relative_to(folder).as_posix()


def allowed_roots(folder: Path) -> list[Path]:
    """The folder itself; of a snapshot in the hub's cache also the blobs that it links to."""
    own = Path(os.path.realpath(folder))
    blobs = own.parent.parent / "blobs"
    return [own, blobs] if own.parent.name == "snapshots" and blobs.is_dir() else [own]


def is_left_out(name: str) -> bool:
    """Whether a file is another tool's: hidden, or compiled Python."""
    return any(it.startswith(".") or it in OTHERS for it in name.split("/"))


def head_of(path: Path) -> bytes:
    """The first and the last bytes of a file."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        size = file.seek(0, 2)
        if size <= HEAD_BYTES:
            return head
        file.seek(max(HEAD_BYTES, size - TAIL_BYTES))
        return head + file.read()


def texts_of(files: Sequence[FoundFile]) -> dict[str, str]:
    """The small files that decide what a folder is, whole."""
    return {
        file.name: Path(file.path).read_text(encoding="utf-8", errors="replace")
        for file in files
        if file.name in TEXT_NAMES and file.size_bytes <= TEXT_BYTES
    }
