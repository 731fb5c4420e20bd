"""`hostelry invoke`: one invocation of an endpoint or a component."""

import base64
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.json import decode
from hostelry.base.printable import printable
from hostelry.cli import completion as names
from hostelry.cli.calls.llm_calls import find_with_fallback, model_error_text
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cli.named import NamedModel, NameKind, api_errors, called_model, find_named
from hostelry.home.aws_client import aws_client

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

import json
import mimetypes
from pathlib import PurePath

CHUNK_BYTES = 64 * 1024
GRACE_S = 10.0  # beyond the gateway's own limit
STDIN = "-"
BY_SUFFIX = {
    ".json": "application/json",
    ".jsonl": "application/jsonlines",
    ".ndjson": "application/jsonlines",
    ".csv": "text/csv",
    ".tsv": "text/tab-separated-values",
    ".txt": "text/plain",
    ".npy": "application/x-npy",
    ".npz": "application/x-npz",
    ".parquet": "application/x-parquet",
    ".libsvm": "text/libsvm",
    ".svm": "text/libsvm",
    ".recordio": "application/x-recordio-protobuf",
    ".wav": "audio/wav",
}
BY_BEGINNING = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"\x93NUMPY", "application/x-npy"),
    (b"PAR1", "application/x-parquet"),
    (b"%PDF-", "application/pdf"),
)
BYTES = "application/octet-stream"
MAX_SNIFFED_BYTES = 16 * 1024 * 1024  # of a body that is parsed to guess whether it is JSON
TEXT_TYPES = ("text/", "application/json", "application/jsonlines", "application/xml")


@dataclass(slots=True)
class InvocationFacts:
    """The metadata of one answer."""

    status: int = 0
    ms: float = 0.0
    first_byte_ms: float | None = None
    request_id: str = ""
    content_type: str = ""
    variant: str = ""
    num_bytes: int = 0
    error: str | None = None
    body: bytes = field(default=b"", repr=False)

    def text(self) -> str:
        """The facts on one line."""
        first = self.first_byte_ms
        parts = [
            str(self.status),
            f"{self.ms:.1f} ms",
            "" if first is None else f"first byte after {first:.1f} ms",
            self.content_type,
            f"{self.num_bytes} B",
            f"request {self.request_id}",
        ]
        return printable(f"[{', '.join(filter(None, parts))}]")


