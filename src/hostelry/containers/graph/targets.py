"""Calls of a graph's targets: InvokeEndpoint at the gateway, with the account's temporary keys."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError
from hostelry.base.json import decode
from hostelry.containers.graph.signing import CallKeys, CallSigner
from hostelry.containers.http.server_connection import (
    ServerAnswer,
    ServerLostError,
    ServerPool,
)
from hostelry.graph import target_proof
from hostelry.graph.steps import CallAction, CallTarget, EachAction, GraphPlan

PATH_HEADER = "X-Hostelry-Graph-Path"
PARENT_HEADER = "X-Hostelry-Parent-Request"  # the call that makes a call, and its step
ID_HEADER = "x-amzn-requestid"
MAX_DEPTH = 4
MAX_ANSWER_BYTES = 25 * 1024 * 1024  # the gateway's own for whole answers
MAX_ERROR_BYTES = 64 * 1024
MAX_REASON_CHARACTERS = 1000
BUSY = frozenset({429, 503})
FAILED_DEPENDENCY, UNAVAILABLE, LOOP = 424, 503, 508
# Of the caller's request to the graph, for every call that it makes.
PASSED_ON = (
    "x-amzn-sagemaker-custom-attributes", "x-hostelry-tenant", "traceparent", "tracestate",
)  # fmt: skip
PROOF_ENDPOINT = "hostelry-graph-proof"  # there is none: the refusal proves the keys


class CallTargetError(HostelryError):
    """A target did not answer with a value; `status` is what the graph's call ends with.

    `request_id` is the gateway's, where it answered.
    """

    def __init__(self, reason: str, status: int = FAILED_DEPENDENCY, request_id: str = "") -> None:
        super().__init__(reason[:MAX_REASON_CHARACTERS])
        self.status = status
        self.request_id = request_id


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphContext:
    """What a graph's calls take from its own: the targets called above it, and headers.

    `parent` is the gateway's id of its own, `step` the step that calls.
    """

    path: tuple[str, ...] = ()
    parent: str = ""
    step: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAnswer:
    """A target's whole answer; `request_id` is the gateway's."""

    body: bytes
    content_type: str
    request_id: str = ""


class TargetStream(Protocol):
    """A target's answer as it comes; `request_id` is the gateway's."""

    content_type: str
    request_id: str

    def pieces(self) -> AsyncGenerator[bytes, None]:
        """The bytes; raises CallTargetError where the target or the connection fails."""
        ...

    def close(self) -> None:
        """End it, also before its end."""
        ...


class CallTargets(Protocol):
    """Invokes models."""

    async def call(self, target: CallTarget, body: bytes, context: GraphContext) -> TargetAnswer:
        """The whole answer; raises CallTargetError."""
        ...

    async def stream(self, target: CallTarget, body: bytes, context: GraphContext) -> TargetStream:
        """The answer once it begins; raises CallTargetError."""
        ...


class GatewayTargets:
    """CallTargets behind the gateway; `use` keys before the first call."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._signer: CallSigner | None = None
        self._pool: ServerPool | None = None

    @property
    def keys(self) -> CallKeys | None:
        """The keys in use."""
        return None if self._signer is None else self._signer.keys

    def use(self, keys: CallKeys) -> None:
        """Sign with `keys` from now on; raises ValueError for an address that is none."""
        if self._pool is None or self.keys is None or self.keys.address != keys.address:
            self.close()
            host, port = keys.address
            self._pool = ServerPool(
                lambda made: asyncio.get_running_loop().create_connection(made, host, port),
                f"the gateway at {host}:{port}",
            )
        self._signer = CallSigner(keys)

    def close(self) -> None:
        """Close idle connections."""
        if self._pool is not None:
            self._pool.close()

    async def prove(self) -> str | None:
        """Why no call can succeed; None where the gateway takes the keys."""
        try:
            target = CallTarget(endpoint=PROOF_ENDPOINT, content_type="text/plain", accept="*/*")
            answer = await self._sent(target, b"", GraphContext())
            try:
                body = await answer.body(MAX_ERROR_BYTES)
            finally:
                answer.close()
        except (CallTargetError, ServerLostError) as error:
            return str(error)
        # An endpoint that is not there is a 400; keys that are refused are a 403.
        return None if answer.status in (200, 400) else refusal_text(answer.status, body)

    async def missing(self, plan: GraphPlan) -> dict[str, str]:
        """Why steps' targets cannot be called, by step; no model is invoked.

        A container of a direct endpoint is not asked for: its graph may be in the same model, whose
        endpoint has no route until the graph is ready.
        """
        steps = {
            step.name: step.action.target
            for step in plan.steps.values()
            if isinstance(step.action, CallAction | EachAction) and not step.action.target.container
        }
        faults = await asyncio.gather(*[self._fault_of(it) for it in steps.values()])
        found = dict(zip(steps, faults, strict=True))
        return {step: fault for step, fault in found.items() if fault is not None}

    async def _fault_of(self, target: CallTarget) -> str | None:
        context = GraphContext(headers={target_proof.HEADER: target_proof.EXISTS})
        try:
            answer = await self._sent(target, b"", context)
            try:
                body = await answer.body(MAX_ERROR_BYTES)
            finally:
                answer.close()
        except (CallTargetError, ServerLostError) as error:
            return f"{target.title}: {error}"
        if answer.status == 200:
            return None
        return f"{target.title} {refusal_text(answer.status, body)}"

    async def call(self, target: CallTarget, body: bytes, context: GraphContext) -> TargetAnswer:
        """The whole answer; raises CallTargetError."""
        try:
            answer = await self._sent(target, body, context)
            try:
                await self._check(target, answer)
                found = await answer.body(MAX_ANSWER_BYTES)
            finally:
                answer.close()
        except ServerLostError as error:
            raise CallTargetError(f"{target.title}: {error}") from None
        return TargetAnswer(
            body=found,
            content_type=answer.headers.get("content-type", ""),
            request_id=answer.headers.get(ID_HEADER, ""),
        )

    async def stream(self, target: CallTarget, body: bytes, context: GraphContext) -> TargetStream:
        """The answer once it begins; raises CallTargetError."""
        try:
            answer = await self._sent(target, body, context, "invocations-response-stream")
        except ServerLostError as error:
            raise CallTargetError(f"{target.title}: {error}") from None
        try:
            await self._check(target, answer)
        except BaseException:
            answer.close()
            raise
        return GatewayStream(target, answer)

    async def _sent(
        self,
        target: CallTarget,
        body: bytes,
        context: GraphContext,
        action: str = "invocations",
    ) -> ServerAnswer:
        signer, pool = self._signer, self._pool
        if signer is None or pool is None:
            raise CallTargetError("the agent has sent no keys yet; try again", UNAVAILABLE)
        path = invocation_path(target.endpoint, action)
        headers = {
            **context.headers,
            "content-type": target.content_type,
            "accept": target.accept,
            PATH_HEADER: ",".join(deeper(context.path, target)),
            **({PARENT_HEADER: f"{context.parent} {context.step}"} if context.parent else {}),
            **named(target, is_stream=action != "invocations"),
        }
        return await pool.send(signer.head(path, headers, body, self._clock.now()), body)

    @staticmethod
    async def _check(target: CallTarget, answer: ServerAnswer) -> None:
        if answer.status == 200:
            return
        body = await answer.body(MAX_ERROR_BYTES)
        found = error_of(body)
        original = found.get("OriginalStatusCode", answer.status)
        status = LOOP if original == LOOP else FAILED_DEPENDENCY
        if original in BUSY or answer.status in BUSY:
            status = UNAVAILABLE
        text, request_id = refusal_text(answer.status, body), answer.headers.get(ID_HEADER, "")
        raise CallTargetError(f"{target.title} {text}", status, request_id)


