"""Looks at a source on this machine: a folder, a file, an archive."""

import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

from hostelry.base.errors import TerminalError
from hostelry.cli.artifacts.folder import MAX_FILES, OTHERS, file_at, files_in
from hostelry.cli.artifacts.object_order import FoundFile
from hostelry.cli.deploy.found import (
    HEAD_BYTES,
    TAIL_BYTES,
    TEXT_BYTES,
    TEXT_NAMES,
    Found,
    Origin,
    is_model_name,
)

MAX_HEADS = 32
# Of a Hugging Face folder with safetensors: the same weights in forms that nothing reads.
OTHER_WEIGHTS: tuple[str, ...] = (".bin", ".h5", ".msgpack", ".ot", ".gguf", ".onnx", ".pth", ".pt")


def look_at_folder(folder: Path, given: str) -> Found:
    """What is in a folder. Raises TerminalError for what `files_in` refuses."""
    files, left_out = deployed(files_in(folder, given))
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
    found = file_at(path, path.name, given)
    if not found.size_bytes:
        raise TerminalError(f"{given} is empty: there is nothing to deploy")
    heads = {path.name: head_of(Path(found.path))}
    return Found(given=given, place=Origin.FILE, files=(found,), heads=heads)


def look_at_archive(path: Path, given: str) -> Found:
    """What is in a .tar.gz; nothing is unpacked."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            found = read_archive(archive, given)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise TerminalError(f"{given} is no .tar.gz that can be read: {error}") from None
    return Found(
        given=given,
        place=Origin.ARCHIVE,
        files=found.files,
        heads=found.heads,
        texts=found.texts,
        archive=file_at(path, path.name, given),
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