def invoke(  # noqa: PLR0913 - a command's options
    name: Annotated[
        str,
        typer.Argument(
            help="Endpoint, component, or COMPONENT:ADAPTER.", autocompletion=names.served
        ),
    ],
    file: Annotated[
        str, typer.Argument(help="File to send as the body. Use - for standard input.")
    ],
    content_type: Annotated[
        str | None,
        typer.Option(
            help="Content type of the body. Default: guessed from the file.", show_default=False
        ),
    ] = None,
    accept: Annotated[
        str | None, typer.Option(help="Content type to ask for in the answer.", show_default=False)
    ] = None,
    component: Annotated[
        str | None,
        typer.Option(
            help="Component of the endpoint to invoke.",
            show_default=False,
            autocompletion=names.components,
        ),
    ] = None,
    adapter: Annotated[
        str | None, typer.Option(help="Adapter of the component to invoke.", show_default=False)
    ] = None,
    target_model: Annotated[
        str | None,
        typer.Option(help="Model of a multi-model endpoint to invoke.", show_default=False),
    ] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Print the answer while it is streamed.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a file to a model, and write the answer to standard output.

    Everything else goes to standard error. With --json standard output has an object with status,
    ms, request_id, content_type, and body (body_base64 if the answer is not text).

    Exit code 1 if there is no such model, or if it answers with an error, whose text is printed.

    Example: hostelry invoke wine rows.csv --accept application/json

    Example: echo '{"inputs": "hi"}' | hostelry invoke llama - --adapter pirate --stream
    """
    at = home_at(home)
    config, credentials = load_home(at)
    body = read_body(file, config.max_body_bytes)
    limit_s = (config.stream_timeout_s if stream else config.invoke_timeout_s) + GRACE_S
    runtime = aws_client("sagemaker-runtime", config, credentials, read_timeout_s=limit_s)
    kind = content_type or guess_content_type(None if file == STDIN else file, body)
    chosen = partial(invoked_model, name=name, component=component, adapter=adapter)
    model = find_with_fallback(at, config, credentials, chosen)
    with api_errors(config):
        request = {
            "EndpointName": model.endpoint,
            "Body": add_adapter(body, model.adapter),
            "ContentType": kind,
            **({"Accept": accept} if accept else {}),
            **({"InferenceComponentName": model.component} if model.component else {}),
            **({"TargetModel": target_model} if target_model else {}),
        }
        operation = "invoke_endpoint_with_response_stream" if stream else "invoke_endpoint"
        facts = call_model(getattr(runtime, operation), request, AnswerSink(keeps=as_json))
    report(facts, as_json=as_json)


def read_body(file: str, most_bytes: int) -> bytes:
    """Read the body. Raises TerminalError if it is unreadable, or above the gateway's limit."""
    try:
        if file == STDIN:
            body = sys.stdin.buffer.read(most_bytes + 1)
        else:
            with Path(file).open("rb") as opened:
                body = opened.read(most_bytes + 1)
    except OSError as error:
        raise TerminalError(f"{file} cannot be read: {error.strerror}") from None
    if len(body) > most_bytes:
        where = "standard input" if file == STDIN else file
        raise TerminalError(
            f"{where} has more than the {most_bytes} bytes that the gateway takes; "
            "an asynchronous endpoint takes larger ones from the object store"
        )
    return body


def invoked_model(
    sagemaker: Any, name: str, component: str | None, adapter: str | None
) -> NamedModel:
    """The model that NAME and the options choose. Raises TerminalError if they contradict."""
    if component is not None:
        endpoint = find_named(sagemaker, name, NameKind.ENDPOINT)
        chosen = f"component/{component}:{adapter}" if adapter else f"component/{component}"
        model = find_named(sagemaker, chosen)
        if model.endpoint != endpoint.endpoint:
            raise TerminalError(
                f"component {component} is on endpoint {model.endpoint}, not on {endpoint.endpoint}"
            )
        return model
    if adapter is None:
        return called_model(sagemaker, name)
    if ":" in name:
        raise TerminalError(f"{name} names an adapter, and --adapter {adapter} another: give one")
    return find_named(sagemaker, f"{name}:{adapter}")


def add_adapter(body: bytes, adapter: str | None) -> bytes:
    """Add `adapter`, if any, to the body. Raises TerminalError if the body is not JSON."""
    if adapter is None:
        return body
    try:
        given = decode(body, dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise TerminalError(
            f"adapter {adapter} is inside the archive, and the body's member `adapters` chooses it:"
            " give a body that is a JSON object"
        ) from None
    if given.get("adapters", adapter) not in (adapter, [adapter]):
        raise TerminalError(f"the body has adapters {given['adapters']!r}, not {adapter}")
    return msgspec.json.encode({**given, "adapters": adapter})


class AnswerSink(msgspec.Struct):
    """The destination of an answer's bytes: standard output as they are, or memory.

    A terminal gets neither control characters nor bytes that are not text.
    """

    keeps: bool

    def take(self, facts: InvocationFacts, parts: Iterator[bytes]) -> None:
        """Pass on all parts, and count them in `facts`."""
        on_terminal = sys.stdout.isatty()
        kept: list[bytes] = []
        for part in parts:
            facts.num_bytes += len(part)
            if self.keeps:
                kept.append(part)
            elif not on_terminal:
                sys.stdout.buffer.write(part)
                sys.stdout.buffer.flush()
            elif is_text(facts.content_type or "text/plain"):
                sys.stdout.write(printable(part.decode("utf-8", "replace")))
                sys.stdout.flush()
        facts.body = b"".join(kept)
        if on_terminal and not self.keeps:
            sys.stdout.write("\n")


def call_model(call: Any, request: dict[str, Any], sink: AnswerSink) -> InvocationFacts:
    """Make one call of the runtime API. `sink` gets the answer, and the facts are returned."""
    from botocore.exceptions import ClientError, EventStreamError

    facts, began_s = InvocationFacts(), monotonic_s()
    try:
        answer = call(**request)
        head = answer["ResponseMetadata"]
        facts.status, facts.request_id = head["HTTPStatusCode"], head.get("RequestId", "")
        facts.content_type = answer.get("ContentType", "")
        facts.variant = answer.get("InvokedProductionVariant", "")
        body = answer["Body"]

        def timed() -> Iterator[bytes]:
            for part in _parts(body):
                if facts.first_byte_ms is None:
                    facts.first_byte_ms = (monotonic_s() - began_s) * 1000
                yield part

        sink.take(facts, timed())
    except EventStreamError as error:
        facts.error = f"the answer broke off: {model_error_text(error)}"
    except ClientError as error:
        _note_refusal(facts, error, request.get("EndpointName", ""))
    facts.ms = (monotonic_s() - began_s) * 1000
    return facts


def _parts(body: Any) -> Iterator[bytes]:
    """The bytes of an answer, streamed or not."""
    if hasattr(body, "iter_chunks"):
        yield from body.iter_chunks(CHUNK_BYTES)
        return
    for event in body:
        if "PayloadPart" in event:
            yield event["PayloadPart"]["Bytes"]


def _note_refusal(facts: InvocationFacts, error: "ClientError", endpoint: str) -> None:
    from hostelry.dataplane.balancing.destination import NO_COMPONENT_NAMED

    response: dict[str, Any] = dict(error.response)
    head = response.get("ResponseMetadata", {})
    facts.request_id = head.get("RequestId", "")
    facts.status = response.get("OriginalStatusCode") or head.get("HTTPStatusCode", 0)
    facts.error = model_error_text(error)
    if facts.error == NO_COMPONENT_NAMED:
        facts.error = (
            f"endpoint {endpoint} hosts inference components, and has none: create one on it"
            " (CreateInferenceComponent), or name another model. `hostelry ls` lists them"
        )


def report(facts: InvocationFacts, *, as_json: bool) -> None:
    """Print the facts. Raises TerminalError if the answer is an error."""
    if as_json:
        print_json(facts_document(facts))
        if facts.error is not None:
            raise typer.Exit(1)
        return
    sys.stdout.flush()
    typer.echo(facts.text(), err=True)
    if facts.error is not None:
        raise TerminalError(facts.error)


def facts_document(facts: InvocationFacts) -> dict[str, Any]:
    """The facts and the answer for JSON output."""
    document: dict[str, Any] = {
        "status": facts.status,
        "ms": round(facts.ms, 3),
        "first_byte_ms": None if facts.first_byte_ms is None else round(facts.first_byte_ms, 3),
        "request_id": facts.request_id,
        "content_type": facts.content_type,
        "variant": facts.variant,
        "bytes": facts.num_bytes,
        "error": facts.error,
    }
    try:
        return {**document, "body": facts.body.decode()}
    except UnicodeDecodeError:
        return {**document, "body_base64": base64.b64encode(facts.body).decode()}


def guess_content_type(name: str | None, body: bytes) -> str:
    """The content type of `body`, guessed from the file's name. None is standard input."""
    if name is not None:
        suffix = PurePath(name).suffix.lower()
        known = BY_SUFFIX.get(suffix) or mimetypes.guess_type(f"x{suffix}", strict=True)[0]
        if known is not None:
            return known
    for beginning, kind in BY_BEGINNING:
        if body.startswith(beginning):
            return kind
    return _guess_text_type(body)


def is_text(content_type: str) -> bool:
    """Whether a body of that type is readable text."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind.startswith(TEXT_TYPES) or kind.endswith(("+json", "+xml"))


def _guess_text_type(body: bytes) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return BYTES
    if "\0" in text:
        return BYTES
    if text.lstrip()[:1] in ("{", "[") and len(body) <= MAX_SNIFFED_BYTES:
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return "text/plain"
        return "application/json"
    return "text/plain"
