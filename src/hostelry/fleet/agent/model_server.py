"""Client of a copy's model server: ping, readiness probe, adapters, and a graph's keys.

Source: SageMaker's container contract. DJL Serving's adapter routes take query parameters, the
routes of the package model-hosting-container-standards take a JSON body. Both are sent.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from hostelry.base.clock import Clock
from hostelry.base.guards import COPY_KEY_HEADER
from hostelry.base.http_status import AskStatus, http_status
from hostelry.base.json import decode
from hostelry.domain.copy import AdapterPlacement
from hostelry.fleet.host.processes import SCANS
from hostelry.fleet.host.usage import belongs_to_another
from hostelry.fleet.rules.images import Probe

ADAPTER_ID_HEADER = "X-Amzn-SageMaker-Adapter-Identifier"
ADAPTER_ALIAS_HEADER = "X-Amzn-SageMaker-Adapter-Alias"
RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504})
MAX_ANSWER_BYTES = 1024 * 1024
MAX_QUOTED_CHARS = 300
ADAPTER_TIMEOUT_S = 120.0
# Statuses that blame the request itself, so that a retry cannot help.
REFUSALS = frozenset({400, 401, 403, 404, 405, 413, 415, 422})

T = TypeVar("T")
NewKeys = Callable[[], Mapping[str, str | float]]
# Keys are good for an hour, so the server also serves while its agent is dead.
RENEW_S = 600.0
FIRST_RETRY_S, MAX_RETRY_S = 0.03, 1.0
TIMEOUT_S = 5.0

# Answers that say that the model's own code failed on a request. They prove as much as a refusal
# does: the server serves the route, and has a worker with the model.
#
# server                             status  body
# ---------------------------------  ------  -------------------------------------------------------
# multi-model-server, TorchServe    503     "Prediction failed", of the type InternalServerException
# SageMaker's inference toolkit      500     a traceback of its transformer, not of the model's load
#
# Source: the error of a failed batch in awslabs/multi-model-server, WorkLoadManager's Job, which
# TorchServe has too, and `handle_error` in transformer.py of aws/sagemaker-inference-toolkit.
TRANSFORMER = b"sagemaker_inference/transformer.py"
LOADING = b"in validate_and_initialize"  # it loads a model with the first request, if need be


class _ServersError(msgspec.Struct):
    """An error of multi-model-server and TorchServe."""

    type: str = ""
    message: str = ""


FAILED = _ServersError(type="InternalServerException", message="Prediction failed")


def is_model_failure(status: int | None, body: bytes) -> bool:
    """Whether the model's code ran on the request, and failed."""
    if status == 500:
        return TRANSFORMER in body and LOADING not in body
    if status != 503:
        return False
    try:
        return decode(body, _ServersError) == FAILED
    except msgspec.DecodeError:
        return False


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a call. `fault` is `None` on success.

    `name_taken` is True if an adapter that we must not remove has the name.
    """

    status: int | None = None
    fault: str | None = None
    name_taken: bool = False

    @property
    def refused(self) -> bool:
        """Whether the server understood the call and refuses it."""
        return self.fault is not None and self.status in REFUSALS

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later."""
        return self.fault is not None and (self.status is None or self.status in RETRYABLE)


class _Listed(msgspec.Struct):
    """The part of GET /adapters/NAME that is read."""

    src: str


