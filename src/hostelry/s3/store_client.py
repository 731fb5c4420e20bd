"""The object store as the S3 proxy calls it: requests signed with the store's own key."""

from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlencode

import httpx

from hostelry.aws.s3_signing import UNSIGNED_PAYLOAD, OwnKey, authorization, format_date
from hostelry.base.clock import Clock
from hostelry.base.peer_http import loopback_client
from hostelry.s3.head import Head, parse_head, write_head

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
    """Asks the store at `url`, over connections that are kept."""

    def __init__(self, url: str, key: OwnKey, clock: Clock) -> None:
        self._url = url
        self._key = key
        self._clock = clock
        self._client = loopback_client(TIMEOUT_S)

    async def ask(self, method: str, target: str) -> httpx.Response | None:
        """The answer to a request without a body; None where the store does not answer."""
        host = self._url.removeprefix("http://")
        asked = Head(raw=b"", method=method, target=target, headers=(("Host", host),))
        signed = parse_head(signed_head(asked, self._key, self._clock.now(), {}))
        # As it was signed: httpx would write a key's escapes in its own way.
        url = httpx.URL(self._url, raw_path=target.encode("latin-1"))
        try:
            return await self._client.request(method, url, headers=list(signed.headers))
        except httpx.HTTPError:
            return None
