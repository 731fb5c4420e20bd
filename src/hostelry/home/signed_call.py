"""Calls of a public API, signed with the platform's own keys and sent without botocore."""

import hashlib
import os
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

import msgspec

from hostelry.aws.s3_signing import OwnKey, authorization, format_date
from hostelry.base.clock import SystemClock
from hostelry.base.errors import RetryableError
from hostelry.home.home import Credentials

NO_HEADERS: Mapping[str, str] = {}
MAX_SHOWN = 500  # characters of an answer, in an error


class CallAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The status and the body of a response."""

    status: int
    body: bytes

    def __str__(self) -> str:
        text = " ".join(self.body.decode("utf-8", "replace").split())
        return f"{self.status} {text[:MAX_SHOWN]}".rstrip()


class SignedApi(msgspec.Struct, frozen=True, kw_only=True):
    """One service at `url`, called with the platform's own keys and without a proxy.

    `timeout_s` is for each read.
    """

    service: str
    url: str
    credentials: Credentials
    timeout_s: float

    def call(
        self,
        method: str = "GET",
        path: str = "/",
        body: bytes = b"",
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> CallAnswer:
        """The answer, of any status. Raises RetryableError without an answer.

        `path` is percent-encoded. `headers` have lower-case names.
        """
        parts, stamp = urlsplit(self.url), format_date(SystemClock().now())
        target = f"{parts.path.rstrip('/')}{path}"
        key = OwnKey(
            access_key_id=self.credentials.access_key_id,
            secret_access_key=self.credentials.secret_access_key,
            region=self.credentials.region,
        )
        sent = {
            **headers,
            "host": parts.netloc,
            "x-amz-content-sha256": hashlib.sha256(body).hexdigest(),
            "x-amz-date": stamp,
        }
        sent["authorization"] = authorization(method, target, sent, key, stamp, self.service)
        return call(self.url, method, target, sent, body, timeout_s=self.timeout_s)


def call(
    url: str,
    method: str,
    target: str,
    headers: Mapping[str, str] = NO_HEADERS,
    body: bytes = b"",
    *,
    timeout_s: float,
) -> CallAnswer:
    """Send a request as given. Returns the answer, of any status. Raises RetryableError."""
    connection = connection_to(url, timeout_s)
    try:
        connection.request(method, target, body or None, headers)
        response = connection.getresponse()
        return CallAnswer(status=response.status, body=response.read())
    except (OSError, HTTPException) as error:
        raise RetryableError(str(error) or type(error).__name__) from error
    finally:
        connection.close()


def connection_to(url: str, timeout_s: float) -> HTTPConnection:
    """A connection to the server of `url`, which is verified as boto3 does it."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "https":
        return HTTPConnection(host, parts.port, timeout=timeout_s)
    # Imported for another object store only: the platform's own is called without TLS.
    import ssl

    from botocore.httpsession import get_cert_path

    named = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE")
    context = ssl.create_default_context(cafile=named or get_cert_path(True))
    return HTTPSConnection(host, parts.port, timeout=timeout_s, context=context)
