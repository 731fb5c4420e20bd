"""Checks requests of browsers: the page that sends them, their session, and their body."""

from collections.abc import Callable
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from hostelry.base.json import nests_deeper
from hostelry.console.security import foreign_read, foreign_write
from hostelry.console.session_file import SessionFile
from hostelry.console.sign_in import ConsoleSession

COOKIE = "hostelry-console"
TOKEN_HEADER = "x-hostelry-csrf"
MAX_BODY_BYTES = 1024 * 1024
MAX_DEPTH = 32
MAX_PARAMS = 16
MAX_PARAM_CHARACTERS = 512
SIGNED_OUT = "Sign in: this session has ended, or never began."
ONLY_READS = "This session only reads: `hostelry console --acts` makes one that may act."


class ConsoleJson(Response):
    """A JSON answer."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode the value as JSON."""
        return msgspec.json.encode(content)


class SessionGate:
    """Finds the sessions of requests. Every refusal is an HTTPException."""

    def __init__(self, sessions: SessionFile, now: Callable[[], float]) -> None:
        self._sessions = sessions
        self._now = now

    def find_session(self, request: Request) -> ConsoleSession | None:
        """Find the session of a request, or None. Raises 403 if a page of another origin asks."""
        if foreign_read(request.headers.get("sec-fetch-site")):
            raise HTTPException(403, "Pages of other origins may not read this.")
        cookie, token = request.cookies.get(COOKIE), request.headers.get(TOKEN_HEADER)
        return self._sessions.session(cookie, token) if cookie and token else None

    def reading(self, request: Request) -> ConsoleSession:
        """Find the session of a request. Raises as `find_session`, and 401 without a session."""
        found = self.find_session(request)
        if found is None:
            raise HTTPException(401, SIGNED_OUT)
        return found

    def posting(self, request: Request) -> ConsoleSession:
        """Find the session of a POST. Raises as `reading`, and 403 if another page sends it."""
        check_own_page(request)
        return self.reading(request)

    def acting(self, request: Request) -> ConsoleSession:
        """Find the session of an act. Raises as `posting`, and 403 if it may only read."""
        found = self.posting(request)
        if not found.may_act(self._now()):
            raise HTTPException(403, ONLY_READS)
        return found

    def describe_session(self, session: ConsoleSession) -> dict[str, Any]:
        """Describe a session to its browser."""
        return {"signedIn": True, "session": session.id, "mayAct": session.may_act(self._now())}


def check_own_page(request: Request) -> None:
    """Raise HTTPException 403 unless a page of the console's own address sends the request."""
    headers = request.headers
    host, origin = headers.get("x-forwarded-host", ""), headers.get("origin")
    if foreign_write(host, origin, headers.get("sec-fetch-site")):
        text = f"Origin {origin!r:.100} is not the console at {host:.100}; other pages may not act."
        raise HTTPException(403, text)


async def json_body(request: Request) -> dict[str, Any]:
    """Read the JSON object in a request's body. Raises HTTPException 400, 413 and 415."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise HTTPException(415, "Send application/json.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, f"The body is larger than {MAX_BODY_BYTES} bytes.")
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise HTTPException(400, "The body is no JSON.") from None
    if not isinstance(value, dict) or nests_deeper(value, MAX_DEPTH):
        raise HTTPException(400, f"The body is no JSON object, or nests deeper than {MAX_DEPTH}.")
    return value


def query_params(request: Request) -> dict[str, str]:
    """Return the query. Raises HTTPException 400 if it is too large."""
    params = dict(request.query_params)
    if len(params) > MAX_PARAMS or any(
        len(text) > MAX_PARAM_CHARACTERS for pair in params.items() for text in pair
    ):
        text = f"A query has {MAX_PARAMS} values of {MAX_PARAM_CHARACTERS} characters at most."
        raise HTTPException(400, text)
    return params
