"""Calls of an LLM by the OpenAI routes, or by InvokeEndpointWithResponseStream."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import typer

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.json import decode
from hostelry.base.printable import printable
from hostelry.cli.named import NoControlAnswerError, api_errors
from hostelry.dataplane.routes import SnapshotError, decode_snapshot
from hostelry.domain.routes import RouteSnapshot
from hostelry.home.aws_client import aws_client
from hostelry.home.home import Credentials, Home, UpConfig
from hostelry.loadtest.answers import AnswerPiece, AnswerReader, ModelAnswerError, error_text

if TYPE_CHECKING:
    import httpx
    from botocore.exceptions import ClientError

GRACE_S = 10.0  # beyond the gateway's own limit
MAX_ERROR_BYTES = 1024 * 1024
JSON = "application/json"
Body = dict[str, Any]
Chunks = Iterator[bytes]
T = TypeVar("T")
CONTROL_WITHIN_S = 5.0  # after this time names are taken from the routes
NOTE = "hostelry: control does not answer; names are those of the gateway's last routes"


class AnswerTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The times of one answer. Without text in the answer it has no `first_s`."""

    num_tokens: int
    first_s: float | None
    total_s: float

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens per second after the first token. None for fewer than two tokens."""
        if self.first_s is None or self.num_tokens < 2 or self.total_s <= self.first_s:
            return None
        return (self.num_tokens - 1) / (self.total_s - self.first_s)

    def text(self) -> str:
        """The times on one line."""
        if self.first_s is None:
            return f"no text, after {self.total_s:.2f} s"
        tokens = f"{self.num_tokens} token{'' if self.num_tokens == 1 else 's'}"
        rate = self.tokens_per_s
        speed = "" if rate is None else f", {rate:.1f} tokens/s"
        return f"{tokens}, first after {self.first_s * 1000:.0f} ms{speed}"


class LlmCalls(msgspec.Struct, frozen=True):
    """Calls of one LLM. `opened(body)` is a context with the bytes of the answer."""

    opened: Callable[[Body], Any]

    def answer(self, body: Body, show: Callable[[AnswerPiece], None]) -> AnswerTimes:
        """Pass the pieces of an answer to `show` as they come.

        Raises ModelAnswerError for refused and broken answers, TerminalError without an answer.
        """
        reader, began_s = AnswerReader(), monotonic_s()
        first_s: float | None = None
        num_pieces = 0
        with self.opened(body) as chunks:
            for pieces in _pieces(reader, chunks):
                if pieces and first_s is None:
                    first_s = monotonic_s() - began_s
                num_pieces += len(pieces)
                for piece in pieces:
                    show(piece)
        return AnswerTimes(
            num_tokens=reader.num_tokens if reader.num_tokens is not None else num_pieces,
            first_s=first_s,
            total_s=monotonic_s() - began_s,
        )


def openai_calls(config: UpConfig, credentials: Credentials) -> LlmCalls:
    """Calls by the OpenAI routes. `model` in the body chooses the component."""

    @contextmanager
    def opened(body: Body) -> Iterator[Chunks]:
        import httpx

        route = "chat/completions" if "messages" in body else "completions"
        headers = {"Authorization": f"Bearer {credentials.openai_api_key}", "Content-Type": JSON}
        url = f"{config.gateway_url}/v1/{route}"
        timeout = httpx.Timeout(config.stream_timeout_s + GRACE_S, connect=5.0)
        content = msgspec.json.encode(body)
        try:
            # Plain HTTP on loopback. Reading certificates would take 30 ms of CPU.
            with (
                httpx.Client(timeout=timeout, trust_env=False, verify=False) as client,
                client.stream("POST", url, headers=headers, content=content) as answer,
            ):
                if answer.status_code != httpx.codes.OK:
                    raise ModelAnswerError(_refusal(answer))
                yield answer.iter_raw()
        except httpx.ConnectError:
            raise TerminalError(
                f"the platform does not answer at {config.gateway_url}: start it with "
                "`hostelry up`, or see `hostelry status`"
            ) from None
        except httpx.HTTPError as error:
            raise ModelAnswerError(f"the answer broke off: {error}") from None

    return LlmCalls(opened)


def runtime_calls(config: UpConfig, credentials: Credentials, endpoint: str) -> LlmCalls:
    """Calls of an endpoint with one model, by InvokeEndpointWithResponseStream."""
    limit_s = config.stream_timeout_s + GRACE_S
    client = aws_client("sagemaker-runtime", config, credentials, read_timeout_s=limit_s)

    @contextmanager
    def opened(body: Body) -> Iterator[Chunks]:
        from botocore.exceptions import ClientError, EventStreamError

        given = {name: value for name, value in body.items() if name != "model"}
        content = msgspec.json.encode(given)
        with api_errors(config):
            try:
                answer = client.invoke_endpoint_with_response_stream(
                    EndpointName=endpoint, Body=content, ContentType=JSON
                )
                with closing(answer["Body"]) as events:
                    yield (it["PayloadPart"]["Bytes"] for it in events if "PayloadPart" in it)
            except EventStreamError as error:
                raise ModelAnswerError(f"the answer broke off: {model_error_text(error)}") from None
            except ClientError as error:
                raise ModelAnswerError(model_error_text(error)) from None

    return LlmCalls(opened)


def _pieces(reader: AnswerReader, chunks: Chunks) -> Iterator[list[AnswerPiece]]:
    for chunk in chunks:
        yield reader.take(chunk)
    yield reader.end()


def _refusal(answer: "httpx.Response") -> str:
    """The text of an error answer, of which only the beginning is read."""
    content = b""
    for part in answer.iter_bytes():
        content += part
        if len(content) > MAX_ERROR_BYTES:
            break
    try:
        body: Any = decode(content, dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        body = content.decode("utf-8", "replace") or f"HTTP status {answer.status_code}"
    return error_text(body)


def model_error_text(error: "ClientError") -> str:
    """The container's text in a ModelError, or the text of another refusal."""
    response: dict[str, Any] = dict(error.response)
    original = response.get("OriginalMessage")
    if not original:
        found = response.get("Error", {})
        return " ".join(printable(str(found.get("Message") or error)).split())
    status = response.get("OriginalStatusCode")
    head = f"the model answered {status}" if status else "the model gave no answer"
    return f"{head}: {container_text(str(original))}"


