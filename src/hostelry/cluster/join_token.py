"""Tokens by which a host joins: what they are, what is kept of them, who is let in. Pure.

A token is ``h1.FINGERPRINT.SECRET``: the SHA-256 of the authority's certificate, by which the
joining host knows the cluster, and 32 random bytes, by which the cluster knows the token. Only the
secret's digest is kept.

a request with                               is
------------------------------------------   -------------------------------------------------
a token that is kept, not used, in time      let in, and the token is used by its key
the same token and the same key, in time     let in again: the first answer may have been lost
the same token and another key               refused: it is used
a token after its time                       refused: expired
any other                                    refused: unknown
"""

import hashlib
import re
import secrets
from dataclasses import dataclass

import msgspec

from hostelry.base.errors import TerminalError, UsageError

FORM = re.compile(r"h1\.([0-9a-f]{64})\.([A-Za-z0-9_-]{43})")
DEFAULT_S, MIN_S, MAX_S = 900.0, 10.0, 7 * 86400.0
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a token; `used_by` is the digest of the key that it was used for."""

    role: str
    expires_at: float
    used_by: str | None = None


@dataclass(frozen=True, slots=True)
class JoinToken:
    """A token as a person copies it."""

    fingerprint: str
    secret: str

    @classmethod
    def new(cls, fingerprint: str) -> "JoinToken":
        """A token of the cluster whose authority has this fingerprint."""
        return cls(fingerprint, secrets.token_urlsafe(32))

    @classmethod
    def parse(cls, text: str) -> "JoinToken":
        """The token; raises TerminalError for a text that is none, without quoting it."""
        found = FORM.fullmatch(text.strip())
        if found is None:
            raise TerminalError(
                "the token is none: it is a line that `hostelry join-token` prints, h1.….…"
            )
        return cls(*found.groups())

    def __str__(self) -> str:
        """The text that `parse` reads."""
        return f"h1.{self.fingerprint}.{self.secret}"


def digest_of(secret: str) -> str:
    """The name under which a token is kept."""
    return hashlib.sha256(secret.encode()).hexdigest()


def refusal(record: TokenRecord | None, key_digest: str, now: float) -> str | None:
    """Why a request with the token is refused; None where it is let in."""
    if record is None:
        return "the token is unknown here: it was printed by another cluster, or is mistyped"
    if now >= record.expires_at:
        return f"the token has expired {now - record.expires_at:.0f} s ago; print a new one"
    if record.used_by not in (None, key_digest):
        return "the token was used by another host; print one for each"
    return None


def seconds_of(text: str) -> float:
    """A time of validity such as ``15m``; raises TerminalError with what is allowed."""
    found = re.fullmatch(r"([0-9]{1,6})([smhd])", text)
    seconds = float(found[1]) * UNITS[found[2]] if found else 0.0
    if not MIN_S <= seconds <= MAX_S:
        raise UsageError(f"--expires {text}: expected a time from 10s to 7d, such as 15m")
    return seconds
