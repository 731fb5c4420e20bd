"""Signature Version 4: verifies a request's signature, and identifies its signer.

The canonical request, from the parts as they came over the wire, is::

    method, path (dot segments resolved, then percent-encoded once more), query (sorted),
    each signed header as name:value with white space folded, the signed names, the body's hash

and each part ends a line. Source: AWS IAM User Guide, "Create a signed AWS API request".
"""

import calendar
import re
import time
from collections.abc import Callable
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache
from hashlib import sha256
from hmac import HMAC, compare_digest
from hmac import digest as hmac_digest
from typing import NoReturn
from urllib.parse import parse_qsl, quote

import msgspec

from hostelry.aws.codes import QUERY_SIGNING_NAMES, query_code
from hostelry.aws.s3_signing import UNSIGNED_PAYLOAD, s3_path, s3_stated_hash
from hostelry.aws.steering_headers import unsigned_headers
from hostelry.aws.temporary_keys import MAX_LIFETIME_S, Session, TokenSeal
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest

ALGORITHM = "AWS4-HMAC-SHA256"
MAX_PRESIGNED_S = 7 * 24 * 3600
_EMPTY_HASH = sha256(b"").hexdigest()
_SCHEME = ALGORITHM + " "
_PRESIGNED_PARTS = ("Credential", "Date", "Expires", "SignedHeaders", "Signature")
_PRESIGNED = tuple(f"X-Amz-{it}" for it in _PRESIGNED_PARTS)
INVALID_TOKEN = "The security token included in the request is invalid."
EXPIRED_TOKEN = "The security token included in the request is expired"
_TIMESTAMP_CHARACTERS = 16
_MAX_SIGNERS = 256
_MAX_KEPT_CHARACTERS = 1024
_HASH = re.compile("[0-9a-f]{64}")
_UTF8 = ("utf-8", "surrogatepass")  # no text that a client can send may fail to be hashed


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """The secret half of an access key, the account it belongs to, and its session if temporary.

    `user` names the user of a permanent key. Empty: it is a key of the account's root.
    """

    secret_access_key: str
    account_id: str
    user: str = ""
    session: Session | None = None


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The signer, and the region and service (signing name, as ``monitoring``) signed for.

    `user` names the user of a permanent key, `session` is the session of temporary keys.
    """

    access_key_id: str
    account_id: str
    region: str
    service: str
    user: str = ""
    session: Session | None = None


class Proven(msgspec.Struct, frozen=True):
    """The head alone proves who signed the request."""

    identity: Identity


class NeedsBody(msgspec.Struct, frozen=True):
    """The head proves nothing: the signature covers the body, which is not there yet."""


class _Claims(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of a signature, not verified yet."""

    access_key_id: str
    date: str
    region: str
    service: str
    scope: str
    signed_headers: tuple[str, ...]
    signed_names: str


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request's claims before verification. `text` is their place in the request."""

    text: str
    claims: _Claims
    secret: Secret
    timestamp: str
    query: str
    signature: str


class _Signer(msgspec.Struct, frozen=True, kw_only=True):
    """Verified claims, and the data to verify the next signature.

    `keyed` is copied for each signature: that takes less time than its key.
    """

    claims: _Claims
    secret: Secret
    keyed: HMAC
    identity: Identity