class ModelServer:
    """Client of one copy. Sends `key`, and pings with `ask`. No method raises for an answer."""

    def __init__(
        self,
        address: str,
        http: httpx.AsyncClient,
        key: str | None = None,
        ask: AskStatus = http_status,
    ) -> None:
        self._address = address
        self._http = http
        self._ask = ask
        self._key_header = {} if key is None else {COPY_KEY_HEADER: key}

    async def ping(self, timeout_s: float) -> bool:
        """Whether /ping answers 200 in time."""
        status = await self._ask("GET", self._address, "/ping", self._key_header, timeout_s)
        return status == 200

    async def prove(
        self, probe: Probe, timeout_s: float, adapter: AdapterPlacement | None = None
    ) -> Answer:
        """Send the probe as a real invocation, through `adapter` if given."""
        if probe.ping_alone:
            return (await self.call("GET", "/ping", timeout_s=timeout_s))[0]
        headers = {"Content-Type": probe.content_type, "Accept": "application/json"}
        if adapter is not None:
            headers |= {ADAPTER_ID_HEADER: adapter.id, ADAPTER_ALIAS_HEADER: adapter.alias}
        answer, body = await self.call(
            "POST", "/invocations", timeout_s=timeout_s, headers=headers, body=probe.body
        )
        if probe.any_answer and (
            proves_the_route(answer.status, model_errors=probe.model_errors)
            or is_model_failure(answer.status, body)
        ):
            return Answer(status=answer.status)
        if answer.fault is None and probe.json_field is not None:
            is_vector = probe.or_vector and _is_vector(body)
            fault = None if is_vector else _find_field_fault(body, probe.json_field)
            return Answer(status=answer.status, fault=fault)
        return answer

    async def register(
        self, adapter: AdapterPlacement, folder: str, *, again: bool = False
    ) -> Answer:
        """Load the adapter's weights under its id. Succeeds if this adapter is loaded already.

        With `again` the adapter was registered before. A server that does not report the source of
        its adapters is then assumed to have it from us.

        not 409                            -> the answer
        409, listed with our folder        -> success
        409, listed with another folder    -> the name is taken
        409, not listed                    -> success if `again`, else the name is taken
        409, listing without an answer     -> that failure
        """
        answer, _ = await self.call(
            "POST",
            f"/adapters?name={quote(adapter.id, safe='')}&src={quote(folder, safe='')}",
            timeout_s=ADAPTER_TIMEOUT_S,
            headers={"Content-Type": "application/json", ADAPTER_ALIAS_HEADER: adapter.alias},
            body=msgspec.json.encode({"name": adapter.id, "src": folder}),
        )
        if answer.status != 409:
            return answer
        listed, body = await self.call(
            "GET", f"/adapters/{quote(adapter.id, safe='')}", timeout_s=ADAPTER_TIMEOUT_S
        )
        if listed.status is None:
            return listed
        ours = _parse_source(body) == Path(folder) if listed.status == 200 else again
        return Answer(status=409) if ours else _build_name_conflict(adapter.id, answer)

    async def unregister(self, adapter_id: str) -> Answer:
        """Unload the adapter. Succeeds if it is not loaded."""
        answer, _ = await self.call(
            "DELETE", f"/adapters/{quote(adapter_id, safe='')}", timeout_s=ADAPTER_TIMEOUT_S
        )
        return Answer(status=404) if answer.status == 404 else answer

    async def call(
        self,
        method: str,
        path: str,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        plain: bool = False,
    ) -> tuple[Answer, bytes]:
        """The answer to any call, and its body, cut off at about MAX_ANSWER_BYTES.

        With `plain` a compressed body is not read, because a few of its bytes can become many.
        """
        call = f"{method} {path.partition('?')[0]}"
        # A TargetModel is sent as the bytes that the caller's own header had.
        encoded = httpx.Headers({**(headers or {}), **self._key_header}, encoding="latin-1")
        try:
            # httpx's own limits apply to each read, this limit to the whole call.
            async with (
                asyncio.timeout(timeout_s),
                self._http.stream(
                    method, self._address + path, headers=encoded, content=body, timeout=timeout_s
                ) as response,
            ):
                if plain and response.headers.get("Content-Encoding", "identity") != "identity":
                    return Answer(fault=f"{call} answered a compressed body"), b""
                text = await _read_bounded(response)
        except (TimeoutError, httpx.TimeoutException):
            return Answer(fault=f"{call} did not answer within {timeout_s:g} s"), b""
        except httpx.HTTPError as error:
            return Answer(fault=f"{call} failed: {error or type(error).__name__}"), b""
        if response.status_code == 200:
            return Answer(status=200), text
        quoted = text[:MAX_QUOTED_CHARS].decode("utf-8", "replace").strip()
        fault = f"{call} answered {response.status_code}: {quoted or 'no body'}"
        return Answer(status=response.status_code, fault=fault), text


