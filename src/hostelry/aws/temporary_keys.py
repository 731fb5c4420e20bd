"""Temporary keys: a session token says itself whose it is and until when, under a seal.

::

    token  = base64url(seal + claims)      claims: a `Session` as JSON
    seal   = HMAC-SHA256(key, claims)      key: derived from a secret of the home
    secret = derived from key and claims, so that nothing is stored

A process with the key verifies a token by itself. The claims are not secret.
"""

import base64
import binascii
from dataclasses import dataclass
from hmac import compare_digest
from hmac import digest as hmac_digest

import msgspec

from hostelry.base.json import decode

MAX_TOKEN_CHARACTERS = 4096
_SEAL_BYTES = 32
_SECRET_CHARACTERS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Claims of temporary keys; those of a role are empty where the account itself asked.

    A copy's keys have a session name, the copy's instance, and no role.
    """

    access_key_id: str
    account_id: str
    expires_at: int
    role_name: str = ""
    role_id: str = ""
    session_name: str = ""

    @property
    def invokes_only(self) -> bool:
        """Whether they are a copy's, which may invoke models and nothing else."""
        return bool(self.session_name) and not self.role_name


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporaryKeys:
    """Keys as they are issued."""

    access_key_id: str
    secret_access_key: str
    session_token: str
    expires_at: int


class TokenSeal:
    """Issues temporary keys, and opens their tokens.

    Args:
        home_key: a secret that the processes of one platform share, and no other process knows.
    """

    def __init__(self, home_key: str) -> None:
        self._key = hmac_digest(home_key.encode(), b"hostelry temporary keys 1", "sha256")

    def issue(self, session: Session) -> TemporaryKeys:
        """The keys of `session`."""
        claims = msgspec.json.encode(session)
        token = base64.urlsafe_b64encode(self._seal(claims) + claims).decode()
        return TemporaryKeys(
            access_key_id=session.access_key_id,
            secret_access_key=self._secret(claims),
            session_token=token,
            expires_at=session.expires_at,
        )

    def open(self, token: str) -> Session | None:
        """The session of a token, expired or not; None where it was not sealed here."""
        if len(token) > MAX_TOKEN_CHARACTERS:
            return None
        try:
            content = base64.b64decode(token, altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        seal, claims = content[:_SEAL_BYTES], content[_SEAL_BYTES:]
        if not compare_digest(seal, self._seal(claims)):
            return None
        return decode(claims, Session)

    def _seal(self, claims: bytes) -> bytes:
        return hmac_digest(self._key, b"seal:" + claims, "sha256")

    def _secret(self, claims: bytes) -> str:
        drawn = hmac_digest(self._key, b"secret:" + claims, "sha256")
        return base64.b64encode(drawn).decode()[:_SECRET_CHARACTERS]


def claimed_account(token: str) -> str | None:
    """The account that a token claims, sealed here or not; None where it is no token.

    The seal is not looked at: this says where to ask, never whose the request is.
    """
    if len(token) > MAX_TOKEN_CHARACTERS:
        return None
    try:
        claims = base64.b64decode(token, altchars=b"-_", validate=True)[_SEAL_BYTES:]
        return decode(claims, Session).account_id
    except (binascii.Error, ValueError):
        return None


def session_header(session: Session) -> str:
    """`session` as the value of a header between the platform's own processes."""
    return base64.urlsafe_b64encode(msgspec.json.encode(session)).decode()


def session_of_header(value: str) -> Session:
    """The session of such a header."""
    return decode(base64.urlsafe_b64decode(value), Session)
