"""The routes of a graph's server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from hostelry.base.clock import Clock
from hostelry.base.json import decode
from hostelry.containers.graph.call import GraphCall, GraphDeps, GraphResult
from hostelry.containers.graph.signing import CallKeys
from hostelry.containers.graph.targets import (
    LOOP,
    MAX_DEPTH,
    PARENT_HEADER,
    PASSED_ON,
    PATH_HEADER,
    GatewayTargets,
    GraphContext,
    TargetStream,
    path_of,
)
from hostelry.containers.http.serving_app import ServingApp, body_of, one_line, text_response
from hostelry.graph.content import CSV, JSON, ContentError, media_type, read_body, write_body
from hostelry.graph.drawing import drawing_of
from hostelry.graph.state import StepOutcome
from hostelry.graph.step_report import HEADER as STEPS_HEADER
from hostelry.graph.steps import OnError
from hostelry.graph.value_types import ValueType, type_of_value

# The agent's probe: that calls could be made, without one that reaches a model.
PROOF = "application/vnd.hostelry.graph-proof"
REQUEST_ID = "x-request-id"  # the gateway's
FORWARDED = "x-amzn-sagemaker-forwarded-api"
STREAM_API = "InvokeEndpointWithResponseStream"
MAX_KEYS_BYTES = 64 * 1024
MAX_CALLS = 256
MAX_MISSING_CHARACTERS = 600
ANY_ACCEPT = frozenset({"", "*/*", "application/*", "text/*"})


class GraphApp(ServingApp):
    """The application of one graph; `faults` says why it cannot serve yet."""

    def __init__(
        self,
        deps: GraphDeps,
        targets: GatewayTargets,
        max_request_bytes: int,
        clock: Clock,
        faults: Callable[[], str | None],
    ) -> None:
        super().__init__(clock, deps.times)
        self._deps = deps
        self._targets = targets
        self._max_bytes = max_request_bytes
        self._faults = faults

    def routes(self) -> list[Route]:
        """Its own routes."""
        return [
            Route("/invocations", self.invocations, methods=["POST"]),
            Route("/credentials", self.credentials, methods=["PUT"]),
            Route("/graph", self.described, methods=["GET"]),
        ]

    def fault(self) -> str | None:
        """Why it does not serve."""
        return self._faults()

    async def credentials(self, request: Request) -> Response:
        """PUT /credentials: the keys of its calls, from now on; 200."""
        body = await body_of(request, MAX_KEYS_BYTES)
        if isinstance(body, Response):
            return body
        try:
            self._targets.use(decode(body, CallKeys))
        except (msgspec.DecodeError, ValueError) as error:
            return text_response(f"these are no keys: {error}", 400)
        return Response(status_code=200)

    async def described(self, _request: Request) -> Response:
        """GET /graph: its steps, with their times of the last minute."""
        found = {
            **drawing_of(self._deps.plan),
            "last_minute": self._deps.times.last_minute(),
            "missing": await self._targets.missing(self._deps.plan),
        }
        return Response(msgspec.json.encode(found), media_type=JSON)

    async def invocations(self, request: Request) -> Response:
        """An invocation, counted; or the agent's probe."""
        kind = request.headers.get("content-type", "")
        if media_type(kind) == PROOF:
            return await self._proven(is_again="again" in kind)
        return await self.counted(request)

    async def invoked(self, request: Request) -> Response:
        """The answer to one invocation."""
        fault = self.fault()
        if fault is not None:
            return text_response(fault, 503)
        if self.in_flight > MAX_CALLS:
            return text_response(f"{MAX_CALLS} calls are under way; try again later", 503)
        body = await body_of(request, self._max_bytes)
        if isinstance(body, Response):
            return body
        found = self._request(request, body)
        if isinstance(found, Response):
            return found
        path = path_of(request.headers.get(PATH_HEADER, ""))
        if len(path) > MAX_DEPTH:
            return text_response(f"graphs call graphs more than {MAX_DEPTH} deep", LOOP)
        passed = {it: request.headers[it] for it in PASSED_ON if it in request.headers}
        if REQUEST_ID in request.headers:
            passed[PARENT_HEADER] = request.headers[REQUEST_ID]
        call = GraphCall(
            deps=self._deps,
            request=found,
            context=GraphContext(path=path, headers=passed),
            is_stream=request.headers.get(FORWARDED) == STREAM_API,
        )
        return await self._answer(request, call)

    def _request(self, request: Request, body: bytes) -> StepOutcome | Response:
        wanted = self._deps.plan.content_type
        given = request.headers.get("content-type") or wanted
        if media_type(given) != wanted:
            return text_response(
                f"the content type is {given[:80]}; this graph reads {wanted}", 415
            )
        try:
            return StepOutcome(value=read_body(body, given), body=body, content_type=given)
        except ContentError as error:
            return text_response(str(error), 400)

    async def _answer(self, request: Request, call: GraphCall) -> Response:
        """The answer; where the client leaves before, the call ends with all its steps."""
        began_at = self._clock.now()
        running = asyncio.ensure_future(call.run())
        leaving = asyncio.ensure_future(disconnected(request))
        leaving.add_done_callback(lambda _: running.cancel())
        try:
            result = await running
        except asyncio.CancelledError:
            if not leaving.done():
                raise
            return text_response("the client closed the connection", 499)
        finally:
            leaving.cancel()
        left_s = self._deps.plan.deadline_s - (self._clock.now() - began_at)
        response = response_of(result, request.headers.get("accept", ""), left_s)
        response.headers[STEPS_HEADER] = result.steps
        return response

    async def _proven(self, *, is_again: bool) -> Response:
        fault = self.fault() or await self._targets.prove()
        if fault is None and not is_again:
            fault = await self._missing()
        return text_response(fault, 503) if fault else Response(b"{}", media_type=JSON)

    async def _missing(self) -> str | None:
        """The targets that are not there, of the steps whose failure ends a call."""
        missing = await self._targets.missing(self._deps.plan)
        steps = self._deps.plan.steps
        named = [
            f"step {step}: {fault}"
            for step, fault in missing.items()
            if steps[step].on_error is OnError.FAIL
        ]
        return "; ".join(named)[:MAX_MISSING_CHARACTERS] or None


