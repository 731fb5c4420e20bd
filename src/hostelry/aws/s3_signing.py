"""Signature Version 4 of requests to an object store, or to another service. Pure."""

import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import quote, unquote_to_bytes

from hostelry.base.http import HttpRequest

SIGNED = ("x-amz-", "x-hostelry-")  # the prefixes of headers that are signed
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


def s3_stated_hash(request: HttpRequest) -> str | None:
    """The head's statement on the body: a hash, or how it is signed. None without one."""
    if "authorization" in request.headers:
        return request.headers.get("x-amz-content-sha256")
    return request.headers.get("x-amz-content-sha256", UNSIGNED_PAYLOAD)


def s3_path(path: str) -> str:
    """The path as S3 signs it: special bytes are percent-encoded once."""
    return quote(unquote_to_bytes(path), safe="/~")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnKey:
    """The keys that the object store knows, and their region."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    region: str


def format_date(now: float) -> str:
    """The X-Amz-Date of an instant, in seconds since the epoch."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))


def object_target(bucket: str, key: str, query: Sequence[tuple[str, str]] = ()) -> str:
    """The path-style request target of an object, or of its bucket if `key` is empty."""
    path = quote(f"/{bucket}/{key}" if key else f"/{bucket}", safe="/~")
    pairs = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query)
    return f"{path}?{pairs}" if pairs else path


def signed_request_head(
    method: str, target: str, headers: Mapping[str, str], key: OwnKey, now: float
) -> bytes:
    """The bytes of a request's head, signed by `key` at `now` (seconds since the epoch).

    `headers` have Host, and with a body its SHA-256 as X-Amz-Content-SHA256.
    """
    stamp = format_date(now)
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
    names = sorted(it for it in values if it == "host" or it.startswith(SIGNED))
    lines = [method, s3_path(path), canonical_query(query)]
    lines += [f"{name}:{' '.join(values[name].split())}" for name in names]
    lines += ["", ";".join(names), values["x-amz-content-sha256"]]
    scope = f"{stamp[:8]}/{key.region}/{service}/aws4_request"
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
    signature = hmac.digest(_signing_key(key, scope), text.encode(), "sha256").hex()
    credential = f"{key.access_key_id}/{scope}"
    return (
        f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={';'.join(names)}, "
        f"Signature={signature}"
    )


@lru_cache(maxsize=16)
def _signing_key(key: OwnKey, scope: str) -> bytes:
    """The key that signs for a day, a region and a service. Takes four of five hashes."""
    secret = b"AWS4" + key.secret_access_key.encode()
    for part in scope.split("/"):
        secret = hmac.digest(secret, part.encode(), "sha256")
    return secret


def canonical_query(query: str) -> str:
    """The query's pairs in the order and form that are signed."""
    pairs = [pair.partition("=")[::2] for pair in query.split("&") if pair]
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))