class GatewayStream:
    """An answer of InvokeEndpointWithResponseStream, without the frames."""

    def __init__(self, target: CallTarget, answer: ServerAnswer) -> None:
        self._target = target
        self._answer = answer
        self.content_type = answer.headers.get("x-amzn-sagemaker-content-type", target.accept)
        self.request_id = answer.headers.get(ID_HEADER, "")

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The bytes of each part; raises CallTargetError for an error in the stream."""
        from botocore.eventstream import (
            EventStreamBuffer,
            ParserError,
        )

        buffer = EventStreamBuffer()
        try:
            async with aclosing(self._answer.pieces()) as pieces:
                async for data in pieces:
                    buffer.add_data(data)
                    for event in buffer:
                        if event.headers.get(":message-type") != "event":
                            text = refusal_text(200, event.payload)
                            raise CallTargetError(f"{self._target.title} {text}")
                        yield event.payload
        except (ServerLostError, ParserError) as error:
            raise CallTargetError(f"{self._target.title}: {error}") from None

    def close(self) -> None:
        """End it."""
        self._answer.close()


@lru_cache(maxsize=256)
def invocation_path(endpoint: str, action: str) -> str:
    """The path of an invocation, encoded once."""
    return f"/endpoints/{quote(endpoint, safe='')}/{action}"


def deeper(path: tuple[str, ...], target: CallTarget) -> tuple[str, ...]:
    """The path of a call of `target` by a graph that was called through `path`.

    Raises CallTargetError where the graph would call itself, or graphs call graphs too deep.
    """
    parts = (target.endpoint, target.component or target.variant, target.container)
    name = "/".join(it for it in parts if it)
    if name in path:
        through = " -> ".join([*path, name])
        raise CallTargetError(f"the graph calls itself: {through}", LOOP)
    if len(path) >= MAX_DEPTH:
        through = " -> ".join([*path, name])
        raise CallTargetError(f"graphs call graphs more than {MAX_DEPTH} deep: {through}", LOOP)
    return (*path, name)


def path_of(header: str) -> tuple[str, ...]:
    """The targets that were called above a request, by its header."""
    return tuple(name for name in header.split(",") if name)


def named(target: CallTarget, *, is_stream: bool) -> dict[str, str]:
    """The headers that name the target beside its endpoint, and of a stream its content type."""
    headers = {
        "X-Amzn-SageMaker-Inference-Component": target.component,
        "X-Amzn-SageMaker-Target-Variant": target.variant,
        "X-Amzn-SageMaker-Target-Model": target.model,
        "X-Amzn-SageMaker-Target-Container-Hostname": target.container,
        "X-Amzn-SageMaker-Accept": target.accept if is_stream else None,
    }
    return {name: value for name, value in headers.items() if value is not None}


def error_of(body: bytes) -> dict[str, Any]:
    """The members of an error; empty where it has none."""
    try:
        return decode(body, dict[str, Any])
    except msgspec.DecodeError:
        return {}


def refusal_text(status: int, body: bytes) -> str:
    """The gateway's error: status and message."""
    found = error_of(body)
    message = found.get("Message") or found.get("message") or body[:300].decode("utf-8", "replace")
    return f"answered {status}: {' '.join(str(message).split())}"
