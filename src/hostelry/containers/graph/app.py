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
from hostelry.containers.graph.targets import (
    LOOP,
    MAX_DEPTH,
    PASSED_ON,
    PATH_HEADER,
    CallKeys,
    GatewayTargets,
    GraphContext,
    TargetStream,
    parse_path,
)
from hostelry.containers.http.serving_app import (
    RefusedRequestError,
    ServingApp,
    read_request,
    text_response,
    to_header_value,
)
from hostelry.graph.content import (
    CSV,
    JSON,
    ContentError,
    ValueType,
    find_type,
    media_type,
    read_body,
    write_body,
)
from hostelry.graph.drawing import describe_plan
from hostelry.graph.progress import StepOutcome
from hostelry.graph.step_report import STEPS_HEADER
from hostelry.graph.steps import OnError

# The content type of the agent's probe, which asks whether calls can be made. No model is called.
PROOF = "application/vnd.hostelry.graph-proof"
REQUEST_ID = "x-request-id"  # the gateway's
FORWARDED = "x-amzn-sagemaker-forwarded-api"
STREAM_API = "InvokeEndpointWithResponseStream"
MAX_KEYS_BYTES = 64 * 1024
MAX_CALLS = 256
MAX_MISSING_CHARACTERS = 600
ANY_ACCEPT = frozenset({"", "*/*", "application/*", "text/*"})


class GraphApp(ServingApp):
    """The routes of one graph. `find_fault` gives the reason why it cannot serve yet."""

    def __init__(
        self,
        deps: GraphDeps,
        targets: GatewayTargets,
        max_request_bytes: int,
        clock: Clock,
        find_fault: Callable[[], str | None],
    ) -> None:
        super().__init__(clock, deps.times)
        self._deps = deps
        self._targets = targets
        self._max_bytes = max_request_bytes
        self._find_fault = find_fault

    def routes(self) -> list[Route]:
        """The routes of a graph."""
        return [
            Route("/invocations", self.invocations, methods=["POST"]),
            Route("/credentials", self.credentials, methods=["PUT"]),
            Route("/graph", self.describe, methods=["GET"]),
        ]

    def fault(self) -> str | None:
        """The reason why it does not serve."""
        return self._find_fault()

    async def credentials(self, request: Request) -> Response:
        """PUT /credentials: use these keys for calls from now on."""
        body = await read_request(request, MAX_KEYS_BYTES)
        try:
            self._targets.use(decode(body, CallKeys))
        except (msgspec.DecodeError, ValueError) as error:
            return text_response(f"these are no keys: {error}", 400)
        return Response(status_code=200)

    async def describe(self, _request: Request) -> Response:
        """GET /graph: the steps, with their times of the last minute."""
        drawing = {
            **describe_plan(self._deps.plan),
            "last_minute": self._deps.times.last_minute(),
            "missing": await self._targets.missing(self._deps.plan),
        }
        return Response(msgspec.json.encode(drawing), media_type=JSON)

    async def invocations(self, request: Request) -> Response:
        """Answer an invocation, or the agent's probe."""
        kind = request.headers.get("content-type", "")
        if media_type(kind) == PROOF:
            return await self._prove(is_again="again" in kind)
        return await self.invoke_counted(request)

    async def invoke(self, request: Request) -> Response:
        """Run the graph for one invocation."""
        fault = self.fault()
        if fault is not None:
            raise RefusedRequestError(fault, 503)
        if self.in_flight > MAX_CALLS:
            raise RefusedRequestError(f"{MAX_CALLS} calls are under way; try again later", 503)
        body = await read_request(request, self._max_bytes)
        value = self._read_value(request, body)
        path = parse_path(request.headers.get(PATH_HEADER, ""))
        if len(path) > MAX_DEPTH:
            raise RefusedRequestError(f"graphs call graphs more than {MAX_DEPTH} deep", LOOP)
        passed = {it: request.headers[it] for it in PASSED_ON if it in request.headers}
        call = GraphCall(
            deps=self._deps,
            request=value,
            context=GraphContext(
                path=path, parent=request.headers.get(REQUEST_ID, ""), headers=passed
            ),
            is_stream=request.headers.get(FORWARDED) == STREAM_API,
        )
        return await self._answer(request, call)

    def _read_value(self, request: Request, body: bytes) -> StepOutcome:
        wanted = self._deps.plan.content_type
        given = request.headers.get("content-type") or wanted
        if media_type(given) != wanted:
            reason = f"the content type is {given[:80]}; this graph reads {wanted}"
            raise RefusedRequestError(reason, 415)
        try:
            return StepOutcome(value=read_body(body, given), body=body, content_type=given)
        except ContentError as error:
            raise RefusedRequestError(str(error), 400) from None

    async def _answer(self, request: Request, call: GraphCall) -> Response:
        """Run the call. If the client leaves, the call and its steps are cancelled."""
        began_at = self._clock.now()
        running = asyncio.ensure_future(call.run())
        leaving = asyncio.ensure_future(wait_for_disconnect(request))
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
        response = build_response(result, request.headers.get("accept", ""), left_s)
        response.headers[STEPS_HEADER] = result.steps
        return response

    async def _prove(self, *, is_again: bool) -> Response:
        fault = self.fault() or await self._targets.prove()
        if fault is None and not is_again:
            fault = await self._describe_missing()
        return text_response(fault, 503) if fault else Response(b"{}", media_type=JSON)

    async def _describe_missing(self) -> str | None:
        """The missing targets of steps whose failure ends a call. None if all exist."""
        missing = await self._targets.missing(self._deps.plan)
        steps = self._deps.plan.steps
        named = [
            f"step {step}: {fault}"
            for step, fault in missing.items()
            if steps[step].on_error is OnError.FAIL
        ]
        return "; ".join(named)[:MAX_MISSING_CHARACTERS] or None


