"""Calls of a graph's targets: InvokeEndpoint at the gateway, with the account's temporary keys."""

import asyncio
import hmac
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack
from functools import lru_cache
from hashlib import sha256
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import msgspec

from hostelry.base.address import Address
from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError
from hostelry.base.json import decode
from hostelry.graph.step_report import PROOF_EXISTS, PROOF_HEADER
from hostelry.graph.steps import CallAction, CallTarget, EachAction, GraphPlan
from hostelry.http1.reply import Reply, UpstreamError
from hostelry.http1.upstream import Timeouts, UpstreamPool

ALGORITHM = "AWS4-HMAC-SHA256"
SERVICE = "sagemaker"  # the signing name of SageMaker Runtime
PATH_HEADER = "X-Hostelry-Graph-Path"
PARENT_HEADER = "X-Hostelry-Parent-Request"  # the call that makes a call, and its step
ID_HEADER = "x-amzn-requestid"
MAX_DEPTH = 4
MAX_ANSWER_BYTES = 25 * 1024 * 1024  # the gateway's limit for whole answers
MAX_ERROR_BYTES = 64 * 1024
MAX_REASON_CHARACTERS = 1000
MAX_CALLS = 256  # concurrent calls of one server
IDLE_S = 5.0  # less than the gateway's limit
TIMEOUTS = Timeouts(total_s=24 * 3600.0, connect_s=30.0)  # a step's own limit is shorter
BUSY = frozenset({429, 503})
FAILED_DEPENDENCY, UNAVAILABLE, LOOP = 424, 503, 508
# Headers of the caller's request that every call of the graph passes on.
PASSED_ON = (
    "x-amzn-sagemaker-custom-attributes", "x-hostelry-tenant", "traceparent", "tracestate",
)  # fmt: skip
PROOF_ENDPOINT = "hostelry-graph-proof"  # a missing endpoint: a 400 proves that keys are valid


class CallKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Temporary keys of the model's account for invocations, and the gateway that accepts them.

    The agent sends them. `expires_at` is in seconds since the epoch.
    """

    gateway_url: str
    region: str
    access_key_id: str
    secret_access_key: str
    session_token: str
    expires_at: float

    @property
    def address(self) -> str:
        """The address of the gateway. Raises ValueError if the URL lacks a host or a port."""
        parts = urlsplit(self.gateway_url)
        if parts.scheme != "http" or parts.hostname is None or parts.port is None:
            raise ValueError("gateway_url must be http://HOST:PORT")
        return Address(parts.scheme, parts.hostname, parts.port).url


@lru_cache(maxsize=256)
def encode_path_again(path: str) -> str:
    """The path as it is signed: encoded a second time."""
    return quote(path, safe="/~")


class CallSigner:
    """Writes heads of requests, signed with `keys` by Signature Version 4."""

    def __init__(self, keys: CallKeys) -> None:
        self.keys = keys
        self.address = keys.address
        self._host = urlsplit(keys.gateway_url).netloc
        self._date = ""
        self._key = b""
        self._second = -1
        self._stamp = ""

    def head(self, path: str, headers: Mapping[str, str], body: bytes, now: float) -> bytes:
        """The head of ``POST path`` at `now`, in seconds since the epoch.

        `path` is encoded once. Every header is signed.
        """
        stamp = self._get_stamp(int(now))
        digest = sha256(body).hexdigest()
        signed = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
        signed |= {
            "host": self._host,
            "x-amz-content-sha256": digest,
            "x-amz-date": stamp,
            "x-amz-security-token": self.keys.session_token,
        }
        names = sorted(signed)
        lines = "".join([f"{name}:{signed[name]}\n" for name in names])
        listed = ";".join(names)
        canonical = f"POST\n{encode_path_again(path)}\n\n{lines}\n{listed}\n{digest}"
        scope = f"{stamp[:8]}/{self.keys.region}/{SERVICE}/aws4_request"
        text = f"{ALGORITHM}\n{stamp}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
        signature = hmac.digest(self._get_key(stamp[:8]), text.encode(), "sha256").hex()
        proof = (
            f"{ALGORITHM} Credential={self.keys.access_key_id}/{scope}, "
            f"SignedHeaders={listed}, Signature={signature}"
        )
        written = "".join([f"{name}: {signed[name]}\r\n" for name in names])
        return (
            f"POST {path} HTTP/1.1\r\n{written}Content-Length: {len(body)}\r\n"
            f"Authorization: {proof}\r\n\r\n"
        ).encode("latin-1", "replace")

    def _get_stamp(self, second: int) -> str:
        if second != self._second:
            self._stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
            self._second = second
        return self._stamp

    def _get_key(self, date: str) -> bytes:
        if date != self._date:
            key = b"AWS4" + self.keys.secret_access_key.encode()
            for part in (date, self.keys.region, SERVICE, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._date, self._key = date, key
        return self._key


class CallTargetError(HostelryError):
    """A target did not answer with a value. The graph's call ends with `status`.

    `request_id` is the gateway's id if it answered.
    """

    def __init__(self, reason: str, status: int = FAILED_DEPENDENCY, request_id: str = "") -> None:
        super().__init__(reason[:MAX_REASON_CHARACTERS])
        self.status = status
        self.request_id = request_id


class GraphContext(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a graph's request that its calls pass on: the targets above it, and headers.

    `parent` is the gateway's id of the graph's request, `step` the step that calls.
    """

    path: tuple[str, ...] = ()
    parent: str = ""
    step: str = ""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


class TargetAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A target's whole answer, with the gateway's request id."""

    body: bytes
    content_type: str
    request_id: str = ""


class TargetStream(Protocol):
    """A target's streamed answer, with the gateway's request id."""

    content_type: str
    request_id: str

    def pieces(self) -> AsyncGenerator[bytes, None]:
        """The bytes. Raises CallTargetError if the target or the connection fails."""
        ...

    def close(self) -> None:
        """Close the stream, also before its end."""
        ...


class CallTargets(Protocol):
    """Invokes models."""

    async def call(self, target: CallTarget, body: bytes, context: GraphContext) -> TargetAnswer:
        """The whole answer. Raises CallTargetError."""
        ...

    async def stream(self, target: CallTarget, body: bytes, context: GraphContext) -> TargetStream:
        """The answer once it begins. Raises CallTargetError."""
        ...


class GatewayTargets:
    """Calls targets through the gateway. Call `use` with keys before the first call."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._signer: CallSigner | None = None
        self._pool = UpstreamPool(IDLE_S)
        self._calls = asyncio.Semaphore(MAX_CALLS)

    @property
    def keys(self) -> CallKeys | None:
        """The keys in use."""
        return None if self._signer is None else self._signer.keys

    def use(self, keys: CallKeys) -> None:
        """Sign with `keys` from now on. Raises ValueError if the gateway's address is invalid."""
        self._signer = CallSigner(keys)

    def close(self) -> None:
        """Close idle connections."""
        self._pool.close()

    async def prove(self) -> str | None:
        """The reason why no call can succeed. None if the gateway accepts the keys."""
        try:
            target = CallTarget(endpoint=PROOF_ENDPOINT, content_type="text/plain", accept="*/*")
            answer, body = await self._probe(target, GraphContext())
        except (CallTargetError, UpstreamError) as error:
            return str(error)
        # A missing endpoint is a 400. Rejected keys are a 403.
        return None if answer.status in (200, 400) else describe_error(answer.status, body)

    async def missing(self, plan: GraphPlan) -> dict[str, str]:
        """The reasons why targets cannot be called, by step. No model is invoked.

        Containers of a direct endpoint are not checked: the graph may be in the same model, whose
        endpoint has no route until the graph is ready.
        """
        steps = {
            step.name: step.action.target
            for step in plan.steps.values()
            if isinstance(step.action, CallAction | EachAction) and not step.action.target.container
        }
        faults = await asyncio.gather(*[self._find_fault(it) for it in steps.values()])
        return {step: fault for step, fault in zip(steps, faults, strict=True) if fault is not None}

    async def _probe(self, target: CallTarget, context: GraphContext) -> tuple[Reply, bytes]:
        """Send an empty request. Returns the answer and its body."""
        async with self._calls:
            answer = await self._send(target, b"", context)
            try:
                return answer, await answer.body(MAX_ERROR_BYTES)
            finally:
                answer.close()

    async def _find_fault(self, target: CallTarget) -> str | None:
        context = GraphContext(headers={PROOF_HEADER: PROOF_EXISTS})
        try:
            answer, body = await self._probe(target, context)
        except (CallTargetError, UpstreamError) as error:
            return f"{target.title}: {error}"
        if answer.status == 200:
            return None
        return f"{target.title} {describe_error(answer.status, body)}"

    async def call(self, target: CallTarget, body: bytes, context: GraphContext) -> TargetAnswer:
        """The whole answer. Raises CallTargetError."""
        try:
            async with self._calls:
                answer = await self._send(target, body, context)
                try:
                    await self._check(target, answer)
                    found = await answer.body(MAX_ANSWER_BYTES)
                finally:
                    answer.close()
        except UpstreamError as error:
            raise CallTargetError(f"{target.title}: {error}") from None
        return TargetAnswer(
            body=found,
            content_type=answer.headers.get("content-type", ""),
            request_id=answer.headers.get(ID_HEADER, ""),
        )

    async def stream(self, target: CallTarget, body: bytes, context: GraphContext) -> TargetStream:
        """The answer once it begins. Raises CallTargetError."""
        await self._calls.acquire()
        with ExitStack() as ends:
            ends.callback(self._calls.release)
            try:
                answer = await self._send(target, body, context, "invocations-response-stream")
                ends.callback(answer.close)
                await self._check(target, answer)
            except UpstreamError as error:
                raise CallTargetError(f"{target.title}: {error}") from None
            return GatewayStream(target, answer, ends.pop_all())

    async def _send(
        self,
        target: CallTarget,
        body: bytes,
        context: GraphContext,
        action: str = "invocations",
    ) -> Reply:
        signer = self._signer
        if signer is None:
            raise CallTargetError("the agent has sent no keys yet; try again", UNAVAILABLE)
        path = build_path(target.endpoint, action)
        headers = {
            **context.headers,
            "content-type": target.content_type,
            "accept": target.accept,
            PATH_HEADER: ",".join(extend_path(context.path, target)),
            **({PARENT_HEADER: f"{context.parent} {context.step}"} if context.parent else {}),
            **build_target_headers(target, is_stream=action != "invocations"),
        }
        head = signer.head(path, headers, body, self._clock.now())
        return await self._pool.send(signer.address, (head, body), TIMEOUTS)

    @staticmethod
    async def _check(target: CallTarget, answer: Reply) -> None:
        if answer.status == 200:
            return
        body = await answer.body(MAX_ERROR_BYTES)
        original = decode_error(body).get("OriginalStatusCode", answer.status)
        status = LOOP if original == LOOP else FAILED_DEPENDENCY
        if original in BUSY or answer.status in BUSY:
            status = UNAVAILABLE
        text, request_id = describe_error(answer.status, body), answer.headers.get(ID_HEADER, "")
        raise CallTargetError(f"{target.title} {text}", status, request_id)


