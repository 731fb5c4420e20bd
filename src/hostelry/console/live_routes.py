"""Live documents over HTTP: a stream of server-sent events a tab, so many at once and no more."""

from collections.abc import AsyncIterator, Callable
from functools import partial

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from hostelry.console.live import LiveTopic, LiveTopics, event
from hostelry.console.session_file import SessionFile
from hostelry.console.sign_in import ConsoleSession
from hostelry.console.view_table import VIEWS
from hostelry.console.visits import SessionGate, query_params

MAX_STREAMS_EACH = 12
MAX_STREAMS = 64
ALIVE_EVERY_S = 15.0
KEPT_ALIVE = b": alive\n\n"


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


class LiveRoutes:
    """The handler of live documents, and the count of its streams by session."""

    def __init__(self, topics: LiveTopics, sessions: SessionFile, gate: SessionGate) -> None:
        self._topics = topics
        self._sessions = sessions
        self._gate = gate
        self._streams: dict[str, int] = {}

    async def live(self, request: Request) -> Response:
        """The events of a view; 429 where too many streams are open."""
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
    """The topic of a query; raises HTTPException 400 where it names none."""
    params = query_params(request)
    name = params.pop("view", "")
    view = VIEWS.get(name)
    if view is None:
        raise HTTPException(400, f"view {name[:50]!r}: expected one of {', '.join(VIEWS)}")
    if unknown := params.keys() - view.params:
        raise HTTPException(400, f"{name} takes no {', '.join(sorted(unknown))[:100]}")
    return LiveTopic(name, tuple(sorted(params.items())))
