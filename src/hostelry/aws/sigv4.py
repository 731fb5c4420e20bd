"""Signature Version 4: who signed a request, or why its signature is not believed.

The canonical request, from the parts as they came over the wire, is::

    method, path (dot segments resolved, then percent-encoded once more), query (sorted),
    each signed header as name:value with white space folded, the signed names, the body's hash

and each part ends a line. Source: AWS IAM User Guide, "Create a signed AWS API request".
"""

import calendar
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac_digest
from typing import NoReturn
from urllib.parse import parse_qsl, quote

from hostelry.aws.codes import QUERY_SIGNING_NAMES, query_code
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest

ALGORITHM = "AWS4-HMAC-SHA256"
MAX_PRESIGNED_S = 7 * 24 * 3600
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
_EMPTY_HASH = sha256(b"").hexdigest()
_SCHEME = ALGORITHM + " "
_PRESIGNED = (
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-SignedHeaders",
    "X-Amz-Signature",
)
_TIMESTAMP_CHARACTERS = 16
_UTF8 = ("utf-8", "surrogatepass")  # no text that a client can send may fail to be hashed


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """The secret half of an access key, and the account it belongs to."""

    secret_access_key: str
    account_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who signed, and for which region and service (the signing name, as ``monitoring``)."""

    access_key_id: str
    account_id: str
    region: str
    service: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claims:
    """What a signature says of itself, before any of it is believed."""

    access_key_id: str
    date: str
    region: str
    service: str
    scope: str
    signed_headers: tuple[str, ...]
    signed_names: str


class Verifier:
    """Verifies signatures in the Authorization header or in the query (presigned).

    Args:
        secret_of: access key id -> its secret, None for a key that does not exist.
        max_skew_s: how far a client's clock may be off, both ways.
    """

    def __init__(
        self, secret_of: Callable[[str], Secret | None], max_skew_s: float = 300.0
    ) -> None:
        self._secret_of = secret_of
        self._max_skew_s = max_skew_s

    def verify(self, request: HttpRequest, now: float) -> Identity:
        """Who signed `request`, at `now` in epoch seconds; raises ServiceError (403) otherwise."""
        authorization = request.headers.get("authorization")
        if authorization is not None:
            claimed, signature = _split_authorization(authorization)
            claims = _header_claims(claimed)
            timestamp = _header_timestamp(request)
            _check_time(claims, timestamp, now, self._max_skew_s, self._max_skew_s)
            query = _canonical_query(request.query) if request.query else ""
        elif "X-Amz-Signature=" in request.query:
            fields = _presigned_fields(request.query)
            signature = fields["X-Amz-Signature"]
            claims = _claims(fields["X-Amz-Credential"], fields["X-Amz-SignedHeaders"])
            timestamp = fields["X-Amz-Date"]
            _check_time(claims, timestamp, now, _lifetime_s(fields), self._max_skew_s)
            query = _canonical_query(request.query, leave_out="X-Amz-Signature")
        else:
            raise ServiceError(
                "MissingAuthenticationTokenException", "Missing Authentication Token", 403
            )
        return self._identify(request, claims, timestamp, query, signature)

    def _identify(
        self, request: HttpRequest, claims: _Claims, timestamp: str, query: str, signature: str
    ) -> Identity:
        secret = self._secret_of(claims.access_key_id)
        if secret is None:
            _refuse(
                claims,
                "UnrecognizedClientException",
                "The security token included in the request is invalid.",
            )
        canonical = _canonical_request(request, claims, query)
        signed = f"{ALGORITHM}\n{timestamp}\n{claims.scope}\n{sha256(canonical).hexdigest()}"
        key = _signing_key(secret.secret_access_key, claims.date, claims.region, claims.service)
        expected = hmac_digest(key, signed.encode(*_UTF8), "sha256").hex()
        if not compare_digest(expected.encode(), signature.encode(*_UTF8)):
            _mismatch(
                claims,
                "The request signature we calculated does not match the signature you provided. "
                "Check your AWS Secret Access Key and signing method.",
            )
        return _identity(claims.access_key_id, secret.account_id, claims.region, claims.service)


@lru_cache(maxsize=256)
def _identity(access_key_id: str, account_id: str, region: str, service: str) -> Identity:
    return Identity(
        access_key_id=access_key_id, account_id=account_id, region=region, service=service
    )


def _refuse(claims: _Claims, code: str, message: str) -> NoReturn:
    named = query_code(code) if claims.service in QUERY_SIGNING_NAMES else code
    raise ServiceError(named, message, 403)


def _mismatch(claims: _Claims, message: str) -> NoReturn:
    _refuse(claims, "InvalidSignatureException", message)


def _incomplete(message: str) -> ServiceError:
    return ServiceError("IncompleteSignatureException", message, 403)


def _split_authorization(authorization: str) -> tuple[str, str]:
    """Everything before the signature, which repeats from request to request, and the signature."""
    claimed, found, signature = authorization.rpartition("Signature=")
    if not found or not authorization.startswith(_SCHEME):
        raise _incomplete(
            f"Authorization must be '{ALGORITHM} Credential=..., SignedHeaders=..., Signature=...'"
        )
    return claimed, signature.strip()


@lru_cache(maxsize=256)
def _header_claims(claimed: str) -> _Claims:
    parts: dict[str, str] = {}
    for part in claimed[len(_SCHEME) :].split(","):
        name, found, value = part.strip().partition("=")
        if found:
            parts[name] = value
        elif name:
            raise _incomplete(
                f"'{name:.100}' not a valid key=value pair (missing equal-sign) in Authorization"
            )
    for name in ("Credential", "SignedHeaders"):
        if not parts.get(name):
            raise _incomplete(f"Authorization header requires '{name}' parameter")
    return _claims(parts["Credential"], parts["SignedHeaders"])


def _claims(credential: str, signed_headers: str) -> _Claims:
    parts = credential.split("/")
    if len(parts) != 5 or parts[4] != "aws4_request" or not all(parts):
        raise _incomplete(
            "Credential must have the form KEY/YYYYMMDD/REGION/SERVICE/aws4_request, "
            f"got '{credential:.100}'"
        )
    names = signed_headers.lower()
    claims = _Claims(
        access_key_id=parts[0],
        date=parts[1],
        region=parts[2],
        service=parts[3],
        scope="/".join(parts[1:]),
        signed_headers=tuple(names.split(";")),
        signed_names=names,
    )
    if "host" not in claims.signed_headers:
        _mismatch(claims, "'Host' must be a 'SignedHeader' in the AWS Authorization.")
    return claims


def _header_timestamp(request: HttpRequest) -> str:
    """The signing time in basic ISO 8601, from X-Amz-Date or else Date."""
    stamp = request.headers.get("x-amz-date")
    if stamp is not None:
        return stamp
    date = request.headers.get("date", "")
    try:
        moment = parsedate_to_datetime(date)
        return _timestamp(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp())
    except (ValueError, OverflowError):
        raise _incomplete("Authorization requires an 'X-Amz-Date' or a 'Date' header.") from None


def _presigned_fields(query: str) -> dict[str, str]:
    fields = dict(parse_qsl(query, keep_blank_values=True))
    if fields.get("X-Amz-Algorithm") != ALGORITHM:
        raise _incomplete(f"X-Amz-Algorithm must be {ALGORITHM}")
    missing = [name for name in _PRESIGNED if not fields.get(name)]
    if missing:
        raise _incomplete(f"The presigned query lacks {', '.join(missing)}")
    return fields


def _lifetime_s(fields: dict[str, str]) -> int:
    text = fields["X-Amz-Expires"]
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise _incomplete(f"X-Amz-Expires must be seconds, got '{text:.50}'")
    if not 0 < int(text) <= MAX_PRESIGNED_S:
        raise _incomplete(f"X-Amz-Expires must be 1 to {MAX_PRESIGNED_S} seconds, got {text}")
    return int(text)


def _check_time(
    claims: _Claims, timestamp: str, now: float, lifetime_s: float, max_skew_s: float
) -> None:
    signed_at = _epoch_s(timestamp)
    if timestamp[:8] != claims.date:
        _mismatch(
            claims,
            f"Date in Credential scope does not match YYYYMMDD of '{timestamp}': {claims.date}",
        )
    if now - signed_at > lifetime_s:
        limit = _timestamp(now - lifetime_s)
        _mismatch(
            claims,
            f"Signature expired: {timestamp} is now earlier than {limit} "
            f"({_timestamp(now)} - {lifetime_s:g} s.)",
        )
    if signed_at - now > max_skew_s:
        limit = _timestamp(now + max_skew_s)
        _mismatch(
            claims,
            f"Signature not yet current: {timestamp} is still later than {limit} "
            f"({_timestamp(now)} + {max_skew_s:g} s.)",
        )


@lru_cache(maxsize=64)
def _epoch_s(timestamp: str) -> int:
    """Epoch seconds of ``YYYYMMDDThhmmssZ``."""
    clock = timestamp[9:15]
    shaped = len(timestamp) == _TIMESTAMP_CHARACTERS and timestamp[8] + timestamp[15] == "TZ"
    if not (shaped and timestamp.isascii() and (timestamp[:8] + clock).isdigit()):
        raise _incomplete(f"The date must look like 20261121T083000Z, got '{timestamp:.50}'")
    seconds = int(clock[:2]) * 3600 + int(clock[2:4]) * 60 + int(clock[4:])
    return _midnight_s(timestamp[:8]) + seconds


@lru_cache(maxsize=64)
def _midnight_s(date: str) -> int:
    try:
        return calendar.timegm(time.strptime(date, "%Y%m%d"))
    except ValueError:
        raise _incomplete(f"The date must be YYYYMMDD, got '{date:.50}'") from None


def _timestamp(epoch_s: float) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(epoch_s))


def _canonical_request(request: HttpRequest, claims: _Claims, query: str) -> bytes:
    headers = request.headers
    lines = [request.method, _canonical_path(request.path), query]
    for name in claims.signed_headers:
        value = headers.get(name)
        if value is None:
            _mismatch(claims, f"The signed header '{name:.100}' is not in the request.")
        lines.append(f"{name}:{' '.join(value.split())}")
    lines += ("", claims.signed_names, _payload_hash(request, claims))
    return "\n".join(lines).encode(*_UTF8)


def _payload_hash(request: HttpRequest, claims: _Claims) -> str:
    """What stands for the body in the canonical request, once it is known to be true."""
    if "x-amz-target" in request.headers and "x-amz-target" not in claims.signed_headers:
        # It decides which operation runs, so a stranger must not be able to add it.
        _mismatch(claims, "X-Amz-Target is in the request but was not signed.")
    stated = request.headers.get("x-amz-content-sha256")
    if stated == UNSIGNED_PAYLOAD and "x-amz-content-sha256" in claims.signed_headers:
        return stated
    actual = sha256(request.body).hexdigest() if request.body else _EMPTY_HASH
    if stated is not None and not compare_digest(stated.encode(*_UTF8), actual.encode()):
        _mismatch(claims, "X-Amz-Content-SHA256 is not the SHA-256 of the body.")
    return actual


@lru_cache(maxsize=1024)
def _canonical_path(path: str) -> str:
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in ("", "."):
            kept.append(segment)
    tail = "/" if kept and path.endswith("/") else ""
    return quote("/" + "/".join(kept) + tail, safe="/~", errors="surrogatepass")


def _canonical_query(query: str, leave_out: str | None = None) -> str:
    pairs = [pair.partition("=")[::2] for pair in query.split("&")]
    return "&".join(f"{name}={value}" for name, value in sorted(pairs) if name != leave_out)


@lru_cache(maxsize=256)
def _signing_key(secret_access_key: str, date: str, region: str, service: str) -> bytes:
    key = b"AWS4" + secret_access_key.encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac_digest(key, part.encode(*_UTF8), "sha256")
    return key
