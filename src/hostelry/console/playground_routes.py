"""The playground over HTTP: what may be asked, and calls that end with their browser."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from hostelry.console.live_routes import EventStream
from hostelry.console.platform import PlatformError
from hostelry.console.playground_calls import PlaygroundCalls
from hostelry.console.views.playground import PlaygroundRefusedError
from hostelry.console.visits import ConsoleJson, SessionGate, json_body

KINDS = ("chat", "invoke")
NO_MODELS = "This console asks no models."


class PlaygroundRoutes:
    """The handlers; without `calls` they refuse."""

    def __init__(self, calls: PlaygroundCalls | None, gate: SessionGate) -> None:
        self._calls = calls
        self._gate = gate

    async def targets(self, request: Request) -> Response:
        """The models and endpoints that may be asked."""
        self._gate.reading(request)
        try:
            return ConsoleJson(await self._present().targets())
        except PlatformError as error:
            raise HTTPException(502, str(error)) from None

    async def call(self, request: Request) -> Response:
        """The events of a chat or an invocation."""
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
