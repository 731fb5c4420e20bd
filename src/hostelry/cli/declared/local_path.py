"""Paths of local artifacts in documents: where one may stand, and its mark in params. Pure."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path as FilePath
from typing import Any

from hostelry.base.user import expanded

MARK = "local:"
URL_FIELDS = ("ModelDataUrl", "ArtifactUrl", "S3Uri")
MODEL_VARIABLES = ("OPTION_MODEL_ID", "HF_MODEL_ID", "MODEL_ID")
STARTS = ("./", "../", "~/", "/")


class UploadedAs(Enum):
    """What becomes of a local folder."""

    ARCHIVE = "archive"  # a .tar.gz; a file is uploaded as it is
    PREFIX = "prefix"  # each file below a prefix


@dataclass(frozen=True, slots=True)
class LocalPath:
    """A local file or folder that is to be uploaded."""

    path: FilePath
    upload: UploadedAs

    @property
    def mark(self) -> str:
        """The text that stands for it in params, until its content is known."""
        return f"{MARK}{self.upload.value}:{self.path}"


def marked(text: str) -> LocalPath | None:
    """The local path that `text` is the mark of."""
    if not text.startswith(MARK):
        return None
    upload, _, path = text.removeprefix(MARK).partition(":")
    return LocalPath(FilePath(path), UploadedAs(upload))


def with_local_paths(params: Any, folder: FilePath, upload: UploadedAs = UploadedAs.ARCHIVE) -> Any:
    """`params` with a mark for each local path, which is relative to `folder`."""
    if isinstance(params, Mapping):
        if params.get("Mode") == "MultiModel" or params.get("CompressionType") == "None":
            upload = UploadedAs.PREFIX
        return {name: _marked_member(name, it, folder, upload) for name, it in params.items()}
    if isinstance(params, list):
        return [with_local_paths(it, folder, upload) for it in params]
    return params


def _marked_member(name: str, value: Any, folder: FilePath, upload: UploadedAs) -> Any:
    if not isinstance(value, str):
        return with_local_paths(value, folder, upload)
    is_url = name in URL_FIELDS and value.startswith(STARTS)
    is_model = name in MODEL_VARIABLES and value.startswith(("./", "../"))
    if not (is_url or is_model):
        return value
    path = FilePath(os.path.abspath(folder / expanded(value)))
    return LocalPath(path, UploadedAs.PREFIX if is_model else upload).mark


def local_paths(params: Any) -> Iterator[LocalPath]:
    """Every local path that is marked in `params`."""
    if isinstance(params, Mapping):
        for inner in params.values():
            yield from local_paths(inner)
    elif isinstance(params, list):
        for inner in params:
            yield from local_paths(inner)
    elif isinstance(params, str) and (found := marked(params)) is not None:
        yield found


def with_uploaded(params: Any, uris: Mapping[str, str]) -> Any:
    """`params` with the URI of each mark."""
    if isinstance(params, Mapping):
        return {name: with_uploaded(it, uris) for name, it in params.items()}
    if isinstance(params, list):
        return [with_uploaded(it, uris) for it in params]
    return uris.get(params, params) if isinstance(params, str) else params
