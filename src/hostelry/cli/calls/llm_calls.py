"""Calls of an LLM by the OpenAI routes, or by InvokeEndpointWithResponseStream."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.json import decode
from hostelry.cli.calls.answer_reader import (
    AnswerPiece,
    AnswerReader,
    AnswerTimes,
    ModelAnswerError,
    error_text,
)
from hostelry.cli.calls.model_error import model_error_text
from hostelry.cli.named import api_errors
from hostelry.home.aws_client import aws_client
from hostelry.home.home import Credentials, UpConfig

if TYPE_CHECKING:
    import httpx

GRACE_S = 10.0  # beyond the gateway's own limit
MAX_ERROR_BYTES = 1024 * 1024
JSON = "application/json"
Body = dict[str, Any]
Chunks = Iterator[bytes]


@dataclass(frozen=True, slots=True)
class LlmCalls:
    """How requests reach one LLM: `opened(body)` is a context of the answer's bytes."""

    opened: Callable[[Body], Any]

    def answer(self, body: Body, show: Callable[[AnswerPiece], None]) -> AnswerTimes:
        """Pass an answer's pieces to `show` as they come.

        Raises ModelAnswerError for a refusal and a broken answer, TerminalError without an answer.
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
    """Calls of components by the OpenAI routes, which the body's members choose."""

    @contextmanager
    def opened(body: Body) -> Iterator[Chunks]:
        import httpx

        route = "chat/completions" if "messages" in body else "completions"
        headers = {"Authorization": f"Bearer {credentials.openai_api_key}", "Content-Type": JSON}
        url = f"{config.gateway_url}/v1/{route}"
        timeout = httpx.Timeout(config.stream_timeout_s + GRACE_S, connect=5.0)
        content = msgspec.json.encode(body)
        try:
            # Plain HTTP on loopback; reading certificates takes 30 ms of CPU.
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
    """Calls of an endpoint of one model by InvokeEndpointWithResponseStream."""
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
        yield reader.feed(chunk)
    yield reader.end()


def _refusal(answer: "httpx.Response") -> str:
    """The text of an answer that is an error; only its beginning is read."""
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
