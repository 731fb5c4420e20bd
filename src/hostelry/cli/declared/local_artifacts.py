"""Local artifacts in documents: the members that may have a path, and the uploads."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path as FilePath
from typing import Any

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.base.files import expand_user
from hostelry.cli.artifacts.files import ObjectOrder, digest_files, file_at, files_in, hash_file
from hostelry.cli.declared.resource import UploadedFile

MARK = "local:"
URL_FIELDS = ("ModelDataUrl", "ArtifactUrl", "S3Uri")
MODEL_VARIABLES = ("OPTION_MODEL_ID", "HF_MODEL_ID", "MODEL_ID")
STARTS = ("./", "../", "~/", "/")
BUCKET = "hostelry-applied"
HASH_DIGITS = 32


class UploadedAs(Enum):
    """The form in which a local folder is uploaded."""

    ARCHIVE = "archive"  # a .tar.gz. A single file is uploaded as it is
    PREFIX = "prefix"  # each file below a prefix


class LocalPath(msgspec.Struct, frozen=True):
    """A local file or folder to upload."""

    path: FilePath
    upload: UploadedAs

    @property
    def mark(self) -> str:
        """The text that stands for the path in params, until the content is known."""
        return f"{MARK}{self.upload.value}:{self.path}"


def parse_mark(text: str) -> LocalPath | None:
    """The local path whose mark `text` is. None for other texts."""
    if not text.startswith(MARK):
        return None
    upload, _, path = text.removeprefix(MARK).partition(":")
    return LocalPath(FilePath(path), UploadedAs(upload))


def mark_local_paths(params: Any, folder: FilePath, upload: UploadedAs = UploadedAs.ARCHIVE) -> Any:
    """`params` with a mark in place of each local path, which is relative to `folder`."""
    if isinstance(params, Mapping):
        if params.get("Mode") == "MultiModel" or params.get("CompressionType") == "None":
            upload = UploadedAs.PREFIX
        return {name: _marked_member(name, it, folder, upload) for name, it in params.items()}
    if isinstance(params, list):
        return [mark_local_paths(it, folder, upload) for it in params]
    return params


def _marked_member(name: str, value: Any, folder: FilePath, upload: UploadedAs) -> Any:
    if not isinstance(value, str):
        return mark_local_paths(value, folder, upload)
    is_url = name in URL_FIELDS and value.startswith(STARTS)
    is_model = name in MODEL_VARIABLES and value.startswith(("./", "../"))
    if not (is_url or is_model):
        return value
    path = FilePath(os.path.abspath(folder / expand_user(value)))
    return LocalPath(path, UploadedAs.PREFIX if is_model else upload).mark


def local_paths(params: Any) -> Iterator[LocalPath]:
    """Every local path that is marked in `params`."""
    if isinstance(params, Mapping):
        for inner in params.values():
            yield from local_paths(inner)
    elif isinstance(params, list):
        for inner in params:
            yield from local_paths(inner)
    elif isinstance(params, str) and (found := parse_mark(params)) is not None:
        yield found


def replace_marks(params: Any, uris: Mapping[str, str]) -> Any:
    """`params` with URIs in place of marks."""
    if isinstance(params, Mapping):
        return {name: replace_marks(it, uris) for name, it in params.items()}
    if isinstance(params, list):
        return [replace_marks(it, uris) for it in params]
    return uris.get(params, params) if isinstance(params, str) else params


class ArtifactUploads(msgspec.Struct, frozen=True):
    """The objects of each local artifact, by the URI that documents get in place of the path."""

    files: Mapping[str, Sequence[UploadedFile]] = msgspec.field(default_factory=dict)

    def named_in(self, params: Any) -> Iterator[str]:
        """The URIs of local artifacts in `params`."""
        if isinstance(params, Mapping):
            for inner in params.values():
                yield from self.named_in(inner)
        elif isinstance(params, list):
            for inner in params:
                yield from self.named_in(inner)
        elif isinstance(params, str) and params in self.files:
            yield params

    @property
    def all(self) -> list[UploadedFile]:
        """Every object."""
        return [it for files in self.files.values() for it in files]


def build_uploads(local: LocalPath, bucket: str) -> tuple[str, list[UploadedFile]]:
    """The URI and the objects of a local artifact. Raises TerminalError."""
    path = local.path
    if not path.exists():
        raise TerminalError(f"there is no file or folder {path}")
    if path.is_file():
        file = file_at(path, path.name, str(path))
        key = f"{hash_file(file.path)[:HASH_DIGITS]}/{path.name}"
        order = ObjectOrder(key=key, files=(file,))
        one = UploadedFile(str(path), bucket, (order,))
        return one.uri, [one]
    found = files_in(path, str(path), with_others=True)
    if not found:
        raise TerminalError(f"the folder {path} is empty")
    digests = digest_files(found)
    hashes = [(it.name, digests[it.path]) for it in found]
    whole = hashlib.sha256(repr(hashes).encode()).hexdigest()[:HASH_DIGITS]
    if local.upload is UploadedAs.ARCHIVE:
        order = ObjectOrder(key=f"{whole}/{path.name}.tar.gz", files=tuple(found), packed=True)
        one = UploadedFile(str(path), bucket, (order,))
        return one.uri, [one]
    orders = [ObjectOrder(key=f"{whole}/{it.name}", files=(it,)) for it in found]
    return f"s3://{bucket}/{whole}/", [UploadedFile(str(path), bucket, (it,)) for it in orders]