class PassedOnResponse(StreamingResponse):
    """A target's stream; it is closed also where the client leaves before its first piece."""

    def __init__(self, stream: TargetStream, limit_s: float) -> None:
        self._stream = stream
        super().__init__(passed_on(stream, limit_s), media_type=one_line(stream.content_type))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass it on."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._stream.close()


def response_of(result: GraphResult, accept: str, left_s: float) -> Response:
    """The answer to a call; a stream may take `left_s` more."""
    if result.outcome.fault is not None:
        return text_response(result.outcome.fault.text, result.outcome.fault.status)
    if result.stream is not None:
        return PassedOnResponse(result.stream, max(0.0, left_s))
    return whole_answer(result, accept)


async def disconnected(request: Request) -> None:
    """Return once the client is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def passed_on(stream: TargetStream, limit_s: float) -> AsyncIterator[bytes]:
    """The pieces of a stream; an end before its own, or its time, cuts the answer off."""
    ends_at = asyncio.get_running_loop().time() + limit_s
    pieces = stream.pieces()
    while True:
        async with asyncio.timeout_at(ends_at):
            piece = await anext(pieces, None)
        if piece is None:
            return
        yield piece


def whole_answer(result: GraphResult, accept: str) -> Response:
    """The value of a call: as its last step's body, or in the content type of its kind."""
    outcome = result.outcome
    if outcome.is_dropped:
        return text_response("the output step failed and is dropped", 424)
    body, kind = outcome.body, outcome.content_type
    wanted = {media_type(it) for it in accept.split(",")}
    if body is None:
        kind = kind_of(outcome.value, wanted)
        try:
            body = write_body(outcome.value, kind)
        except ContentError as error:
            return text_response(str(error), 406)
    elif not wanted & (ANY_ACCEPT | {media_type(kind)}):
        return text_response(f"the answer is {kind[:80]}; accept is {accept[:80]}", 406)
    return Response(body, media_type=None, headers={"content-type": one_line(kind)})


def kind_of(value: Any, wanted: set[str]) -> str:
    """The content type of a value that no target sent."""
    type = type_of_value(value)
    if type is ValueType.BYTES:
        return "application/octet-stream"
    if type is ValueType.TEXT and JSON not in wanted:
        return "text/plain; charset=utf-8"
    return CSV if CSV in wanted else JSON
