"""The object store as the S3 proxy calls it: requests signed with the store's own key."""

from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlencode

import httpx

from hostelry.aws.s3_signing import UNSIGNED_PAYLOAD, OwnKey, authorization, format_date
from hostelry.base.clock import Clock
from hostelry.base.peer_http import loopback_client
from hostelry.s3.head import Head, parse_head, write_head

# The client's proof of its identity, and the headers that the new signature sets.
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
    """Build `head` with the `added` headers, signed by `key` at `now` (seconds since the epoch)."""
    path, _, query = head.target.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    kept = [(name, it) for name, it in pairs if name.lower() not in REPLACED_QUERY]
    drop = REPLACED | {name.lower() for name in added}
    headers = [(name, it) for name, it in head.headers if name.lower() not in drop]
    stamp = format_date(now)
    headers += [*added.items(), ("X-Amz-Date", stamp)]
    if "x-amz-content-sha256" not in head.values:
        headers.append(("X-Amz-Content-SHA256", UNSIGNED_PAYLOAD))
    target = path + ("?" + urlencode(kept, quote_via=quote, safe="-_.~") if kept else "")
    signed = Head(raw=b"", method=head.method, target=target, headers=tuple(headers))
    proof = authorization(head.method, target, signed.values, key, stamp)
    return write_head(head.method, target, [*headers, ("Authorization", proof)])


TIMEOUT_S = 30.0


class StoreClient:
    """Sends requests to the store at `url`, over kept connections."""

    def __init__(self, url: str, key: OwnKey, clock: Clock) -> None:
        self._url = url
        self._key = key
        self._clock = clock
        self._client = loopback_client(TIMEOUT_S)

    async def ask(self, method: str, target: str) -> httpx.Response | None:
        """Send a request without a body. None if the store does not answer."""
        host = self._url.removeprefix("http://")
        asked = Head(raw=b"", method=method, target=target, headers=(("Host", host),))
        signed = parse_head(signed_head(asked, self._key, self._clock.now(), {}))
        # The target stays as it was signed: httpx would escape a key's characters in another way.
        url = httpx.URL(self._url, raw_path=target.encode("latin-1"))
        try:
            return await self._client.request(method, url, headers=list(signed.headers))
        except httpx.HTTPError:
            return None
