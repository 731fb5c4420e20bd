"""The console's HTTP. Only the gateway may ask it, and commands that make a sign-in link.

| path | who | what |
| --- | --- | --- |
| GET /console/static/... , any other GET below /console | all | the page, which holds no data |
| POST /console/sign-in | a link's code, or a key | a cookie, and a token in the answer |
| GET /console/live, /console/api/... | a session: cookie and token | documents |
| POST /console/api/... | the same, of the page's own origin | sign-out, acts, calls of models |
| POST /internal/sign-in-links | the internal key | the code of a link |
"""

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hostelry.base.clock import Clock
from hostelry.base.key_guard import INTERNAL_KEY_HEADER, KeyGuard
from hostelry.console.acts import ActPlan, ActRefusedError, act_plan
from hostelry.console.audit import ActAudit
from hostelry.console.live import LiveTopic, LiveTopics, event
from hostelry.console.platform import ApiQuery, PlatformError, PlatformPort
from hostelry.console.playground_calls import PlaygroundCalls
from hostelry.console.security import SecurityHeaders, foreign_read, foreign_write
from hostelry.console.session_file import NewSession, SessionFile
from hostelry.console.sign_in import LINK_S, SESSION_S, ConsoleSession
from hostelry.console.static_files import StaticFile, static_files
from hostelry.console.view_table import LOOKUPS, VIEWS
from hostelry.console.views.playground import PlaygroundRefusedError

LOG = logging.getLogger(__name__)
COOKIE = "hostelry-console"
TOKEN_HEADER = "x-hostelry-csrf"
MAX_BODY_BYTES = 1024 * 1024
MAX_PARAM_CHARACTERS = 512
MAX_STREAMS_EACH = 12
MAX_STREAMS = 64
ALIVE_EVERY_S = 15.0
KEPT_ALIVE = b": alive\n\n"
SIGNED_OUT = "Sign in: this session has ended, or never began."


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleDeps:
    """What the application works with.

    `reading_key` opens sessions that read; `acting_key` also ones that act. Without `playground` no
    model can be asked.
    """

    port: PlatformPort
    topics: LiveTopics
    sessions: SessionFile
    audit: ActAudit
    clock: Clock
    internal_key: str
    reading_key: str
    acting_key: str
    playground: PlaygroundCalls | None = None


class ConsoleJson(Response):
    """A JSON answer."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The value as JSON."""
        return msgspec.json.encode(content)


