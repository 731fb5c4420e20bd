"""The console's HTTP application. Only the gateway and `hostelry console` may ask it.

| path | who | what |
| --- | --- | --- |
| GET /console/static/... , any other GET below /console | all | the page, which holds no data |
| POST /console/sign-in | a link's code, or a key | a cookie, and a token in the answer |
| GET /console/live, /console/api/... | a session: cookie and token | documents |
| POST /console/api/... | the same, of the page's own origin | sign-out, acts, calls of models |
| POST /internal/sign-in-links | the internal key | the code of a link |
"""

import hmac
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from hostelry.base.clock import Clock
from hostelry.base.guards import INTERNAL_KEY_HEADER, KeyGuard
from hostelry.console.live import LiveTopics
from hostelry.console.platform import PlatformError, PlatformPort
from hostelry.console.playground_calls import PlaygroundCalls
from hostelry.console.routes import ConsoleActs, LiveRoutes, PlaygroundRoutes
from hostelry.console.security import SecurityHeaders, StaticFile, static_files
from hostelry.console.session_file import NewSession, SessionFile
from hostelry.console.sign_in import LINK_S, SESSION_S
from hostelry.console.view_table import LOOKUPS
from hostelry.console.visits import (
    COOKIE,
    ConsoleJson,
    SessionGate,
    check_own_page,
    json_body,
    query_params,
)

USED_LINK = "This link was used, or is older than 5 minutes: `hostelry console` makes another."
READING_KEY = "The OpenAI key opens a session that reads; to act, use the secret access key."


