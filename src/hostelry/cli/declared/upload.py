"""Local artifacts under names of their content, so that the same content is uploaded once."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hostelry.base.errors import TerminalError
from hostelry.cli.artifacts.content import digests_of, sha256_of
from hostelry.cli.artifacts.folder import file_at, files_in
from hostelry.cli.artifacts.object_order import ObjectOrder
from hostelry.cli.declared.local_path import LocalPath, UploadedAs
from hostelry.cli.declared.step import UploadedFile

BUCKET = "hostelry-applied"
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
    if path.is_file():
        file = file_at(path, path.name, str(path))
        key = f"{sha256_of(file.path)[:HASH_DIGITS]}/{path.name}"
        one = UploadedFile(str(path), bucket, ObjectOrder(key=key, files=(file,)))
        return one.uri, [one]
    found = files_in(path, str(path), with_others=True)
    if not found:
        raise TerminalError(f"the folder {path} is empty")
    digests = digests_of(found)
    hashes = [(it.name, digests[it.path]) for it in found]
    whole = hashlib.sha256(repr(hashes).encode()).hexdigest()[:HASH_DIGITS]
    if local.upload is UploadedAs.ARCHIVE:
        order = ObjectOrder(key=f"{whole}/{path.name}.tar.gz", files=tuple(found), packed=True)
        one = UploadedFile(str(path), bucket, order)
        return one.uri, [one]
    orders = [ObjectOrder(key=f"{whole}/{it.name}", files=(it,)) for it in found]
    return f"s3://{bucket}/{whole}/", [UploadedFile(str(path), bucket, it) for it in orders]