async def find_ping_fault(
    server: ModelServer, timeout_s: float, port: int, folder: Path
) -> str | None:
    """Why the copy in `folder` is not up yet. None once its own server answers pings."""
    if not await server.ping(timeout_s):
        return "GET /ping never answered 200"
    table = await SCANS.fresh()
    if await asyncio.to_thread(belongs_to_another, port, folder, table):
        return f"another copy listens on its port {port}"
    return None


def proves_the_route(status: int | None, *, model_errors: bool = False) -> bool:
    """Whether this answer to a meaningless request proves that the server serves the route.

    2xx, and refusals of the request itself -> yes
    500, if only the model's functions cause it (`model_errors`) -> yes
    404, 405 (no such route), 408, 425, 429, 5xx (not ready, overloaded, broken) -> no
    """
    if status is None:
        return False
    is_models = model_errors and status == 500
    return 200 <= status < 300 or is_models or status in REFUSALS - {404, 405}


def build_http_client() -> httpx.AsyncClient:
    """A client for loopback: no proxies, no TLS, no user's netrc."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    return httpx.AsyncClient(
        transport=httpx.AsyncHTTPTransport(verify=False, limits=limits), trust_env=False
    )


async def _read_bounded(response: httpx.Response) -> bytes:
    """The body, cut off at about MAX_ANSWER_BYTES."""
    read = bytearray()
    async for piece in response.aiter_bytes():
        read += piece
        if len(read) > MAX_ANSWER_BYTES:
            break
    return bytes(read)


def _parse_source(body: bytes) -> Path | None:
    """The source folder in an adapter's description, or None."""
    try:
        return Path(decode(body, _Listed).src)
    except msgspec.DecodeError:
        return None


def _build_name_conflict(adapter_id: str, answer: Answer) -> Answer:
    fault = (
        f"the model server already has an adapter named {adapter_id}, one of the model's archive; "
        f"rename one of the two ({answer.fault})"
    )
    return Answer(status=409, fault=fault, name_taken=True)


def _is_vector(body: bytes) -> bool:
    """Whether `body` is a vector of numbers, or of labels with scores, or a list of these."""
    try:
        answer = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return False
    while isinstance(answer, list) and answer:
        answer = answer[0]
    return isinstance(answer, float) or (
        isinstance(answer, dict) and {"label", "score"} <= {*answer}
    )


def _find_field_fault(body: bytes, field: str) -> str | None:
    quoted = body[:MAX_QUOTED_CHARS].decode("utf-8", "replace")
    try:
        answer = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return f"POST /invocations answered 200 without JSON: {quoted}"
    first = answer[0] if isinstance(answer, list) and answer else answer
    if isinstance(first, dict) and field in first:
        return None
    return f"POST /invocations answered 200 without {field}: {quoted}"


async def serve_with_call_keys(
    serves: Coroutine[Any, Any, T], server: ModelServer, keys: NewKeys | None, clock: Clock
) -> T:
    """Await `serves`. Meanwhile send keys to the server of a graph, which invokes other models.

    `keys` makes temporary keys of the model's account that are good for invocations only, or is
    `None`. The agent sends them, because the server outlives agents and their ports. A server
    without keys answers no ping.
    """
    if keys is None:
        return await serves
    sending = asyncio.create_task(_send_keys(server, keys, clock))
    try:
        return await serves
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _send_keys(server: ModelServer, keys: NewKeys, clock: Clock) -> None:
    """Send keys once the server listens, and new ones before they expire."""
    pause_s = FIRST_RETRY_S
    while True:
        body = msgspec.json.encode(await asyncio.to_thread(keys))
        answer, _ = await server.call("PUT", "/credentials", timeout_s=TIMEOUT_S, body=body)
        pause_s = min(MAX_RETRY_S, 1.2 * pause_s)
        await clock.sleep(RENEW_S if answer.fault is None else pause_s)
