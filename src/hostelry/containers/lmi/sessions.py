"""The open sessions of a server, in memory. Pure: instants and ids are arguments.

    requestType NEW_SESSION                  -> a session, with the instant of its end
    a request with the id of an open session -> served
    requestType CLOSE with such an id        -> the session is closed
    an id that is not open, or expired       -> refused
    sessions are off, and an id is given     -> refused
    MAX_SESSIONS are open                    -> refused

An answer does not depend on its session: the engine caches the prefixes of all prompts alike.
Source: LMI's guide of stateful sessions.
"""

from datetime import UTC, datetime
from enum import Enum

import msgspec

from hostelry.containers.lmi.refusal import Cause, Refusal, bad_request

SESSION_HEADER = "X-Amzn-SageMaker-Session-Id"
CLOSED_HEADER = "X-Amzn-SageMaker-Closed-Session-Id"
NEW = "NEW_SESSION"  # also an id, which means that no session is open yet
MAX_SESSIONS = 10_000
DEFAULT_EXPIRATION_S = 1200
SHOWN_CHARACTERS = 80


class SessionRequest(Enum):
    """The value of a body's `requestType`."""

    OPEN = "NEW_SESSION"
    CLOSE = "CLOSE"


class SessionAnswer(msgspec.Struct, frozen=True):
    """The header and the text of a response."""

    header: str
    value: str
    text: str


class OpenSessions:
    """Open sessions by id, each until its end. Without `expiration_s` sessions are off."""

    def __init__(self, expiration_s: int | None) -> None:
        self._expiration_s = expiration_s
        self._expires_at: dict[str, float] = {}  # oldest first, so in order of their ends

    def __len__(self) -> int:
        return len(self._expires_at)

    def check(self, given: str | None, now: float) -> None:
        """Raise Refusal for an id that is not open."""
        if given is None:
            return
        if self._expiration_s is None:
            raise bad_request(
                "invalid payload. stateful sessions not enabled, "
                f"{SESSION_HEADER} header not supported"
            )
        if given == NEW or not given:
            return
        expires_at = self._expires_at.get(given)
        if expires_at is None:
            raise bad_request(f"session not found: {given[:SHOWN_CHARACTERS]}")
        if expires_at <= now:
            del self._expires_at[given]
            raise bad_request(f"session not found: {given} expired at {utc(expires_at)}")

    def carry_out(
        self, request: SessionRequest, given: str | None, fresh_id: str, now: float
    ) -> SessionAnswer:
        """Open the session `fresh_id`, or close the `given` one. Raises Refusal."""
        if self._expiration_s is None:
            raise bad_request(
                f"invalid payload. stateful sessions not enabled, {request.value} not supported"
            )
        if request is SessionRequest.CLOSE:
            return self._close(given, now)
        self._forget_expired(now)
        if len(self._expires_at) >= MAX_SESSIONS:
            raise build_failed_response(
                f"Failed to create session: {MAX_SESSIONS} sessions are open; close some"
            )
        expires_at = self._expires_at[fresh_id] = now + self._expiration_s
        value = f"{fresh_id}; Expires={utc(expires_at)}"
        return SessionAnswer(SESSION_HEADER, value, f"Session {fresh_id} created")

    def _close(self, given: str | None, now: float) -> SessionAnswer:
        if not given or given == NEW:
            raise build_failed_response(f"Failed to close session: invalid session_id: {given}")
        self.check(given, now)
        del self._expires_at[given]
        return SessionAnswer(CLOSED_HEADER, given, f"Session {given} closed")

    def _forget_expired(self, now: float) -> None:
        while self._expires_at:
            oldest = next(iter(self._expires_at))
            if self._expires_at[oldest] > now:
                break
            del self._expires_at[oldest]


def parse_session_request(value: object) -> SessionRequest:
    """The request by its name. Raises Refusal."""
    for request in SessionRequest:
        if request.value == value:
            return request
    names = ", ".join(it.value for it in SessionRequest)
    raise bad_request(f"invalid payload. request type must be one of {names}", "requestType")


def utc(instant: float) -> str:
    """An instant as the header has it."""
    return datetime.fromtimestamp(instant, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def build_failed_response(message: str) -> Refusal:
    """The refusal of a session that cannot be opened or closed."""
    return Refusal(Cause.DEPENDENCY, message)
