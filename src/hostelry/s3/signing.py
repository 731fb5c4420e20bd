"""Signature of a request for the object store with the store's own key. Pure."""

from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlencode

from hostelry.aws.s3_canonical import UNSIGNED_PAYLOAD
from hostelry.aws.s3_signing import OwnKey, authorization, stamp_of
from hostelry.s3.head import Head, write_head

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


def signed_head(head: Head, key: OwnKey, now: float, added: Mapping[str, str]) -> bytes:
    """The bytes of `head` with headers `added`, signed by `key` at `now` (epoch seconds)."""
    path, _, query = head.target.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    kept = [(name, it) for name, it in pairs if name.lower() not in REPLACED_QUERY]
    drop = REPLACED | {name.lower() for name in added}
    headers = [(name, it) for name, it in head.headers if name.lower() not in drop]
    stamp = stamp_of(now)
    headers += [*added.items(), ("X-Amz-Date", stamp)]
    if "x-amz-content-sha256" not in head.values:
        headers.append(("X-Amz-Content-SHA256", UNSIGNED_PAYLOAD))
    target = path + ("?" + urlencode(kept, quote_via=quote, safe="-_.~") if kept else "")
    signed = Head(raw=b"", method=head.method, target=target, headers=tuple(headers))
    proof = authorization(head.method, target, signed.values, key, stamp)
    return write_head(head.method, target, [*headers, ("Authorization", proof)])
