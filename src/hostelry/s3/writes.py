"""Requests that write an object, by their heads. Pure."""

from dataclasses import dataclass
from urllib.parse import unquote

from hostelry.base.whole_number import whole_number
from hostelry.domain.object_event import CHAIN_HEADER
from hostelry.s3.head import Head

PUT, COPY, COMPLETE = "Put", "Copy", "CompleteMultipartUpload"
NOTIFICATION = "notification"
# A PUT with one of these writes something of an object, or a part of one.
PARTS_OF_OBJECTS = frozenset(
    {
        "acl",
        "legal-hold",
        "object-lock",
        "partnumber",
        "renameobject",
        "retention",
        "tagging",
        "torrent",
        "uploadid",
    }
)
MAX_CHAIN = 999_999
MAX_OBJECT_BYTES = 5 * 1024**4


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectWrite:
    """The object that a request writes; `size_bytes` is None where the head does not say it.

    `target` is the request target of the object itself.
    """

    kind: str
    bucket: str
    key: str
    target: str
    size_bytes: int | None = None
    chain_length: int = 0


def write_of(head: Head) -> ObjectWrite | None:
    """The object that the request writes; None where it writes none."""
    bucket, key = place_of(head)
    kind = _kind_of(head) if key else None
    if kind is None:
        return None
    values = head.values
    size = values.get("x-amz-decoded-content-length") or values.get("content-length", "")
    chain = values.get(CHAIN_HEADER.lower(), "")
    return ObjectWrite(
        kind=kind,
        bucket=bucket,
        key=key,
        target=head.target.partition("?")[0],
        size_bytes=whole_number(size, 0, MAX_OBJECT_BYTES) if kind == PUT else None,
        chain_length=whole_number(chain, 0, MAX_CHAIN) or 0,
    )


def place_of(head: Head) -> tuple[str, str]:
    """Bucket and key that the request names, path-style; each may be empty."""
    bucket, _, key = unquote(head.target.partition("?")[0]).lstrip("/").partition("/")
    return bucket, key


def query_names(head: Head) -> frozenset[str]:
    """The names of the query's fields, in lower case."""
    pairs = head.target.partition("?")[2].split("&")
    return frozenset(unquote(it.partition("=")[0]).lower() for it in pairs if it)


def removed_bucket(head: Head) -> str | None:
    """The bucket that the request deletes; None where it deletes none."""
    bucket, key = place_of(head)
    is_removal = head.method == "DELETE" and not key and not query_names(head) - {"x-id"}
    return bucket if is_removal and bucket else None


def is_notification_call(head: Head) -> bool:
    """Whether the request gets or puts a bucket's notification configuration."""
    bucket, key = place_of(head)
    return bool(bucket) and not key and NOTIFICATION in query_names(head)


def _kind_of(head: Head) -> str | None:
    names = query_names(head)
    if head.method == "POST":
        return COMPLETE if "uploadid" in names else None
    if head.method != "PUT" or names & PARTS_OF_OBJECTS:
        return None
    return COPY if "x-amz-copy-source" in head.values else PUT
