"""Look at a source on this machine, in S3 or on the hub: list its files and read their heads."""

import os
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from botocore.exceptions import ClientError

from hostelry.base.errors import TerminalError
from hostelry.base.json import decode
from hostelry.cli.artifacts.files import MAX_FILES, OTHERS, FoundFile, file_at, files_in, hub_folder
from hostelry.cli.deploy.source import (
    HEAD_BYTES,
    TAIL_BYTES,
    TEXT_BYTES,
    TEXT_NAMES,
    Found,
    Origin,
    is_model_name,
)

MAX_HEADS = 32
# In a Hugging Face folder with safetensors, these are the same weights in unused formats.
OTHER_WEIGHTS: tuple[str, ...] = (".bin", ".h5", ".msgpack", ".ot", ".gguf", ".onnx", ".pth", ".pt")
HUB_TIMEOUT_S = 20.0
MAX_ARCHIVE_BYTES = 512 * 1024 * 1024  # of an archive that is read for the names in it


def look_at_folder(folder: Path, given: str) -> Found:
    """The contents of a folder. Raises TerminalError for files that `files_in` refuses."""
    files, left_out = select_files(files_in(folder, given))
    heads = [it for it in files if is_model_name(it.name)][:MAX_HEADS]
    return Found(
        given=given,
        place=Origin.FOLDER,
        files=files,
        heads={it.name: read_head(Path(it.path)) for it in heads},
        texts=read_texts(files),
        left_out=left_out,
    )


def select_files(
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
    """A single model file."""
    found = file_at(path, path.name, given)
    if not found.size_bytes:
        raise TerminalError(f"{given} is empty: there is nothing to deploy")
    heads = {path.name: read_head(Path(found.path))}
    return Found(given=given, place=Origin.FILE, files=(found,), heads=heads)


def look_at_archive(path: Path, given: str) -> Found:
    """The contents of a .tar.gz, which is not unpacked."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            found = read_archive(archive, given)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise TerminalError(f"{given} is not a readable .tar.gz: {error}") from None
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
    """Whether a file belongs to another tool: a hidden file, or compiled Python."""
    return any(it.startswith(".") or it in OTHERS for it in name.split("/"))


def read_head(path: Path) -> bytes:
    """The first and the last bytes of a file."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        size = file.seek(0, 2)
        if size <= HEAD_BYTES:
            return head
        file.seek(max(HEAD_BYTES, size - TAIL_BYTES))
        return head + file.read()


def read_texts(files: Sequence[FoundFile]) -> dict[str, str]:
    """The contents of the small files by which a folder is recognised."""
    return {
        file.name: Path(file.path).read_text(encoding="utf-8", errors="replace")
        for file in files
        if file.name in TEXT_NAMES and file.size_bytes <= TEXT_BYTES
    }


def look_at_prefix(s3: Any, uri: str) -> Found:
    """The contents of a prefix. `s3` is a client of the platform's object store."""
    bucket, prefix = uri.removeprefix("s3://").split("/", 1)
    files: list[FoundFile] = []
    for item in list_objects(s3, bucket, prefix, uri):
        name = item["Key"].removeprefix(prefix)
        if name and not name.endswith("/"):
            files.append(FoundFile(name=name, size_bytes=item["Size"], etag=item["ETag"]))
    if not files:
        raise TerminalError(f"there is no object below {uri}")
    heads = [it for it in files if is_model_name(it.name)][:MAX_HEADS]
    return Found(
        given=uri,
        place=Origin.PREFIX,
        files=tuple(files),
        heads={it.name: first_bytes(s3, bucket, prefix + it.name, HEAD_BYTES) for it in heads},
        texts={
            name: first_bytes(s3, bucket, prefix + name, TEXT_BYTES).decode(errors="replace")
            for name in [it.name for it in files if it.size_bytes <= TEXT_BYTES]
            if name in TEXT_NAMES
        },
        uri=uri,
    )


def look_at_object(s3: Any, uri: str) -> Found:
    """The contents of an archive, read as a stream without keeping it."""
    bucket, key = uri.removeprefix("s3://").split("/", 1)
    try:
        answer = s3.get_object(Bucket=bucket, Key=key)
    except ClientError as error:
        raise TerminalError(f"{uri} cannot be read: {error}") from None
    if answer["ContentLength"] > MAX_ARCHIVE_BYTES:
        raise TerminalError(
            f"{uri} has {answer['ContentLength'] / 1e9:.1f} GB, too much to look into: say what it "
            "is with --as"
        )
    try:
        with answer["Body"] as body, tarfile.open(fileobj=body, mode="r|gz") as archive:
            found = read_archive(archive, uri)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise TerminalError(f"{uri} is not a readable .tar.gz: {error}") from None
    return Found(
        given=uri,
        place=Origin.OBJECT,
        files=found.files,
        heads=found.heads,
        texts=found.texts,
        uri=uri,
        revision=answer["ETag"],
    )


def look_at_hub(model_id: str) -> Found:
    """A model of the hub: the cached folder, or the names and sizes of its files."""
    from huggingface_hub import constants
    from huggingface_hub.utils._headers import build_hf_headers

    folder = hub_folder(model_id)
    if folder is not None:
        return look_at_folder(folder, model_id)
    # The hub's own client would wait half a minute for an address that does not answer.
    hub = httpx.Client(
        base_url=constants.ENDPOINT,
        headers=build_hf_headers(),
        timeout=HUB_TIMEOUT_S,
        follow_redirects=True,
    )
    try:
        with hub:
            answer = hub.get(f"/api/models/{model_id}", params={"blobs": "true"})
            shown = decode(answer.raise_for_status().content, dict[str, Any])
            files = [
                FoundFile(name=file["rfilename"], size_bytes=file.get("size") or 0)
                for file in shown["siblings"]
            ]
            texts = {
                name: hub.get(f"/{model_id}/resolve/{shown['sha']}/{name}").raise_for_status().text
                for name in ("config.json", "tokenizer_config.json")
                if any(it.name == name for it in files)
            }
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise TerminalError(
            f"{model_id} is not in the cache of the hub's models here, and {constants.ENDPOINT} "
            f"does not have it or cannot be reached: {error}"
        ) from None
    return Found(
        given=model_id,
        place=Origin.HUB,
        files=select_files(files)[0],
        texts=texts,
        revision=shown["sha"],
    )


def list_objects(s3: Any, bucket: str, prefix: str, uri: str) -> list[dict[str, Any]]:
    """The objects below a prefix. Raises TerminalError."""
    found: list[dict[str, Any]] = []
    try:
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            found += page.get("Contents", ())
            if len(found) > MAX_FILES:
                raise TerminalError(f"{uri} has more than {MAX_FILES} objects: name a model's own")
    except ClientError as error:
        raise TerminalError(f"{uri} cannot be listed: {error}") from None
    return found


def first_bytes(s3: Any, bucket: str, key: str, count: int) -> bytes:
    """The first bytes of an object."""
    with s3.get_object(Bucket=bucket, Key=key)["Body"] as body:
        read: bytes = body.read(count)
    return read
