"""An author's code around one request: handler, input formatter, output formatter."""

import json
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import Send

from hostelry.containers.code.code_process import CodeError, CodeProcess
from hostelry.containers.code.messages import (
    FormatInput,
    FormatOutput,
    Handle,
    NextItem,
    Replied,
)
from hostelry.containers.lmi.code.author_code import AuthorCode, CodeHost, run_hook
from hostelry.containers.lmi.code.author_hooks import HANDLE, INPUT_FORMATTER, OUTPUT_FORMATTER
from hostelry.containers.lmi.http.bodies import send_chunks, send_whole
from hostelry.containers.lmi.refusal import Cause, Refusal, Surface, bad_request
from hostelry.containers.lmi.request.adapter_choice import AdapterCaller
from hostelry.containers.lmi.request.body import body_fields
from hostelry.containers.lmi.response.forms import JSONLINES, SSE, frame_values, openai_error

FORMATTER_LIMIT_S = 10.0
HIDDEN_HEADERS = ("authorization", "cookie", "x-amz-security-token", "x-amz-date")
HIDDEN_PREFIXES = ("x-hostelry-",)
# The server sets these headers of a response. The code cannot change them.
OWN_HEADERS = frozenset(
    {
        "connection", "content-length", "date", "host", "keep-alive", "server", "te", "trailer",
        "transfer-encoding", "upgrade", "accept", "accept-encoding", "user-agent",
        "content-encoding",
    }
)  # fmt: skip
MAX_HEADERS = 64
MAX_HEADER_CHARACTERS = 4096
EVENT_END = b"\n\n"
FAILED_STATUS = 424

LOG = logging.getLogger(__name__)


class CustomRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request, and the code that may change it. `shown` formats texts for callers."""

    code: AuthorCode
    request: Request
    surface: Surface
    predict_timeout_s: float
    shown: Callable[[str], str]

    async def is_handled(self, send: Send, body: bytes) -> bool:
        """Have the model's `handle` respond. False without a `handle`, or if it returns None.

        Raises Refusal.
        """
        host = self.code.find_host(None, HANDLE)
        if host is None:
            return False
        call = (handler_properties(self.request), handler_contents(self.request, body))
        try:
            async with host.running() as process:
                reply = await process.call(
                    lambda it: Handle(it, *call), HANDLE, self.predict_timeout_s
                )
                if reply.is_nothing:
                    return False
                if reply.is_stream:
                    await self._stream(send, process, reply)
                else:
                    await send_whole(send, status(reply), response_headers(reply), reply.body)
        except CodeError as error:
            raise build_code_refusal(f"Custom handler failed: {error}") from error
        return True

    async def _stream(self, send: Send, process: CodeProcess, opened: Replied) -> None:
        items = self._items(process, opened.id)
        async with aclosing(items):
            first = await anext(items, Replied(opened.id, is_last=True))
            headers = {**response_headers(opened), **response_headers(first)}
            if status(first) != 200:
                await send_whole(send, status(first), headers, first.body)
                return
            await send_chunks(send, headers, first.body, self._rest(items))

    async def _items(self, process: CodeProcess, call: int) -> AsyncGenerator[Replied]:
        is_open = True
        try:
            while is_open:
                reply = await process.call(
                    lambda it: NextItem(it, call), HANDLE, self.predict_timeout_s
                )
                is_open = not reply.is_last
                yield reply
        finally:
            if is_open:
                process.cancel(call)

    async def _rest(self, items: AsyncGenerator[Replied]) -> AsyncGenerator[bytes]:
        try:
            async for item in items:
                yield item.body
        except CodeError as error:
            LOG.warning("a stream broke: %s", error)
            yield self.format_failure(self.shown(f"Custom handler failed: {error}"))

    def format_failure(self, message: str) -> bytes:
        """The end of a stream that broke."""
        if self.surface is Surface.OPENAI:
            return frame_values([openai_error(FAILED_STATUS, message)], True) + b"data: [DONE]\n\n"
        return frame_values([{"code": FAILED_STATUS, "error": message}], False)

    async def formatted_body(
        self, body: bytes, caller: AdapterCaller, registered: Collection[str]
    ) -> bytes | None:
        """The body after the input formatter, as JSON. None without a formatter. Raises Refusal."""
        if self.code.is_empty:
            return None
        members = body_fields(self.request.headers.get("content-type", ""), body).as_dict()
        adapter = named_adapter(members, caller, registered)
        host = self.code.find_host(adapter, INPUT_FORMATTER)
        if host is None:
            return None
        given = members
        if caller.adapter is None:
            given = {name: it for name, it in members.items() if name != "adapters"}
        payload = json.dumps(given).encode()
        reply = await self._run(host, lambda it: FormatInput(it, payload), INPUT_FORMATTER)
        if adapter is None or caller.adapter is not None:
            return reply.body
        # As in LMI, the request's adapter is chosen before its formatter runs.
        changed = {name: it for name, it in json.loads(reply.body).items() if name != "adapter"}
        return msgspec.json.encode({**changed, "adapters": members.get("adapters") or adapter})

    def output_formatter(self, adapters: Sequence[str | None]) -> "OutputFormatter | None":
        """The formatter of a response of these adapters. None if they have none.

        Raises Refusal for inputs whose adapters have different formatters.
        """
        hosts = {self.code.find_host(it, OUTPUT_FORMATTER) for it in adapters}
        if len(hosts) > 1:
            raise bad_request(
                "the adapters of this request have output formatters of their own; send the "
                "inputs of each adapter by themselves",
                "adapters",
            )
        (host,) = hosts
        return None if host is None else OutputFormatter(self, host)

    async def _run(self, host: CodeHost, make: Any, hook: str) -> Replied:
        limit_s = min(FORMATTER_LIMIT_S, self.predict_timeout_s)
        try:
            return await run_hook(host, make, hook, limit_s)
        except CodeError as error:
            raise build_code_refusal(f"Custom formatter failed: {error}") from error


class OutputFormatter(msgspec.Struct, frozen=True):
    """The output formatter of one response."""

    custom: CustomRequest
    host: CodeHost

    @property
    def stream_type(self) -> str:
        """The content type of a stream."""
        return SSE if self.custom.surface is Surface.OPENAI else JSONLINES

    async def whole(self, response: Any, lmi: Any) -> bytes:
        """A response that is not streamed, in OpenAI's and perhaps LMI's form. Raises Refusal."""
        encoded = msgspec.json.encode(response)
        other = msgspec.json.encode(lmi) if isinstance(lmi, dict) else None
        return await self._call_formatter(lambda it: FormatOutput(it, encoded, other)) + b"\n"

    async def events(self, events: bytes) -> bytes:
        """Events of a stream, each through the formatter. Raises Refusal."""
        parts = [it for it in events.split(EVENT_END) if it]
        return b"".join([await self._event(part + EVENT_END) for part in parts])

    async def stream(self, chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        """The rest of a stream. A failure ends it with an error."""
        async with aclosing(chunks):
            try:
                async for chunk in chunks:
                    yield await self.events(chunk)
            except Refusal as refusal:
                LOG.warning("a stream broke: %s", refusal.message)
                yield self.custom.format_failure(refusal.message)

    async def _event(self, event: bytes) -> bytes:
        text = await self._call_formatter(lambda it: FormatOutput(it, event, is_event=True))
        if self.custom.surface is not Surface.OPENAI:
            return text + b"\n"
        line = text.rstrip(b"\n")
        return (line if line.startswith(b"data:") else b"data: " + line) + EVENT_END

    async def _call_formatter(self, make: Any) -> bytes:
        reply = await self.custom._run(self.host, make, OUTPUT_FORMATTER)
        return reply.body


def named_adapter(
    members: Mapping[str, Any], caller: AdapterCaller, registered: Collection[str]
) -> str | None:
    """The one adapter that a request names. None for the base model, or for several adapters."""
    value = caller.adapter or caller.query_adapter or members.get("adapters")
    if isinstance(value, list):
        names = set(map(str, value))
        value = names.pop() if len(names) == 1 else None
    if not value and caller.model is None:
        value = members.get("model")
    return value if isinstance(value, str) and value in registered else None


def handler_properties(request: Request) -> dict[str, str]:
    """The headers that the code sees, spelled as clients of LMI spell them."""
    seen = {}
    for name, value in request.headers.items():
        if name not in HIDDEN_HEADERS and not name.startswith(HIDDEN_PREFIXES):
            seen[name.title().replace("Sagemaker", "SageMaker")] = value
    return seen


def handler_contents(request: Request, body: bytes) -> tuple[tuple[str, bytes], ...]:
    """The query's parameters and the body."""
    query = [(name, value.encode()) for name, value in request.query_params.multi_items()]
    return (*query, ("data", body))


def response_headers(reply: Replied) -> dict[str, str]:
    """The headers of a response that the code may set. Raises Refusal for an invalid header."""
    if len(reply.headers) > MAX_HEADERS:
        raise build_code_refusal(f"Custom handler failed: more than {MAX_HEADERS} headers")
    headers = {}
    for name, value in reply.headers.items():
        lower = name.lower()
        if lower in OWN_HEADERS or lower.startswith(HIDDEN_PREFIXES):
            continue
        is_name = lower.isascii() and lower.replace("-", "").replace("_", "").isalnum()
        if not is_name or not is_header_value(value):
            raise build_code_refusal(
                f"Custom handler failed: {name[:80]!r} is no header of a response"
            )
        headers[lower] = value
    return headers


def is_header_value(value: str) -> bool:
    """True if a response may have the header."""
    return len(value) <= MAX_HEADER_CHARACTERS and value.isprintable() and value.isascii()


def status(reply: Replied) -> int:
    """The status of a reply. 500 if the number is not a valid status."""
    return reply.status if 200 <= reply.status <= 599 else 500


def build_code_refusal(message: str) -> Refusal:
    """The refusal of a request whose code failed."""
    return Refusal(Cause.DEPENDENCY, message)
