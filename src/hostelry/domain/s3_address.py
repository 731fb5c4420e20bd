"""Addresses of objects: ``s3://bucket/key``, and AWS's web addresses of the same."""

import re
from urllib.parse import unquote

# Source: S3's user guide, "Virtual hosting of buckets", "Dual-stack endpoints", "Legacy endpoints".
S3_HOST = re.compile(
    r"((?P<bucket>[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9])\.)?"
    r"s3(\.dualstack)?([.\-][a-z]{2}(-[a-z]{1,16}){1,3}-[0-9]{1,2})?\.amazonaws\.com(\.cn)?"
)


def from_web_address(uri: str) -> str | None:
    """The ``s3://bucket/key`` of an https address of S3, path-style or with the bucket as host.

    None where it is no such address. It is only read: nothing is fetched from it.
    """
    host, _, rest = uri.removeprefix("https://").partition("/")
    found, key = S3_HOST.fullmatch(host), unquote(rest)
    if found is None or not key.isprintable() or set(rest) & set("?#"):
        return None
    return f"s3://{found['bucket']}/{key}" if found["bucket"] else f"s3://{key}"


def object_uri(uri: str) -> str | None:
    """The ``s3://bucket/key`` that `uri` means; None where it names no object."""
    found = from_web_address(uri) if uri.startswith("https://") else uri
    if found is None or not found.startswith("s3://"):
        return None
    bucket, _, key = found.removeprefix("s3://").partition("/")
    return found if bucket and key else None
