"""Signature Version 4 of requests to an object store, or to another service. Pure."""

import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import quote

from hostelry.aws.s3_canonical import s3_path

EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnKey:
    """The pair of keys that the object store knows, and the region that it is used in."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    region: str


def stamp_of(now: float) -> str:
    """The X-Amz-Date of an instant, in seconds since the epoch."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))


def object_target(bucket: str, key: str, query: Sequence[tuple[str, str]] = ()) -> str:
    """The request target of an object (of its bucket where `key` is empty), path-style."""
    path = quote(f"/{bucket}/{key}" if key else f"/{bucket}", safe="/~")
    pairs = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query)
    return f"{path}?{pairs}" if pairs else path


def signed_request_head(
    method: str, target: str, headers: Mapping[str, str], key: OwnKey, now: float
) -> bytes:
    """The bytes of a request's head, signed by `key` at `now` (seconds since the epoch).

    `headers` have Host, and the body's SHA-256 as X-Amz-Content-SHA256 where it has a body.
    """
    stamp = stamp_of(now)
    all_headers = {"X-Amz-Content-SHA256": EMPTY_SHA256, **headers, "X-Amz-Date": stamp}
    values = {name.lower(): value for name, value in all_headers.items()}
    all_headers["Authorization"] = authorization(method, target, values, key, stamp)
    lines = "".join(f"{name}: {value}\r\n" for name, value in all_headers.items())
    return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")


def authorization(
    method: str,
    target: str,
    values: Mapping[str, str],
    key: OwnKey,
    stamp: str,
    service: str = "s3",
) -> str:
    """The Authorization header of a request with the header `values`, by lower-case name."""
    path, _, query = target.partition("?")
    names = sorted(it for it in values if it == "host" or it.startswith("x-amz-"))
    lines = [method, s3_path(path), canonical_query(query)]
    lines += [f"{name}:{' '.join(values[name].split())}" for name in names]
    lines += ["", ";".join(names), values["x-amz-content-sha256"]]
    scope = f"{stamp[:8]}/{key.region}/{service}/aws4_request"
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
    signature = hmac.digest(_key_of(key, scope), text.encode(), "sha256").hex()
    credential = f"{key.access_key_id}/{scope}"
    return (
        f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={';'.join(names)}, "
        f"Signature={signature}"
    )


@lru_cache(maxsize=16)
def _key_of(key: OwnKey, scope: str) -> bytes:
    """The key that signs for a day, a region and a service; four of a signature's five hashes."""
    secret = b"AWS4" + key.secret_access_key.encode()
    for part in scope.split("/"):
        secret = hmac.digest(secret, part.encode(), "sha256")
    return secret


def canonical_query(query: str) -> str:
    """The query's pairs in the order and form that are signed."""
    pairs = [pair.partition("=")[::2] for pair in query.split("&") if pair]
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))
