"""The console's HTTP routes: acts, live documents as a stream, and the playground."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from hostelry.console.acts import ActPlan, ActRefusedError, act_plan
from hostelry.console.live import LiveTopic, LiveTopics, event
from hostelry.console.platform import ApiQuery, PlatformError, PlatformPort, ProcessCommand
from hostelry.console.playground_calls import PlaygroundCalls
from hostelry.console.session_file import SessionFile
from hostelry.console.sign_in import ConsoleSession
from hostelry.console.view_table import VIEWS
from hostelry.console.views.playground import PlaygroundRefusedError
from hostelry.console.visits import ConsoleJson, SessionGate, json_body, query_params

LOG = logging.getLogger(__name__)
# An act is planned in words, and done once it is confirmed. Control's audit log has it before it is
# done. Control notes its own acts itself, with the session that the console names. For a plan, it
# returns what such an act would do.


AUDIT = "/internal/audit"
BEGUN, ACCEPTED = "begun", "accepted"
MAX_STEPS = 12
MAX_CHARACTERS = 500  # of each text of an audit entry


class ConsoleActs:
    """Handlers of acts, and of the audit log."""

    def __init__(self, port: PlatformPort, gate: SessionGate) -> None:
        self._port = port
        self._gate = gate

    async def audit(self, request: Request) -> Response:
        """List the acts on this platform, the newest first."""
        self._gate.reading(request)
        try:
            return ConsoleJson(await self._port.ask("control", AUDIT, {"limit": "100"}))
        except PlatformError as error:
            raise HTTPException(502, str(error)) from None

    async def plan(self, request: Request) -> Response:
        """Describe an act in words and as calls, without doing it. 409 if it is impossible."""
        session = self._gate.acting(request)
        plan = await _parse_plan(request)
        would = []
        try:
            for call in plan.calls:
                if isinstance(call, ProcessCommand):
                    body = {**call.body, "who": _who(session), "dry_run": True}
                    would += _steps(await self._port.post(call.process, call.path, body))
        except PlatformError as error:
            raise HTTPException(409, str(error)) from None
        calls = [_describe_call(it) for it in plan.calls]
        shown = {"sentence": plan.sentence, "warning": plan.warning, "calls": calls}
        return ConsoleJson({**shown, "would": would})

    async def do(self, request: Request) -> Response:
        """Do an act. 409 with the reason if the platform refuses it.

        The act is noted in the audit log before. If that fails, it is not done: 503.
        """
        session = self._gate.acting(request)
        plan = await _parse_plan(request)
        is_noted = all(isinstance(it, ProcessCommand) for it in plan.calls)
        if not is_noted:
            try:
                await self._note(session, plan, BEGUN)
            except PlatformError as error:
                text = f"Nothing was done, since the audit log cannot be written: {error}"
                raise HTTPException(503, text) from None
        outcome = "not known: it was cut off"
        try:
            outcome = await self._done(session, plan)
        finally:
            if not is_noted:
                await self._note_end(session, plan, outcome)
        if outcome != ACCEPTED:
            raise HTTPException(409, outcome)
        return ConsoleJson({"outcome": outcome, "what": plan.sentence})

    async def _done(self, session: ConsoleSession, plan: ActPlan) -> str:
        try:
            for call in plan.calls:
                if isinstance(call, ApiQuery):
                    await self._port.call(call.service, call.operation, call.parameters)
                else:
                    body = {**call.body, "who": _who(session)}
                    await self._port.post(call.process, call.path, body)
        except PlatformError as error:
            return str(error)
        return ACCEPTED

    async def _note(self, session: ConsoleSession, plan: ActPlan, outcome: str) -> None:
        entry = {
            "who": _who(session),
            "act": plan.act,
            "target": plan.sentence[:MAX_CHARACTERS],
            "outcome": outcome[:MAX_CHARACTERS],
            "endpoint": plan.endpoint,
        }
        await self._port.post("control", AUDIT, entry)

    async def _note_end(self, session: ConsoleSession, plan: ActPlan, outcome: str) -> None:
        try:
            await self._note(session, plan, outcome)
        except PlatformError as error:
            LOG.warning("the audit log lacks an outcome: %s: %s: %s", plan.sentence, outcome, error)


def _who(session: ConsoleSession) -> str:
    return f"console session {session.id}"


def _steps(answer: Mapping[str, Any]) -> list[str]:
    """Format the summary and the steps of an act of control as lines."""
    steps = [f"{it.get('copy') or 'a copy'}: {it['text']}" for it in answer.get("steps", ())]
    more = [f"and {len(steps) - MAX_STEPS} more"] if len(steps) > MAX_STEPS else []
    return [answer.get("summary", ""), *steps[:MAX_STEPS], *more]


async def _parse_plan(request: Request) -> ActPlan:
    try:
        return act_plan(request.path_params["name"], await json_body(request))
    except ActRefusedError as error:
        raise HTTPException(400, str(error)) from None


def _describe_call(call: ApiQuery | ProcessCommand) -> dict[str, Any]:
    if isinstance(call, ApiQuery):
        return {"call": f"{call.service} {call.operation}", "parameters": call.parameters}
    return {"call": f"{call.process} {call.path}", "parameters": call.body}


MAX_STREAMS_EACH = 12
MAX_STREAMS = 64
ALIVE_EVERY_S = 15.0
KEPT_ALIVE = b": alive\n\n"


class EventStream(StreamingResponse):
    """Server-sent events. `ended` is called once, when they end for any reason."""

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


class LiveRoutes:
    """The handler of live documents, and the count of its streams by session."""

    def __init__(self, topics: LiveTopics, sessions: SessionFile, gate: SessionGate) -> None:
        self._topics = topics
        self._sessions = sessions
        self._gate = gate
        self._streams: dict[str, int] = {}

    async def live(self, request: Request) -> Response:
        """Stream the events of a view. 429 if too many streams are open."""
        session = self._gate.reading(request)
        topic = _topic(request)
        here, in_all = self._streams.get(session.id, 0), sum(self._streams.values())
        if here >= MAX_STREAMS_EACH or in_all >= MAX_STREAMS:
            text = (
                f"{here} live views are open in this session, of {MAX_STREAMS_EACH} at most, and "
                f"{in_all} in all, of {MAX_STREAMS} at most. Close a tab."
            )
            raise HTTPException(429, text, {"Retry-After": "10"})
        self._streams[session.id] = here + 1
        return EventStream(self._events(session, topic), partial(self._ended, session.id))

    def _ended(self, session_id: str) -> None:
        self._streams[session_id] -= 1
        if not self._streams[session_id]:
            del self._streams[session_id]

    async def _events(self, session: ConsoleSession, topic: LiveTopic) -> AsyncIterator[bytes]:
        async with self._topics.following(topic) as follower:
            while self._sessions.is_open(session):
                yield await follower.next_events(ALIVE_EVERY_S) or KEPT_ALIVE
        yield event("signed-out", {})


def _topic(request: Request) -> LiveTopic:
    """Return the topic of a query. Raises HTTPException 400 without a valid topic."""
    params = query_params(request)
    name = params.pop("view", "")
    view = VIEWS.get(name)
    if view is None:
        raise HTTPException(400, f"view {name[:50]!r}: expected one of {', '.join(VIEWS)}")
    if unknown := params.keys() - view.params:
        raise HTTPException(400, f"{name} takes no {', '.join(sorted(unknown))[:100]}")
    return LiveTopic(name, tuple(sorted(params.items())))


KINDS = ("chat", "invoke")
NO_MODELS = "This console asks no models."


class PlaygroundRoutes:
    """The playground's handlers. Without `calls` they refuse every request."""

    def __init__(self, calls: PlaygroundCalls | None, gate: SessionGate) -> None:
        self._calls = calls
        self._gate = gate

    async def targets(self, request: Request) -> Response:
        """List the models and endpoints that may be asked."""
        self._gate.reading(request)
        try:
            return ConsoleJson(await self._present().targets())
        except PlatformError as error:
            raise HTTPException(502, str(error)) from None

    async def call(self, request: Request) -> Response:
        """Stream the events of a chat or an invocation."""
        self._gate.posting(request)
        kind = request.path_params["kind"]
        if kind not in KINDS:
            raise HTTPException(404, f"{kind[:50]!r}: expected one of {', '.join(KINDS)}")
        try:
            call = self._present().begin(kind, await json_body(request))
        except PlaygroundRefusedError as error:
            raise HTTPException(400, str(error)) from None
        return EventStream(call.events(), call.end)

    def _present(self) -> PlaygroundCalls:
        if self._calls is None:
            raise HTTPException(404, NO_MODELS)
        return self._calls