class GatewayStream:
    """An answer of InvokeEndpointWithResponseStream, without its frames."""

    def __init__(self, target: CallTarget, answer: Reply, ends: ExitStack) -> None:
        self._target = target
        self._answer = answer
        self._ends = ends  # closes the answer, and ends the call
        self.content_type = answer.headers.get("x-amzn-sagemaker-content-type", target.accept)
        self.request_id = answer.headers.get(ID_HEADER, "")

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The bytes of each part. Raises CallTargetError for an error in the stream."""
        from botocore.eventstream import (
            EventStreamBuffer,
            ParserError,
        )

        buffer = EventStreamBuffer()
        try:
            while (data := await self._answer.next_chunk()) is not None:
                buffer.add_data(data)
                for event in buffer:
                    if event.headers.get(":message-type") != "event":
                        text = describe_error(200, event.payload)
                        raise CallTargetError(f"{self._target.title} {text}")
                    yield event.payload
        except (UpstreamError, ParserError) as error:
            raise CallTargetError(f"{self._target.title}: {error}") from None

    def close(self) -> None:
        """Close the stream. A second call does nothing."""
        self._ends.close()


@lru_cache(maxsize=256)
def build_path(endpoint: str, action: str) -> str:
    """The encoded path of an invocation."""
    return f"/endpoints/{quote(endpoint, safe='')}/{action}"


def extend_path(path: tuple[str, ...], target: CallTarget) -> tuple[str, ...]:
    """The path of a call of `target` by a graph that was called through `path`.

    Raises CallTargetError if the graph would call itself, or if graphs call graphs too deep.
    """
    parts = (target.endpoint, target.component or target.variant, target.container)
    name = "/".join(it for it in parts if it)
    through = " -> ".join([*path, name])
    if name in path:
        raise CallTargetError(f"the graph calls itself: {through}", LOOP)
    if len(path) >= MAX_DEPTH:
        raise CallTargetError(f"graphs call graphs more than {MAX_DEPTH} deep: {through}", LOOP)
    return (*path, name)


def parse_path(header: str) -> tuple[str, ...]:
    """The targets that were called above a request, from its header."""
    return tuple(name for name in header.split(",") if name)


def build_target_headers(target: CallTarget, *, is_stream: bool) -> dict[str, str]:
    """The headers that name the target within its endpoint, and the accepted type of a stream."""
    headers = {
        "X-Amzn-SageMaker-Inference-Component": target.component,
        "X-Amzn-SageMaker-Target-Variant": target.variant,
        "X-Amzn-SageMaker-Target-Model": target.model,
        "X-Amzn-SageMaker-Target-Container-Hostname": target.container,
        "X-Amzn-SageMaker-Accept": target.accept if is_stream else None,
    }
    return {name: value for name, value in headers.items() if value is not None}


def decode_error(body: bytes) -> dict[str, Any]:
    """The members of an error. Empty if it is not a JSON object."""
    try:
        return decode(body, dict[str, Any])
    except msgspec.DecodeError:
        return {}


def describe_error(status: int, body: bytes) -> str:
    """The gateway's error: status and message."""
    error = decode_error(body)
    message = error.get("Message") or error.get("message") or body[:300].decode("utf-8", "replace")
    return f"answered {status}: {' '.join(str(message).split())}"