class Verifier:
    """Verifies signatures in the Authorization header or in the query (presigned).

    Only verified claims are remembered, so unsigned requests fill no memory.

    Args:
        secret_of: access key id -> its secret, None for a key that does not exist.
        max_skew_s: how far a client's clock may be off, both ways.
        seal: opens the session tokens of temporary keys. Without it they are refused.
        is_s3: verify as S3 does, by the head alone: paths are encoded once and not resolved, and
            the body may be signed in pieces, or in a presigned request not at all.
        is_private: requests come by TLS or from this machine. Headers of an invocation
            (`x-amzn-sagemaker-...`) need no signature then, as on AWS.
    """

    def __init__(
        self,
        secret_of: Callable[[str], Secret | None],
        max_skew_s: float = 300.0,
        seal: TokenSeal | None = None,
        *,
        is_s3: bool = False,
        is_private: bool = False,
    ) -> None:
        self._secret_of = secret_of
        self._max_skew_s = max_skew_s
        self._seal = seal
        self._is_s3 = is_s3
        self._is_private = is_private
        self._signers: dict[str, _Signer] = {}
        self._temporary: dict[str, Secret] = {}

    @property
    def num_remembered(self) -> int:
        """How many signers are remembered."""
        return len(self._signers)

    def verify(self, request: HttpRequest, now: float) -> Identity:
        """The signer of `request` at `now` in epoch seconds. Raises ServiceError (403)."""
        asked = self._parse_head(request, now)
        stated = _stated_hash(request, asked.claims)
        if stated is None:
            return self._prove(request, asked, _hash(request.body))
        identity = self._prove(request, asked, stated)  # before a body that may be large is hashed
        if stated != UNSIGNED_PAYLOAD and not compare_digest(stated, _hash(request.body)):
            _mismatch(asked.claims, "X-Amz-Content-SHA256 is not the SHA-256 of the body.")
        return identity

    def verify_head(self, request: HttpRequest, now: float) -> Proven | NeedsBody:
        """Who signed `request`, whose body has not arrived, if the head states the body's hash.

        Raises ServiceError (403) as `verify` would.
        """
        asked = self._parse_head(request, now)
        stated = s3_stated_hash(request) if self._is_s3 else _stated_hash(request, asked.claims)
        return NeedsBody() if stated is None else Proven(self._prove(request, asked, stated))

    def _parse_head(self, request: HttpRequest, now: float) -> _Asked:
        """Parse and check the head, except the signature."""
        authorization = request.headers.get("authorization")
        token = None
        if authorization is not None:
            text, signature = _split_authorization(authorization)
            signer = self._signers.get(text)
            claims = _header_claims(text) if signer is None else signer.claims
            timestamp, lifetime_s = _header_timestamp(request), self._max_skew_s
            query = _canonical_query(request.query) if request.query else ""
        elif "X-Amz-Signature=" in request.query:
            fields = _presigned_fields(request.query)
            text, signature = "", fields["X-Amz-Signature"]
            claims = _claims(fields["X-Amz-Credential"], fields["X-Amz-SignedHeaders"])
            timestamp, lifetime_s = fields["X-Amz-Date"], _lifetime_s(fields)
            query = _canonical_query(request.query, leave_out="X-Amz-Signature")
            token = fields.get("X-Amz-Security-Token")
        else:
            raise ServiceError(
                "MissingAuthenticationTokenException", "Missing Authentication Token", 403
            )
        _check_time(claims, timestamp, now, lifetime_s, self._max_skew_s)
        secret = self._secret_of(claims.access_key_id) or self._temporary_secret(
            claims, token or request.headers.get("x-amz-security-token"), now
        )
        _check_signed_names(request, claims, self._is_private)
        return _Asked(
            text=text,
            claims=claims,
            secret=secret,
            timestamp=timestamp,
            query=query,
            signature=signature,
        )

    def _temporary_secret(self, claims: _Claims, token: str | None, now: float) -> Secret:
        """The secret of temporary keys. Raises for foreign, expired and too long sessions."""
        secret = self._temporary.get(token or "")
        if secret is None:
            opened = self._seal.open_with_secret(token) if self._seal and token else None
            if token is None or opened is None:
                _refuse(claims, "UnrecognizedClientException", INVALID_TOKEN)
            session, key = opened
            secret = Secret(secret_access_key=key, account_id=session.account_id, session=session)
            if len(self._temporary) >= _MAX_SIGNERS:
                self._temporary.clear()
            self._temporary[token] = secret
        assert secret.session is not None
        if secret.session.access_key_id != claims.access_key_id:
            _refuse(claims, "UnrecognizedClientException", INVALID_TOKEN)
        if secret.session.expires_at - now > MAX_LIFETIME_S + self._max_skew_s:
            _refuse(claims, "UnrecognizedClientException", INVALID_TOKEN)
        if now >= secret.session.expires_at:
            _refuse(claims, "ExpiredTokenException", EXPIRED_TOKEN)
        return secret

    def _prove(self, request: HttpRequest, asked: _Asked, payload_hash: str) -> Identity:
        claims = asked.claims
        signer = known = self._signers.get(asked.text)
        if signer is None or signer.secret is not asked.secret:
            signer = _signer(claims, asked.secret)
        path = s3_path(request.path) if self._is_s3 else _canonical_path(request.path)
        canonical = _canonical_request(request, claims, (path, asked.query), payload_hash)
        signed = f"{ALGORITHM}\n{asked.timestamp}\n{claims.scope}\n{sha256(canonical).hexdigest()}"
        expected = signer.keyed.copy()
        expected.update(signed.encode(*_UTF8))
        if not compare_digest(expected.hexdigest().encode(), asked.signature.encode(*_UTF8)):
            _mismatch(
                claims,
                "The request signature we calculated does not match the signature you provided. "
                "Check your AWS Secret Access Key and signing method.",
            )
        if signer is not known and 0 < len(asked.text) <= _MAX_KEPT_CHARACTERS:
            self._keep(asked.text, signer)
        return signer.identity

    def _keep(self, text: str, signer: _Signer) -> None:
        if len(self._signers) >= _MAX_SIGNERS and text not in self._signers:
            self._signers.clear()
        self._signers[text] = signer


