"""Signature Version 4 of a graph's calls to the gateway. Pure.

The keys are temporary, of the model's account, and are good for invocations only.
"""

import hmac
import time
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from urllib.parse import quote, urlsplit

import msgspec

ALGORITHM = "AWS4-HMAC-SHA256"
SERVICE = "sagemaker"  # the signing name of SageMaker Runtime


class CallKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Temporary keys, as the agent sends them, and the gateway that takes them.

    `expires_at` is in seconds since the epoch.
    """

    gateway_url: str
    region: str
    access_key_id: str
    secret_access_key: str
    session_token: str
    expires_at: float

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the gateway; raises ValueError for a URL without them."""
        parts = urlsplit(self.gateway_url)
        if parts.scheme != "http" or parts.hostname is None or parts.port is None:
            raise ValueError("gateway_url must be http://HOST:PORT")
        return parts.hostname, parts.port


@lru_cache(maxsize=256)
def canonical_path(path: str) -> str:
    """An encoded path as it is signed: encoded once more."""
    return quote(path, safe="/~")


class CallSigner:
    """Writes signed heads of requests with `keys`."""

    def __init__(self, keys: CallKeys) -> None:
        self.keys = keys
        self._host = urlsplit(keys.gateway_url).netloc
        self._date = ""
        self._key = b""
        self._second = -1
        self._stamp = ""

    def head(self, path: str, headers: Mapping[str, str], body: bytes, now: float) -> bytes:
        """The head of ``POST path`` at `now`, in seconds since the epoch.

        `path` is encoded once already. Every header is signed.
        """
        stamp = self._stamp_of(int(now))
        digest = sha256(body).hexdigest()
        signed = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
        signed |= {
            "host": self._host,
            "x-amz-content-sha256": digest,
            "x-amz-date": stamp,
            "x-amz-security-token": self.keys.session_token,
        }
        names = sorted(signed)
        lines = "".join([f"{name}:{signed[name]}\n" for name in names])
        listed = ";".join(names)
        canonical = f"POST\n{canonical_path(path)}\n\n{lines}\n{listed}\n{digest}"
        scope = f"{stamp[:8]}/{self.keys.region}/{SERVICE}/aws4_request"
        text = f"{ALGORITHM}\n{stamp}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
        signature = hmac.digest(self._key_of(stamp[:8]), text.encode(), "sha256").hex()
        proof = (
            f"{ALGORITHM} Credential={self.keys.access_key_id}/{scope}, "
            f"SignedHeaders={listed}, Signature={signature}"
        )
        written = "".join([f"{name}: {signed[name]}\r\n" for name in names])
        return (
            f"POST {path} HTTP/1.1\r\n{written}Content-Length: {len(body)}\r\n"
            f"Authorization: {proof}\r\n\r\n"
        ).encode("latin-1", "replace")

    def _stamp_of(self, second: int) -> str:
        if second != self._second:
            self._stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
            self._second = second
        return self._stamp

    def _key_of(self, date: str) -> bytes:
        if date != self._date:
            key = b"AWS4" + self.keys.secret_access_key.encode()
            for part in (date, self.keys.region, SERVICE, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._date, self._key = date, key
        return self._key