def container_text(original: str) -> str:
    """The message in a container's JSON, or the whole text if it is not such JSON."""
    try:
        body = json.loads(original)
    except (ValueError, RecursionError):
        body = None
    return error_text(body) if isinstance(body, dict) else printable(original).strip()


class RoutedNames(msgspec.Struct, frozen=True):
    """The part of a SageMaker client that `find_named` uses, answered from routes."""

    routes: RouteSnapshot

    def get_paginator(self, name: str) -> "RoutedPages":
        """The pages of ListEndpoints or ListInferenceComponents."""
        rows = self.endpoints() if name == "list_endpoints" else self.components()
        member = "Endpoints" if name == "list_endpoints" else "InferenceComponents"
        return RoutedPages(member, list(rows))

    def endpoints(self) -> Iterator[dict[str, str]]:
        """A row for each endpoint."""
        yield from ({"EndpointName": it.name} for it in self.routes.endpoints)

    def components(self) -> Iterator[dict[str, str]]:
        """A row for each component, the failed ones included."""
        for endpoint in self.routes.endpoints:
            served = [it.name for it in endpoint.components]
            for name in [*served, *(it.name for it in endpoint.failed)]:
                yield {"InferenceComponentName": name, "EndpointName": endpoint.name}

    def describe_inference_component(self, InferenceComponentName: str) -> dict[str, Any]:
        """The base of a component that is an adapter."""
        every = (it for endpoint in self.routes.endpoints for it in endpoint.components)
        base = next((it.base_name for it in every if it.name == InferenceComponentName), None)
        return {"Specification": {"BaseInferenceComponentName": base} if base else {}}


class RoutedPages(msgspec.Struct, frozen=True):
    """The single page of a list operation."""

    member: str
    rows: list[dict[str, str]]

    def paginate(
        self, NameContains: str = "", EndpointNameEquals: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """The rows that pass the filters."""
        own = "EndpointName" if self.member == "Endpoints" else "InferenceComponentName"
        found = [row for row in self.rows if NameContains.lower() in row[own].lower()]
        if EndpointNameEquals is not None:
            found = [row for row in found if row["EndpointName"] == EndpointNameEquals]
        yield {self.member: found}


def find_with_fallback(
    home: Home, config: UpConfig, credentials: Credentials, find: Callable[[Any], T]
) -> T:
    """Call `find` with a SageMaker client. If control does not answer, use the last routes.

    Raises TerminalError.
    """
    try:
        with api_errors(config):
            client = aws_client("sagemaker", config, credentials, read_timeout_s=CONTROL_WITHIN_S)
            return find(client)
    except NoControlAnswerError:
        try:
            routes = decode_snapshot(home.routes.read_bytes())
        except (OSError, SnapshotError):
            routes = None
        if routes is None:
            raise
        typer.echo(NOTE, err=True)
        return find(RoutedNames(routes))
