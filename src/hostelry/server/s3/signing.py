"""Signature of a request for the object store with the store's own key. Pure."""

import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode

from hostelry.aws.s3_canonical import UNSIGNED_PAYLOAD, s3_path
from hostelry.server.s3.head import Head, write_head

# What the client proved itself by, and what is written again.
REPLACED = frozenset({"authorization", "x-amz-security-token", "x-amz-date"})
REPLACED_QUERY = frozenset(
    {
        "x-amz-algorithm",
        "x-amz-credential",
        "x-amz-date",
        "x-amz-expires",
        "x-amz-signedheaders",
        "x-amz-signature",
        "x-amz-security-token",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnKey:
    """The pair of keys that the object store knows, and the region that it is used in."""

    access_key_id: str
    secret_access_key: str
    region: str


def signed_head(head: Head, key: OwnKey, now: float, added: Mapping[str, str]) -> bytes:
    """The bytes of `head` with headers `added`, signed by `key` at `now` (epoch seconds)."""
    path, _, query = head.target.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    kept = [(name, it) for name, it in pairs if name.lower() not in REPLACED_QUERY]
    drop = REPLACED | {name.lower() for name in added}
    headers = [(name, it) for name, it in head.headers if name.lower() not in drop]
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    headers += [*added.items(), ("X-Amz-Date", stamp)]
    if "x-amz-content-sha256" not in head.values:
        headers.append(("X-Amz-Content-SHA256", UNSIGNED_PAYLOAD))
    target = path + ("?" + urlencode(kept, quote_via=quote, safe="-_.~") if kept else "")
    signed = Head(raw=b"", method=head.method, target=target, headers=tuple(headers))
    authorization = authorization_of(signed, key, stamp)
    return write_head(head.method, target, [*headers, ("Authorization", authorization)])


def authorization_of(head: Head, key: OwnKey, stamp: str) -> str:
    """The Authorization header of `head`."""
    path, _, query = head.target.partition("?")
    values = head.values
    names = sorted(it for it in values if it == "host" or it.startswith("x-amz-"))
    lines = [head.method, s3_path(path), canonical_query(query)]
    lines += [f"{name}:{' '.join(values[name].split())}" for name in names]
    lines += ["", ";".join(names), values["x-amz-content-sha256"]]
    scope = f"{stamp[:8]}/{key.region}/s3/aws4_request"
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    secret = b"AWS4" + key.secret_access_key.encode()
    for part in scope.split("/"):
        secret = hmac.digest(secret, part.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
    signature = hmac.digest(secret, text.encode(), "sha256").hex()
    credential = f"{key.access_key_id}/{scope}"
    return (
        f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={';'.join(names)}, "
        f"Signature={signature}"
    )


def canonical_query(query: str) -> str:
    """The query's pairs in the order and form that are signed."""
    pairs = [pair.partition("=")[::2] for pair in query.split("&") if pair]
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))
