"""Reads requests of the S3 port as the object store reads them.

The store's reading decides the effect of a request. A request that could be read in another way is
refused by `UnclearRequestError`, so that no permission for one reading allows the other one.
"""

from collections.abc import Iterable, Mapping
from urllib.parse import unquote, unquote_plus

import msgspec

COPY_SOURCE, RENAME_SOURCE = "x-amz-copy-source", "x-amz-rename-source"
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_")


class UnclearRequestError(ValueError):
    """The request can be read in more than one way."""


class ObjectPlace(msgspec.Struct, frozen=True):
    """A bucket and a key in it. Without a key, the bucket itself. Without both, the service."""

    bucket: str
    key: str = ""

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"arn:aws:s3:::{self.bucket}" + (f"/{self.key}" if self.key else "")


def read_path(path: str) -> tuple[ObjectPlace, ...]:
    """The place of a path in path style, and the place in which the store may look as well.

    The store drops repeated slashes of keys. Raises UnclearRequestError for an invalid name of a
    bucket, for segments `.` and `..`, and for an escape that is not UTF-8.
    """
    if not path.startswith("/") or path.startswith("//"):
        raise UnclearRequestError(f"the path {path[:100]!r} does not start with one slash")
    bucket, _, raw_key = path[1:].partition("/")
    if not bucket and not raw_key:
        return (ObjectPlace(""),)
    return build_places(bucket, decode(raw_key))


def build_places(bucket: str, key: str) -> tuple[ObjectPlace, ...]:
    """The places of a bucket and a decoded key. Raises UnclearRequestError."""
    if not bucket.strip(".") or not NAME_CHARACTERS.issuperset(bucket):
        raise UnclearRequestError(f"{bucket[:100]!r} is not the name of a bucket")
    if "\0" in key or "\\" in key or {".", ".."} & set(key.split("/")):
        raise UnclearRequestError(f"the key {key[:100]!r} may name another object")
    plain = collapse_slashes(key)
    if key and not plain:
        raise UnclearRequestError(f"the key {key[:100]!r} has slashes only")
    return tuple(ObjectPlace(bucket, it) for it in dict.fromkeys((key, plain)))


def collapse_slashes(key: str) -> str:
    """The key without repeated slashes and without a slash at its begin."""
    parts = [it for it in key.split("/") if it]
    return "/".join(parts) + ("/" if parts and key.endswith("/") else "")


def decode(text: str) -> str:
    """Decode percent escapes. Raises UnclearRequestError for bytes that are not UTF-8."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise UnclearRequestError(f"{text[:100]!r} is not UTF-8") from None


def read_query(query: str) -> dict[str, str]:
    """The fields of a query. Raises UnclearRequestError for a field that is given twice."""
    found: dict[str, str] = {}
    for pair in query.split("&"):
        if not pair:
            continue
        name, _, value = pair.partition("=")
        name, value = decode(name.replace("+", " ")), decode(value.replace("+", " "))
        if ";" in pair:
            raise UnclearRequestError("the query has a semicolon")
        if name in found:
            raise UnclearRequestError(f"the query has {name[:100]!r} twice")
        found[name] = value
    return found


def read_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The headers that S3 defines, and the credentials, by name in lower case.

    Raises UnclearRequestError for a header that is given twice.
    """
    found: dict[str, str] = {}
    for name, value in headers:
        lowered = name.lower()
        if not lowered.startswith("x-amz-") and lowered != "authorization":
            continue
        if lowered in found:
            raise UnclearRequestError(f"the header {lowered[:100]!r} is given twice")
        found[lowered] = value.strip()
    return found


class CopySource(msgspec.Struct, frozen=True):
    """The object that a request copies: the places that are read, and its version if given."""

    places: tuple[ObjectPlace, ...]
    version: str = ""


def read_copy_source(headers: Mapping[str, str]) -> CopySource | None:
    """The source of a copy. Raises UnclearRequestError.

    The places have both readings of `+`, as a plus sign and as a space.
    """
    text = headers.get(COPY_SOURCE)
    if text is None:
        return None
    path, mark, query = text.partition("?")
    version = ""
    if mark:
        fields = read_query(query)
        version = fields.pop("versionId", "")
        if fields or not version:
            raise UnclearRequestError(f"the source {text[:100]!r} has an unknown query")
    try:
        readings = {unquote(path, errors="strict"), unquote_plus(path, errors="strict")}
    except UnicodeDecodeError:
        raise UnclearRequestError(f"the source {text[:100]!r} is not UTF-8") from None
    places: dict[ObjectPlace, None] = {}
    for reading in sorted(readings):
        bucket, _, key = reading.removeprefix("/").partition("/")
        if not key:
            raise UnclearRequestError(f"the source {text[:100]!r} names no object")
        places |= dict.fromkeys(build_places(bucket, key))
    return CopySource(tuple(places), version)
