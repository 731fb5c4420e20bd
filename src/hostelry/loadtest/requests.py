"""The plan, the requests and the connections of a load test."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast
from urllib.parse import quote, urlsplit

import httptools
import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.loadtest.recording import BROKEN, AnswerRecord

CONNECT_TIMEOUT_S = 5.0
Take = Callable[[bytes], None]
SIGNED_FOR_S = 60.0  # a signature is valid for some minutes
JSON = "application/json"
ERROR_HEADER = b"x-amzn-errortype"


def message(path: str, headers: dict[str, str], body: bytes) -> bytes:
    """The bytes of an HTTP request that POSTs `body`."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST {path} HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
    return head.encode("latin-1") + body


class LoadConnection(asyncio.Protocol):
    """Sends whole requests, each after the answer to the request before.

    `is_open` is False after the server closed the connection or an answer broke off. `header` is
    the value of the watched header in the last answer.
    """

    def __init__(self, header: bytes = b"") -> None:
        self.is_open = True
        self.header = b""
        self._wanted = header
        self._answered: asyncio.Future[int] | None = None
        self._take: Take = _drop
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport: the connection can send now."""
        self._transport = cast(asyncio.Transport, transport)

    async def ask(self, request: bytes, take: Take) -> int:
        """Send a request and return the status of its answer.

        Passes parts of the body to `take`. Returns BROKEN if the answer breaks off.
        """
        if not self.is_open:
            return BROKEN
        self._answered = asyncio.get_running_loop().create_future()
        self._take, self.header = take, b""
        self._transport.write(request)
        return await self._answered

    def data_received(self, data: bytes) -> None:
        """Parse received bytes. Invalid HTTP breaks the connection."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserCallbackError):
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the value of the watched header."""
        if name.lower() == self._wanted:
            self.header = value

    def on_body(self, part: bytes) -> None:
        """Pass a part of the body on."""
        self._take(part)

    def on_message_complete(self) -> None:
        """End the answer: it is complete."""
        self.is_open = self.is_open and self._parser.should_keep_alive()
        self._end(self._parser.get_status_code())

    def connection_lost(self, exc: Exception | None) -> None:
        """End a pending answer as broken."""
        self.is_open = False
        self._end(BROKEN)

    def close(self) -> None:
        """Close the connection at once."""
        self.is_open = False
        self._transport.abort()

    def _end(self, status: int) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(status)


def _drop(part: bytes) -> None:
    del part


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAccess:
    """The address of a gateway, and keys that it accepts."""

    url: str
    region: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    openai_api_key: str = field(repr=False)

    @property
    def host(self) -> str:
        """The Host header of requests."""
        return urlsplit(self.url).netloc


class InvokedModel(msgspec.Struct, frozen=True):
    """The endpoint of an invocation, and a component of it if it has components."""

    endpoint: str
    component: str | None


class LoadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A load test. With `rate_per_s` each request has a planned time, else it follows an answer.

    At most `concurrency` requests are under way. `timeout_s` limits one request.
    `host` and `port` are the address of a source that sends to one address.
    """

    concurrency: int
    duration_s: float
    rate_per_s: float | None
    timeout_s: float
    host: str = ""
    port: int = 0


class LoadClient(Protocol):
    """One user of a load test, who sends one request after the other."""

    async def send(self, number: int, answer: AnswerRecord) -> None:
        """Send request `number`, and record its answer.

        Raises TimeoutError after the plan's time limit, and OSError without a connection.
        """
        ...

    def close(self) -> None:
        """Close the user's connection."""
        ...


class LoadSource(Protocol):
    """The requests of a load test. `streams_text` is true if an LLM streams the answers."""

    @property
    def streams_text(self) -> bool:
        """Whether answers are streams of an LLM's tokens."""
        ...

    def open_client(self, plan: LoadPlan) -> LoadClient:
        """A new user."""
        ...


class LoadRequests(msgspec.Struct, frozen=True):
    """Builds the bytes of request number n, for the plan's address."""

    make: Callable[[int], bytes]
    streams_text: bool

    def open_client(self, plan: LoadPlan) -> LoadClient:
        """A user with a separate connection."""
        return _ConnectedClient(self.make, plan)


class _ConnectedClient:
    """A user with one connection, which is made again after it broke."""

    def __init__(self, make: Callable[[int], bytes], plan: LoadPlan) -> None:
        self._make = make
        self._plan = plan
        self._connection: LoadConnection | None = None

    async def send(self, number: int, answer: AnswerRecord) -> None:
        """Send a request. The connection is kept if the answer arrived whole."""
        try:
            connection = self._connection
            if connection is None or not connection.is_open:
                connection = self._connection = await self._connect()
            async with asyncio.timeout(self._plan.timeout_s):
                status = await connection.ask(self._make(number), answer.take)
            answer.end(status, connection.header)
        finally:
            if not answer.is_whole:
                self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    async def _connect(self) -> LoadConnection:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: LoadConnection(ERROR_HEADER), self._plan.host, self._plan.port
            )
        return connection


def openai_requests(
    access: GatewayAccess, models: Sequence[str], body: Mapping[str, Any]
) -> LoadRequests:
    """Streamed requests to the models in turn. `body` has messages or a prompt."""
    route = "chat/completions" if "messages" in body else "completions"
    headers = {
        "Host": access.host,
        "Authorization": f"Bearer {access.openai_api_key}",
        "Content-Type": JSON,
    }
    made = [
        message(f"/v1/{route}", headers, msgspec.json.encode({"model": model, **body}))
        for model in models
    ]
    return LoadRequests(lambda number: made[number % len(made)], streams_text=True)


def invocation_requests(
    access: GatewayAccess, models: Sequence[InvokedModel], body: bytes, content_type: str
) -> LoadRequests:
    """Invocations of the models in turn. Signatures are renewed as they age."""
    signers = [_Signer(access, model, body, content_type) for model in models]
    return LoadRequests(
        lambda number: signers[number % len(signers)].request(monotonic_s()), streams_text=False
    )


class _Signer:
    """One invocation, which is signed again when its signature is old."""

    def __init__(
        self, access: GatewayAccess, model: InvokedModel, body: bytes, content_type: str
    ) -> None:
        from botocore.auth import SigV4Auth
        from botocore.credentials import Credentials

        self._path = f"/endpoints/{quote(model.endpoint)}/invocations"
        self._url = f"{access.url}{self._path}"
        self._host = access.host
        self._body = body
        self._headers = {"Content-Type": content_type}
        if model.component:
            self._headers["X-Amzn-SageMaker-Inference-Component"] = model.component
        keys = Credentials(access.access_key_id, access.secret_access_key)
        self._auth = SigV4Auth(keys, "sagemaker", access.region)
        self._signed = b""
        self._until_s = 0.0

    def request(self, now_s: float) -> bytes:
        """The bytes of the signed request."""
        if now_s >= self._until_s:
            from botocore.awsrequest import AWSRequest

            request = AWSRequest("POST", self._url, dict(self._headers), self._body)
            self._auth.add_auth(request)
            headers = {"Host": self._host, **dict(request.headers.items())}
            self._signed = message(self._path, headers, self._body)
            self._until_s = now_s + SIGNED_FOR_S
        return self._signed
