"""`hostelry invoke`: bodies, content types, answers and errors."""

import io
import json
import sys
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.cli.calls.invoke import (
    AnswerSink,
    InvocationFacts,
    add_adapter,
    call_model,
    facts_document,
    guess_content_type,
    is_text,
    read_body,
)
from hostelry.cli.calls.llm_calls import model_error_text
from hostelry.dataplane.balancing.destination import NO_COMPONENT_NAMED

PNG = b"\x89PNG\r\n\x1a\n\x00"


@cases(
    "name, body, kind",
    case("a CSV file, whatever its case", "a/rows.CSV", b"1,2", "text/csv"),
    case("a name goes before the body", "x.json", b"no JSON", "application/json"),
    case("lines of JSON", "x.jsonl", b"", "application/jsonlines"),
    case("a picture by its name", "x.png", b"", "image/png"),
    case("a picture by its bytes", None, PNG, "image/png"),
    case("JSON by its bytes", None, b' {"a": 1}\n', "application/json"),
    case("a name without an ending", "noname", b"[1, 2]", "application/json"),
    case("text that begins like JSON", None, b"{ not json", "text/plain"),
    case("brackets without end", None, b"[" * 200_000, "text/plain"),
    case("bytes", None, b"\x00\x01", "application/octet-stream"),
    case("bytes that are no UTF-8", None, b"\xff\xfe", "application/octet-stream"),
    case("nothing", None, b"", "text/plain"),
)
def test_content_types(name: str | None, body: bytes, kind: str) -> None:
    assert guess_content_type(name, body) == kind


@cases(
    "kind, is_readable",
    case("text", "text/csv; charset=utf-8", True),
    case("a kind of JSON", "application/problem+json", True),
    case("a picture", "image/png", False),
)
def test_text_differs_from_bytes(kind: str, is_readable: bool) -> None:
    assert is_text(kind) is is_readable


def test_a_packed_adapter_is_chosen_by_the_body() -> None:
    assert json.loads(add_adapter(b'{"inputs": "x"}', "es")) == {"inputs": "x", "adapters": "es"}
    assert add_adapter(b"\x00", None) == b"\x00", "other bodies are not looked at"


@cases(
    "body, text",
    case("no JSON", b"1,2", "give a body that is a JSON object"),
    case("no object", b"[1]", "give a body that is a JSON object"),
    case("another adapter", b'{"adapters": "fr"}', "has adapters 'fr', not es"),
)
def test_a_body_that_cannot_choose_the_adapter_is_refused(body: bytes, text: str) -> None:
    with pytest.raises(TerminalError, match=text):
        add_adapter(body, "es")


@cases(
    "file, text",
    case("a missing file", "missing", "missing cannot be read: No such file"),
    case("a folder", ".", "cannot be read: Is a directory"),
    case("an endless file", "/dev/zero", "has more than the 100 bytes"),
)
def test_bodies_that_are_refused(file: str, text: str) -> None:
    with pytest.raises(TerminalError, match=text):
        read_body(file, 100)


class _Body:
    """The body of an answer that is given whole."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def iter_chunks(self, size: int) -> list[bytes]:
        return [self._content[:1], self._content[1:]]


HEAD = {"HTTPStatusCode": 200, "RequestId": "r-1"}


@cases(
    "body",
    case("whole", _Body(b"\x00\xff")),
    case(
        "streamed", [{"PayloadPart": {"Bytes": b"\x00"}}, {}, {"PayloadPart": {"Bytes": b"\xff"}}]
    ),
)
def test_bytes_reach_standard_output_unchanged(body: Any, capfdbinary: Any) -> None:
    answer = {"ResponseMetadata": HEAD, "ContentType": "image/x", "Body": body}
    facts = call_model(lambda **_: answer, {}, AnswerSink(keeps=False))
    assert capfdbinary.readouterr().out == b"\x00\xff"
    assert (facts.status, facts.request_id, facts.num_bytes, facts.error) == (200, "r-1", 2, None)
    assert facts.text().startswith("[200, ")


def test_kept_bytes_are_a_document() -> None:
    answer = {"ResponseMetadata": HEAD, "Body": _Body(b"\x00\xff")}
    facts = call_model(lambda **_: answer, {}, AnswerSink(keeps=True))
    assert facts_document(facts)["body_base64"] == "AP8="
    assert facts_document(InvocationFacts(body=b"hi"))["body"] == "hi"


class _Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@cases(
    "kind, shown",
    case("text without control characters", "text/plain", b"a[2J\n"),
    case("no bytes that are no text", "image/png", b"\n"),
)
def test_a_terminal_gets(kind: str, shown: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", terminal)
    AnswerSink(keeps=False).take(InvocationFacts(content_type=kind), iter([b"a\x1b[2J"]))
    terminal.flush()
    written = terminal.buffer
    assert isinstance(written, io.BytesIO)
    assert written.getvalue() == shown


def refusal(**members: Any) -> ClientError:
    given = {"Error": {"Code": "C", "Message": "m\nn"}, **members}
    return ClientError(given, "InvokeEndpoint")


@cases(
    "error, text",
    case("the gateway's refusal", refusal(), "m n"),
    case(
        "the container's text",
        refusal(OriginalStatusCode=500, OriginalMessage="line 1\nline 2\x1b[0m\n"),
        "the model answered 500: line 1\nline 2[0m",
    ),
    case(
        "the message within its JSON",
        refusal(OriginalStatusCode=400, OriginalMessage='{"error": {"message": "bad"}}'),
        "the model answered 400: bad",
    ),
    case(
        "no answer",
        refusal(OriginalStatusCode=0, OriginalMessage="it died"),
        "the model gave no answer: it died",
    ),
)
def test_errors_have_the_containers_text(error: ClientError, text: str) -> None:
    assert model_error_text(error) == text


def test_an_endpoint_without_components_is_named_instead_of_a_header() -> None:
    def call(**_: Any) -> Any:
        raise refusal(Error={"Code": "ValidationError", "Message": NO_COMPONENT_NAMED})

    facts = call_model(call, {"EndpointName": "shop"}, AnswerSink(keeps=True))
    assert facts.error is not None
    assert facts.error.startswith("endpoint shop hosts inference components, and has none: create")


def test_an_error_has_its_facts() -> None:
    def call(**_: Any) -> Any:
        raise refusal(OriginalStatusCode=500, OriginalMessage="x", ResponseMetadata=HEAD)

    facts = call_model(call, {}, AnswerSink(keeps=True))
    assert (facts.status, facts.request_id) == (500, "r-1")
    assert facts.error == "the model answered 500: x"