def _signer(claims: _Claims, secret: Secret) -> _Signer:
    key = b"AWS4" + secret.secret_access_key.encode()
    for part in (claims.date, claims.region, claims.service, "aws4_request"):
        key = hmac_digest(key, part.encode(*_UTF8), "sha256")
    identity = Identity(
        access_key_id=claims.access_key_id,
        account_id=secret.account_id,
        region=claims.region,
        service=claims.service,
        user=secret.user,
        session=secret.session,
    )
    return _Signer(claims=claims, secret=secret, keyed=HMAC(key, None, "sha256"), identity=identity)


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
    pairs = parse_qsl(query, keep_blank_values=True)
    fields = dict(pairs)
    names = [name for name, _ in pairs]
    twice = sorted({it for it in names if it.startswith("X-Amz-") and names.count(it) > 1})
    if twice:
        raise _incomplete(f"The presigned query has {', '.join(twice):.100} more than once")
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


def _check_signed_names(request: HttpRequest, claims: _Claims, is_private: bool) -> None:
    unsigned = unsigned_headers(request.headers, claims.signed_headers, is_private=is_private)
    if unsigned:
        _mismatch(
            claims,
            "There were headers present in the request which were not signed: "
            f"{', '.join(unsigned):.300}. Every x-amz* and x-hostelry* header must be signed"
            " (x-amzn-sagemaker-* only if requests come by plain HTTP from other machines).",
        )


def _canonical_request(
    request: HttpRequest, claims: _Claims, target: tuple[str, str], payload_hash: str
) -> bytes:
    headers = request.headers
    lines = [request.method, *target]
    for name in claims.signed_headers:
        value = headers.get(name)
        if value is None:
            _mismatch(claims, f"The signed header '{name:.100}' is not in the request.")
        lines.append(f"{name}:{_fold(value)}")
    lines += ("", claims.signed_names, payload_hash)
    return "\n".join(lines).encode(*_UTF8)


def _fold(value: str) -> str:
    """Fold the blanks of `value`. Other white space is kept, or it could be swapped."""
    if "  " in value or "\t" in value:
        value = " ".join([it for it in value.replace("\t", " ").split(" ") if it])
    return value.strip(" ")


def _stated_hash(request: HttpRequest, claims: _Claims) -> str | None:
    """The head's statement on the body: a hash, or unsigned. None without a statement."""
    stated = request.headers.get("x-amz-content-sha256")
    if stated is not None and stated != UNSIGNED_PAYLOAD and not _HASH.fullmatch(stated):
        _mismatch(
            claims,
            f"X-Amz-Content-SHA256 is not the SHA-256 of the body: '{stated:.100}'. It must be "
            f"64 hexadecimal digits in lower case, or {UNSIGNED_PAYLOAD}.",
        )
    return stated


def _hash(body: bytes) -> str:
    return sha256(body).hexdigest() if body else _EMPTY_HASH


def _canonical_path(path: str) -> str:
    if len(path) <= _MAX_KEPT_CHARACTERS:
        return _short_canonical_path(path)
    return _resolved_path(path)


@lru_cache(maxsize=1024)
def _short_canonical_path(path: str) -> str:
    return _resolved_path(path)


def _resolved_path(path: str) -> str:
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