class ConsoleDeps(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that the application works with.

    `reading_key` opens sessions that may read. `acting_key` also opens sessions that may act.
    Without `playground` no model can be asked.
    """

    port: PlatformPort
    topics: LiveTopics
    sessions: SessionFile
    clock: Clock
    internal_key: str
    reading_key: str
    acting_key: str
    playground: PlaygroundCalls | None = None


def console_app(deps: ConsoleDeps) -> ASGIApp:
    """Build the ASGI application. It refuses every request without the internal key."""
    gate = SessionGate(deps.sessions, deps.clock.now)
    api, page = ConsoleApi(deps, gate), PageFiles(static_files())
    acts, live = ConsoleActs(deps.port, gate), LiveRoutes(deps.topics, deps.sessions, gate)
    playground = PlaygroundRoutes(deps.playground, gate)
    app = Starlette(
        routes=[
            Route("/internal/sign-in-links", api.new_link, methods=["POST"]),
            Route("/console/sign-in", api.sign_in, methods=["POST"]),
            Route("/console/live", live.live, methods=["GET"]),
            Route("/console/api/session", api.session, methods=["GET"]),
            Route("/console/api/sign-out", api.sign_out, methods=["POST"]),
            Route("/console/api/look/{name}", api.look, methods=["GET"]),
            Route("/console/api/audit", acts.audit, methods=["GET"]),
            Route("/console/api/acts/{name}/plan", acts.plan, methods=["POST"]),
            Route("/console/api/acts/{name}/do", acts.do, methods=["POST"]),
            Route("/console/api/playground", playground.targets, methods=["GET"]),
            Route("/console/api/playground/{kind}", playground.call, methods=["POST"]),
            Route("/console/api/{path:path}", _no_such, methods=["GET", "POST"]),
            Route("/console/static/{path:path}", page.static, methods=["GET"]),
            Route("/console", page.page, methods=["GET"]),
            Route("/console/{path:path}", page.page, methods=["GET"]),
        ],
        exception_handlers={HTTPException: _answer_refusal},
    )
    refusal = Response("The internal key is missing or wrong.", 403)
    return SecurityHeaders(KeyGuard(app, INTERNAL_KEY_HEADER, deps.internal_key, refusal))


class PageFiles:
    """The page and its files, which are the same for all and hold no data."""

    def __init__(self, files: Mapping[str, StaticFile]) -> None:
        self._files = files

    async def page(self, request: Request) -> Response:
        """Answer with the page, whose script reads the path."""
        return self._answer(request, self._files["index.html"])

    async def static(self, request: Request) -> Response:
        """Answer with a file of the page, for example a script."""
        found = self._files.get(request.path_params["path"])
        if found is None:
            raise HTTPException(404, "There is no such file.")
        return self._answer(request, found)

    @staticmethod
    def _answer(request: Request, file: StaticFile) -> Response:
        headers = {"ETag": file.etag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == file.etag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.media_type)


class ConsoleApi:
    """Sign-in, sessions and look-ups."""

    def __init__(self, deps: ConsoleDeps, gate: SessionGate) -> None:
        self._deps = deps
        self._gate = gate

    async def new_link(self, request: Request) -> Response:
        """Make a one-time link, and answer with its code. Needs the internal key."""
        asked = await json_body(request)
        code = self._deps.sessions.new_link(acts=asked.get("acts") is True)
        return ConsoleJson({"code": code, "within_s": LINK_S})

    async def sign_in(self, request: Request) -> Response:
        """Open a session for the code of a link, or for a key. 403 if the code or key is wrong."""
        check_own_page(request)
        asked = await json_body(request)
        code, key = asked.get("code"), asked.get("key")
        if isinstance(code, str):
            opened = self._deps.sessions.by_link(code)
            if opened is None:
                raise HTTPException(403, USED_LINK)
        elif isinstance(key, str):
            opened = self._by_key(key, acts=asked.get("acts") is True)
        else:
            raise HTTPException(400, "Send the code of a link, or a key.")
        return self._signed_in(request, opened)

    def _by_key(self, key: str, *, acts: bool) -> NewSession:
        """Open a session with a key. Raises HTTPException 403, or 429 after too many wrong keys."""
        deps = self._deps
        if wait_s := deps.sessions.wait_s():
            text = f"Too many wrong keys: try again in {wait_s:.0f} s, or use `hostelry console`."
            raise HTTPException(429, text, {"Retry-After": str(int(wait_s) + 1)})
        given = key.encode("utf-8", "replace")
        may_act = hmac.compare_digest(given, deps.acting_key.encode())
        if not may_act and not hmac.compare_digest(given, deps.reading_key.encode()):
            deps.sessions.key_refused()
            raise HTTPException(403, "This key is not known.")
        if acts and not may_act:
            raise HTTPException(403, READING_KEY)
        return deps.sessions.new_session(acts=acts)

    def _signed_in(self, request: Request, opened: NewSession) -> Response:
        answer = ConsoleJson({"token": opened.token, **self._gate.describe_session(opened.session)})
        answer.set_cookie(
            COOKIE,
            opened.cookie,
            max_age=int(SESSION_S),
            path="/console",
            secure=request.headers.get("x-forwarded-proto") == "https",
            httponly=True,
            samesite="strict",
        )
        return answer

    async def session(self, request: Request) -> Response:
        """Answer whether the browser is signed in and may act. Never 401: browsers log a 401."""
        found = self._gate.find_session(request)
        return ConsoleJson(
            {"signedIn": False} if found is None else self._gate.describe_session(found)
        )

    async def sign_out(self, request: Request) -> Response:
        """End this session."""
        self._deps.sessions.end(self._gate.posting(request))
        answer = ConsoleJson({})
        answer.delete_cookie(COOKIE, path="/console", httponly=True, samesite="strict")
        return answer

    async def look(self, request: Request) -> Response:
        """Answer a look-up, which is a view that is read once."""
        self._gate.reading(request)
        lookup = LOOKUPS.get(request.path_params["name"])
        if lookup is None:
            return await _no_such(request)
        try:
            found = await lookup(self._deps.port, query_params(request), self._deps.clock.now())
        except PlatformError as error:
            raise HTTPException(502, str(error)) from None
        return ConsoleJson(found)


async def _no_such(request: Request) -> Response:
    raise HTTPException(404, f"{request.url.path[:100]}: there is no such thing here.")


async def _answer_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "it is registered for these only"
    body: dict[str, Any] = {"message": error.detail}
    return ConsoleJson(body, error.status_code, error.headers)
