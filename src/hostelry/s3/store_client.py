"""The object store as the S3 proxy asks it itself: requests signed with the store's own key."""

import httpx

from hostelry.aws.s3_signing import OwnKey
from hostelry.base.clock import Clock
from hostelry.base.peer_http import loopback_client
from hostelry.s3.head import Head, parse_head
from hostelry.s3.signing import signed_head

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
