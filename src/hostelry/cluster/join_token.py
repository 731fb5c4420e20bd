"""Tokens by which hosts join, and the hosts that have joined. Pure."""

import hashlib
import re
import secrets
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from hostelry.base.errors import RetryableError, TerminalError, UsageError

FORM = re.compile(r"h1\.([0-9a-f]{64})\.([A-Za-z0-9_-]{43})")
DEFAULT_S, MIN_S, MAX_S = 900.0, 10.0, 7 * 86400.0
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a token. `used_by` is the digest of the key that it was used for."""

    role: str
    expires_at: float
    used_by: str | None = None


class JoinToken(msgspec.Struct, frozen=True):
    """A token as a person copies it: ``h1.FINGERPRINT.SECRET``.

    By the SHA-256 of the authority's certificate, the joining host knows the cluster. By 32 random
    bytes, the cluster knows the token, and keeps only their digest.
    """

    fingerprint: str
    secret: str

    @classmethod
    def new(cls, fingerprint: str) -> "JoinToken":
        """A token of the cluster whose authority has this fingerprint."""
        return cls(fingerprint, secrets.token_urlsafe(32))

    @classmethod
    def parse(cls, text: str) -> "JoinToken":
        """Parse a token. Raises TerminalError, without quoting the text, if it is invalid."""
        found = FORM.fullmatch(text.strip())
        if found is None:
            raise TerminalError(
                "invalid token: paste the line that `hostelry join-token` prints, h1.….…"
            )
        return cls(*found.groups())

    def __str__(self) -> str:
        """The text that `parse` reads."""
        return f"h1.{self.fingerprint}.{self.secret}"


def get_digest(secret: str) -> str:
    """The name under which a token is kept."""
    return hashlib.sha256(secret.encode()).hexdigest()


def refusal(record: TokenRecord | None, key_digest: str, now: float) -> str | None:
    """The reason to refuse a request with the token. None if it is admitted.

    a request with                               is
    ------------------------------------------   -------------------------------------------------
    a token that is kept, not used, in time      let in, and the token is used by its key
    the same token and the same key, in time     let in again: the first answer may have been lost
    the same token and another key               refused: it is used
    a token after its time                       refused: expired
    any other                                    refused: unknown
    """
    if record is None:
        return "the token is unknown here: it was printed by another cluster, or is mistyped"
    if now >= record.expires_at:
        return f"the token has expired {now - record.expires_at:.0f} s ago; print a new one"
    if record.used_by not in (None, key_digest):
        return "the token was used by another host; print one for each"
    return None


def parse_seconds(text: str) -> float:
    """Parse a validity such as ``15m``. Raises TerminalError with the allowed range."""
    found = re.fullmatch(r"([0-9]{1,6})([smhd])", text)
    seconds = float(found[1]) * UNITS[found[2]] if found else 0.0
    if not MIN_S <= seconds <= MAX_S:
        raise UsageError(f"--expires {text}: expected a time from 10s to 7d, such as 15m")
    return seconds


KIND = "joined_host"
STARTS_WITHIN_S = 60.0
RANDOM_BYTES = 3


class JoinedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host by the name that it joined under."""

    role: str
    host_id: str
    joined_at: float


def check_name(
    name: str,
    holder: JoinedHost | None,
    asked: JoinedHost,
    live: Collection[str] | None,
) -> None:
    """Raise if `asked` may not have the name, which `holder` has.

    `live`: ids of hosts that run. None: not known yet. Raises TerminalError with the way out, or
    RetryableError.

    a host joins under a name                          then
    ------------------------------------------------   ---------------------------------------------
    that no host has                                   it is its own
    that it has itself: it joins again                 it stays its own
    of another that runs, or joined a minute ago       refused
    of another that does not run                       it is its own from now on
    of another, and who runs is not known yet          refused with 503: a new leader knows soon
    """
    if holder is None or holder.host_id == asked.host_id:
        return
    is_new = asked.joined_at - holder.joined_at < STARTS_WITHIN_S
    if not is_new and live is None:
        raise RetryableError(f"whether the host {name} runs is not known yet; try again")
    if is_new or holder.host_id in (live or ()):
        state = "has just joined" if is_new else "runs"
        raise TerminalError(
            f"a host of role {holder.role} with the name {name} {state}: give this one another "
            "name, --host-name NAME"
        )


def live_hosts(gateways: Collection[str] | None, leader: Mapping[str, Any]) -> set[str] | None:
    """Ids of the hosts with gateways, and of those in the answer to GET /internal/leader."""
    if gateways is None:
        return None
    return {*gateways, *(get_host_id(it["id"]) for it in leader.get("members", ()))}


def build_control_id(name: str, host_id: str, pid: int) -> str:
    """The id of one control process, never of two. `host_id` is empty if its host has none."""
    return f"{name}-{pid}-{host_id}{secrets.token_hex(RANDOM_BYTES)}"


def get_host_id(control: str) -> str:
    """The host's id in a `build_control_id`."""
    return control.rpartition("-")[2][: -2 * RANDOM_BYTES]
