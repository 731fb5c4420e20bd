"""Kinds of SOURCE by its text: a path, S3, a model of the hub, an image. Pure."""

import re
from dataclasses import dataclass

from hostelry.base.errors import TerminalError
from hostelry.cli.artifacts.content import ARCHIVE_SUFFIXES
from hostelry.cli.deploy.found import Origin

PATH_SUFFIXES = (
    *ARCHIVE_SUFFIXES, ".joblib", ".pkl", ".pickle", ".onnx", ".json", ".ubj", ".pt", ".pth",
    ".gguf", ".zip",
)  # fmt: skip
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
S3_URI = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(.+)")
IMAGE = re.compile(r"[a-z0-9][a-z0-9._:/@-]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SourceText:
    """A SOURCE by its text: where it is, and its path, URI, id or image."""

    place: Origin
    value: str


def read_source(text: str, *, exists: bool, is_folder: bool, as_image: bool) -> SourceText:
    """Where SOURCE is; `exists` says whether there is such a path. Raises TerminalError.

    A path comes first, then S3, images by their registry or tag, and ids of the hub.
    """
    if as_image or text.startswith("docker://"):
        return _image(text.removeprefix("docker://"))
    if text.startswith("s3://"):
        return _s3(text)
    if text.startswith("hf://"):
        return _hub(text.removeprefix("hf://"))
    if exists and is_folder:
        return SourceText(Origin.FOLDER, text)
    if exists:
        return SourceText(Origin.ARCHIVE if text.endswith(ARCHIVE_SUFFIXES) else Origin.FILE, text)
    if "://" in text:
        raise TerminalError(f"{text}: sources are paths, s3://, hf:// and docker://")
    if _is_path(text):
        raise TerminalError(f"{text} is not there: no such file or folder")
    return _without_path(text)


def _without_path(text: str) -> SourceText:
    if _has_registry(text) or ":" in text.rpartition("/")[2] or "@sha256:" in text:
        return _image(text)
    if HUB_ID.fullmatch(text):
        return _hub(text)
    raise TerminalError(
        f"{text!r} is no path here, no S3 address (s3://BUCKET/PREFIX/), no model of the hub "
        "(ORGANISATION/NAME) and no image (REGISTRY/NAME:TAG): give one of these, or --as image"
    )


def _s3(text: str) -> SourceText:
    if S3_URI.fullmatch(text) is None:
        raise TerminalError(f"{text} is no S3 address: write s3://BUCKET/PREFIX/ or an archive")
    if text.endswith(ARCHIVE_SUFFIXES):
        return SourceText(Origin.OBJECT, text)
    return SourceText(Origin.PREFIX, text.rstrip("/") + "/")


def _has_registry(text: str) -> bool:
    first, slash, _ = text.partition("/")
    return bool(slash) and ("." in first or ":" in first or first == "localhost")


def _is_path(text: str) -> bool:
    return (
        text.startswith((".", "/", "~"))
        or text.endswith(("/", *PATH_SUFFIXES))
        or (text.count("/") > 1 and "." not in text.partition("/")[0] and ":" not in text)
    )


def _hub(text: str) -> SourceText:
    if HUB_ID.fullmatch(text) is None:
        raise TerminalError(f"{text!r} is no model of the hub: write ORGANISATION/NAME")
    return SourceText(Origin.HUB, text)


def _image(text: str) -> SourceText:
    if IMAGE.fullmatch(text) is None or len(text) > 255:
        raise TerminalError(f"{text[:80]!r} is no name of an image")
    return SourceText(Origin.IMAGE, text)
