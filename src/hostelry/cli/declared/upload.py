"""Local artifacts under names of their content, so that the same content is uploaded once."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from hostelry.base.errors import TerminalError
from hostelry.cli.declared.local_path import LocalPath, UploadedAs
from hostelry.cli.declared.step import UploadedFile

BUCKET = "hostelry-applied"
CHUNK_BYTES = 1024 * 1024
HASH_DIGITS = 32


@dataclass(frozen=True, slots=True)
class ArtifactUploads:
    """The objects of each local artifact, by the URI that documents have in its place."""

    files: Mapping[str, Sequence[UploadedFile]] = field(default_factory=dict)

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


def uploads_of(local: LocalPath, bucket: str) -> tuple[str, list[UploadedFile]]:
    """The URI that stands for a local artifact, and its objects; raises TerminalError."""
    path = local.path
    if not path.exists():
        raise TerminalError(f"there is no file or folder {path}")
    try:
        if path.is_file():
            return _uploaded_file(path, bucket)
        files = sorted(it for it in path.rglob("*") if it.is_file())
        if not files:
            raise TerminalError(f"the folder {path} is empty")
        hashes = {it.relative_to(path).as_posix(): content_hash(it) for it in files}
        sizes = {it.relative_to(path).as_posix(): it.stat().st_size for it in files}
    except OSError as error:
        raise TerminalError(f"{error.filename} cannot be read: {error.strerror}") from None
    whole = hashlib.sha256(repr(sorted(hashes.items())).encode()).hexdigest()[:HASH_DIGITS]
    if local.upload is UploadedAs.ARCHIVE:
        uri = f"s3://{bucket}/{whole}/{path.name}.tar.gz"
        return uri, [UploadedFile(str(path), uri, sum(sizes.values()), is_folder=True)]
    prefix = f"s3://{bucket}/{whole}/"
    return prefix, [
        UploadedFile(str(path / name), f"{prefix}{name}", sizes[name]) for name in hashes
    ]


def _uploaded_file(path: FilePath, bucket: str) -> tuple[str, list[UploadedFile]]:
    uri = f"s3://{bucket}/{content_hash(path)[:HASH_DIGITS]}/{path.name}"
    return uri, [UploadedFile(str(path), uri, os.path.getsize(path))]


def content_hash(path: FilePath) -> str:
    """SHA-256 of a file's bytes, in hexadecimal digits."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            found.update(chunk)
    return found.hexdigest()