class TargetStreamResponse(StreamingResponse):
    """A target's stream, closed also if the client leaves before its first piece."""

    def __init__(self, stream: TargetStream, limit_s: float) -> None:
        self._stream = stream
        content_type = to_header_value(stream.content_type)
        super().__init__(relay_stream(stream, limit_s), media_type=content_type)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._stream.close()


def build_response(result: GraphResult, accept: str, left_s: float) -> Response:
    """The answer to a call. A stream may take `left_s` more."""
    if result.outcome.fault is not None:
        return text_response(result.outcome.fault.text, result.outcome.fault.status)
    if result.stream is not None:
        return TargetStreamResponse(result.stream, max(0.0, left_s))
    return build_whole_response(result, accept)


async def wait_for_disconnect(request: Request) -> None:
    """Return once the client is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def relay_stream(stream: TargetStream, limit_s: float) -> AsyncIterator[bytes]:
    """The pieces of a stream. Raises TimeoutError after `limit_s`."""
    ends_at = asyncio.get_running_loop().time() + limit_s
    pieces = stream.pieces()
    while True:
        async with asyncio.timeout_at(ends_at):
            piece = await anext(pieces, None)
        if piece is None:
            return
        yield piece


def build_whole_response(result: GraphResult, accept: str) -> Response:
    """The value of a call: the last step's body, or a body in the value's content type."""
    outcome = result.outcome
    if outcome.is_dropped:
        return text_response("the output step failed and is dropped", 424)
    body, kind = outcome.body, outcome.content_type
    wanted = {media_type(it) for it in accept.split(",")}
    if body is None:
        kind = choose_content_type(outcome.value, wanted)
        try:
            body = write_body(outcome.value, kind)
        except ContentError as error:
            return text_response(str(error), 406)
    elif not wanted & (ANY_ACCEPT | {media_type(kind)}):
        return text_response(f"the answer is {kind[:80]}; accept is {accept[:80]}", 406)
    return Response(body, media_type=None, headers={"content-type": to_header_value(kind)})


def choose_content_type(value: Any, wanted: set[str]) -> str:
    """The content type for a value that no target sent."""
    type = find_type(value)
    if type is ValueType.BYTES:
        return "application/octet-stream"
    if type is ValueType.TEXT and JSON not in wanted:
        return "text/plain; charset=utf-8"
    return CSV if CSV in wanted else JSON