class EventStream(StreamingResponse):
    """Server-sent events; `ended` is called once, at their end, however that comes."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], ended: Callable[[], None]) -> None:
        super().__init__(events)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until the browser leaves."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


def console_app(deps: ConsoleDeps) -> ASGIApp:
    """The ASGI application; it refuses every request without the internal key."""
    api = ConsoleApi(deps)
    page = PageFiles(static_files())
    app = Starlette(
        routes=[
            Route("/internal/sign-in-links", api.new_link, methods=["POST"]),
            Route("/console/sign-in", api.sign_in, methods=["POST"]),
            Route("/console/live", api.live, methods=["GET"]),
            Route("/console/api/session", api.session, methods=["GET"]),
            Route("/console/api/sign-out", api.sign_out, methods=["POST"]),
            Route("/console/api/look/{name}", api.look, methods=["GET"]),
            Route("/console/api/audit", api.audit, methods=["GET"]),
            *_playground_routes(api, deps.playground),
            Route("/console/api/acts/{name}/plan", api.plan_act, methods=["POST"]),
            Route("/console/api/acts/{name}/do", api.do_act, methods=["POST"]),
            Route("/console/api/{path:path}", _no_such, methods=["GET", "POST"]),
            Route("/console/static/{path:path}", page.static, methods=["GET"]),
            Route("/console", page.page, methods=["GET"]),
            Route("/console/{path:path}", page.page, methods=["GET"]),
        ],
        exception_handlers={HTTPException: _refused},
    )
    refusal = Response("The internal key is missing or wrong.", 403)
    return SecurityHeaders(KeyGuard(app, INTERNAL_KEY_HEADER, deps.internal_key, refusal))


def _playground_routes(api: "ConsoleApi", calls: PlaygroundCalls | None) -> list[Route]:
    if calls is None:
        return []
    path = "/console/api/playground"
    return [
        Route(path, partial(api.playground, calls), methods=["GET"]),
        Route(f"{path}/{{kind}}", partial(api.call_model, calls), methods=["POST"]),
    ]


class PageFiles:
    """The page and its files, which are the same for all and hold no data."""

    def __init__(self, files: Mapping[str, StaticFile]) -> None:
        self._files = files

    async def page(self, request: Request) -> Response:
        """The page; its script reads the path."""
        return self._answer(request, self._files["index.html"])

    async def static(self, request: Request) -> Response:
        """A script or a style."""
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
    """Sign-in, live documents, look-ups and acts."""

    def __init__(self, deps: ConsoleDeps) -> None:
        self._deps = deps
        self._streams: dict[str, int] = {}

    async def new_link(self, request: Request) -> Response:
        """The code of a one-time link, for a process that has the internal key."""
        asked = await _body(request)
        code = self._deps.sessions.new_link(acts=asked.get("acts") is True)
        return ConsoleJson({"code": code, "within_s": LINK_S})

    async def sign_in(self, request: Request) -> Response:
        """A session for the code of a link or for a key; 403 where neither opens one."""
        _check_write(request)
        asked = await _body(request)
        code = asked.get("code")
        opened = self._by_key(asked)
        if isinstance(code, str):
            opened = self._deps.sessions.by_link(code)
        if opened is None:
            text = (
                "This link was used, or is older than 5 minutes: `hostelry console` makes another."
            )
            raise HTTPException(403, text if isinstance(code, str) else "This key is not known.")
        return self._signed_in(request, opened)

    def _by_key(self, asked: Mapping[str, Any]) -> NewSession | None:
        key, acts = asked.get("key"), asked.get("acts") is True
        if not isinstance(key, str):
            return None
        deps = self._deps
        if wait_s := deps.sessions.wait_s():
            text = f"Too many wrong keys: try again in {wait_s:.0f} s, or use `hostelry console`."
            raise HTTPException(429, text, {"Retry-After": str(int(wait_s) + 1)})
        given = key.encode("utf-8", "replace")
        may_act = hmac.compare_digest(given, deps.acting_key.encode())
        if not may_act and not hmac.compare_digest(given, deps.reading_key.encode()):
            deps.sessions.key_refused()
            return None
        if acts and not may_act:
            text = "The OpenAI key opens a session that reads; to act, use the secret access key."
            raise HTTPException(403, text)
        return deps.sessions.new_session(acts=acts)

    def _signed_in(self, request: Request, opened: NewSession) -> Response:
        answer = ConsoleJson({"token": opened.token, **self._shown(opened.session)})
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
        """Whether a browser is signed in, and what it may do; never a 401, which it would log."""
        found = self._known(request)
        return ConsoleJson({"signedIn": False} if found is None else self._shown(found))

    async def sign_out(self, request: Request) -> Response:
        """End this session."""
        _check_write(request)
        self._deps.sessions.end(self._session(request))
        answer = ConsoleJson({})
        answer.delete_cookie(COOKIE, path="/console", httponly=True, samesite="strict")
        return answer

    async def live(self, request: Request) -> Response:
        """The events of a view; 429 where too many streams are open."""
        session = self._session(request)
        topic = _topic(request)
        open_here = self._streams.get(session.id, 0)
        if open_here >= MAX_STREAMS_EACH or sum(self._streams.values()) >= MAX_STREAMS:
            text = (
                f"{open_here} live views are open in this session and "
                f"{sum(self._streams.values())} in all; the limits are {MAX_STREAMS_EACH} and "
                f"{MAX_STREAMS}. Close a tab."
            )
            raise HTTPException(429, text, {"Retry-After": "10"})
        self._streams[session.id] = open_here + 1
        return EventStream(self._events(session, topic), partial(self._stream_ended, session.id))

    def _stream_ended(self, session_id: str) -> None:
        self._streams[session_id] -= 1
        if not self._streams[session_id]:
            del self._streams[session_id]

    async def _events(self, session: ConsoleSession, topic: LiveTopic) -> AsyncIterator[bytes]:
        async with self._deps.topics.following(topic) as follower:
            while self._deps.sessions.is_open(session):
                yield await follower.next_events(ALIVE_EVERY_S) or KEPT_ALIVE
        yield event("signed-out", {})

    async def look(self, request: Request) -> Response:
        """What is asked once: a look-up of the table."""
        self._session(request)
        lookup = LOOKUPS.get(request.path_params["name"])
        if lookup is None:
            return await _no_such(request)
        try:
            found = await lookup(self._deps.port, _params(request), self._deps.clock.now())
        except PlatformError as error:
            raise HTTPException(502, str(error)) from None
        return ConsoleJson(found)

    async def audit(self, request: Request) -> Response:
        """What was done from here."""
        self._session(request)
        return ConsoleJson({"entries": await asyncio.to_thread(self._deps.audit.last)})

    async def playground(self, calls: PlaygroundCalls, request: Request) -> Response:
        """The models and endpoints that may be asked."""
        self._session(request)
        try:
            return ConsoleJson(await calls.targets())
        except PlatformError as error:
            raise HTTPException(502, str(error)) from None

    async def call_model(self, calls: PlaygroundCalls, request: Request) -> Response:
        """The events of a chat or an invocation, which end with the browser."""
        _check_write(request)
        self._session(request)
        kind = request.path_params["kind"]
        if kind not in ("chat", "invoke"):
            return await _no_such(request)
        try:
            call = calls.begin(kind, await _body(request))
        except PlaygroundRefusedError as error:
            raise HTTPException(400, str(error)) from None
        return EventStream(call.events(), call.end)

    async def plan_act(self, request: Request) -> Response:
        """What an act would do, in words and as calls."""
        _, plan, _ = await self._planned(request)
        calls = [_call_shown(it) for it in plan.calls]
        return ConsoleJson({"sentence": plan.sentence, "warning": plan.warning, "calls": calls})

    async def do_act(self, request: Request) -> Response:
        """Do an act: it is in the audit before, and its outcome after."""
        session, plan, asked = await self._planned(request)
        deps, name = self._deps, request.path_params["name"]
        entry = {"session": session.id, "act": name, "arguments": asked, "what": plan.sentence}
        try:
            await asyncio.to_thread(deps.audit.write, {**entry, "outcome": "begun"})
        except OSError as error:
            text = f"Nothing was done, since the audit cannot be written: {error}"
            raise HTTPException(503, text) from None
        outcome = "done"
        try:
            for call in plan.calls:
                await self._do(call)
        except PlatformError as error:
            outcome = f"refused: {error}"
        except BaseException:
            outcome = "not known: it was cut off"
            raise
        finally:
            _note_end(deps.audit, {**entry, "outcome": outcome})
        if outcome != "done":
            raise HTTPException(409, outcome)
        return ConsoleJson({"outcome": outcome, "what": plan.sentence})

    async def _do(self, call: Any) -> None:
        port = self._deps.port
        if isinstance(call, ApiQuery):
            await port.call(call.service, call.operation, call.parameters)
        else:
            await port.post(call.process, call.path, call.body)

    async def _planned(self, request: Request) -> tuple[ConsoleSession, ActPlan, dict[str, Any]]:
        _check_write(request)
        session = self._session(request)
        if not session.may_act(self._deps.clock.now()):
            text = "This session only reads: `hostelry console --acts` makes one that may act."
            raise HTTPException(403, text)
        asked = await _body(request)
        try:
            return session, act_plan(request.path_params["name"], asked), asked
        except ActRefusedError as error:
            raise HTTPException(400, str(error)) from None

    def _session(self, request: Request) -> ConsoleSession:
        """The session of a request; raises HTTPException 401, and 403 for a foreign page."""
        found = self._known(request)
        if found is None:
            raise HTTPException(401, SIGNED_OUT)
        return found

    def _known(self, request: Request) -> ConsoleSession | None:
        """The session of a request, if any; raises HTTPException 403 for a foreign page."""
        if foreign_read(request.headers.get("sec-fetch-site")):
            raise HTTPException(403, "Pages of other origins may not read this.")
        cookie, token = request.cookies.get(COOKIE), request.headers.get(TOKEN_HEADER)
        return self._deps.sessions.session(cookie, token) if cookie and token else None

    def _shown(self, session: ConsoleSession) -> dict[str, Any]:
        return {
            "signedIn": True,
            "session": session.id,
            "mayAct": session.may_act(self._deps.clock.now()),
        }


def _call_shown(call: Any) -> dict[str, Any]:
    if isinstance(call, ApiQuery):
        return {"call": f"{call.service} {call.operation}", "parameters": call.parameters}
    return {"call": f"{call.process} {call.path}", "parameters": call.body}


def _note_end(audit: ActAudit, entry: Mapping[str, Any]) -> None:
    try:
        audit.write(entry)
    except OSError as error:
        LOG.warning("the audit lacks an outcome, %s: %s", entry, error)


def _check_write(request: Request) -> None:
    """Raise HTTPException 403 unless a page of this very address has sent the request."""
    headers = request.headers
    host, origin = headers.get("x-forwarded-host", ""), headers.get("origin")
    if foreign_write(host, origin, headers.get("sec-fetch-site")):
        text = f"Origin {origin!r:.100} is not the console at {host:.100}; other pages may not act."
        raise HTTPException(403, text)


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object of a request's body; raises HTTPException 400, 413 and 415."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise HTTPException(415, "Send application/json.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, f"The body is larger than {MAX_BODY_BYTES} bytes.")
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        raise HTTPException(400, "The body is no JSON.") from None
    if not isinstance(value, dict):
        raise HTTPException(400, "The body is no JSON object.")
    return value


def _params(request: Request) -> dict[str, str]:
    """The query; raises HTTPException 400 where a value is too long."""
    params = dict(request.query_params)
    if any(len(it) > MAX_PARAM_CHARACTERS for it in params.values()):
        raise HTTPException(400, f"A value has {MAX_PARAM_CHARACTERS} characters at most.")
    return params


def _topic(request: Request) -> LiveTopic:
    """The topic of a query; raises HTTPException 400 where it names none."""
    params = _params(request)
    name = params.pop("view", "")
    view = VIEWS.get(name)
    if view is None:
        raise HTTPException(400, f"view {name[:50]!r}: expected one of {', '.join(VIEWS)}")
    if unknown := params.keys() - view.params:
        raise HTTPException(400, f"{name} takes no {', '.join(sorted(unknown))[:100]}")
    return LiveTopic(name, tuple(sorted(params.items())))


async def _no_such(request: Request) -> Response:
    raise HTTPException(404, f"{request.url.path[:100]}: there is no such thing here.")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "it is registered for these only"
    return ConsoleJson({"message": error.detail}, error.status_code, error.headers)
