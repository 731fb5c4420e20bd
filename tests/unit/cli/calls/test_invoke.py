"""`hostelry invoke`: bodies, content types, answers and errors."""

import io
import json
import sys
from typing import Any

import pytest
from botocore.exceptions import ClientError

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

PNG = b"\x89PNG\r\n\x1a\n\x00"


@pytest.mark.parametrize(
    ("name", "body", "kind"),
    [
        pytest.param("a/rows.CSV", b"1,2", "text/csv", id="a CSV file, whatever its case"),
        pytest.param("x.json", b"no JSON", "application/json", id="a name goes before the body"),
        pytest.param("x.jsonl", b"", "application/jsonlines", id="lines of JSON"),
        pytest.param("x.png", b"", "image/png", id="a picture by its name"),
        pytest.param(None, PNG, "image/png", id="a picture by its bytes"),
        pytest.param(None, b' {"a": 1}\n', "application/json", id="JSON by its bytes"),
        pytest.param("noname", b"[1, 2]", "application/json", id="a name without an ending"),
        pytest.param(None, b"{ not json", "text/plain", id="text that begins like JSON"),
        pytest.param(None, b"[" * 200_000, "text/plain", id="brackets without end"),
        pytest.param(None, b"\x00\x01", "application/octet-stream", id="bytes"),
        pytest.param(None, b"\xff\xfe", "application/octet-stream", id="bytes that are no UTF-8"),
        pytest.param(None, b"", "text/plain", id="nothing"),
    ],
)
def test_content_types(name: str | None, body: bytes, kind: str) -> None:
    assert guess_content_type(name, body) == kind


@pytest.mark.parametrize(
    ("kind", "is_readable"),
    [
        pytest.param("text/csv; charset=utf-8", True, id="text"),
        pytest.param("application/problem+json", True, id="a kind of JSON"),
        pytest.param("image/png", False, id="a picture"),
    ],
)
def test_text_differs_from_bytes(kind: str, is_readable: bool) -> None:
    assert is_text(kind) is is_readable


def test_a_packed_adapter_is_chosen_by_the_body() -> None:
    assert json.loads(add_adapter(b'{"inputs": "x"}', "es")) == {"inputs": "x", "adapters": "es"}
    assert add_adapter(b"\x00", None) == b"\x00", "other bodies are not looked at"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param(b"1,2", "give a body that is a JSON object", id="no JSON"),
        pytest.param(b"[1]", "give a body that is a JSON object", id="no object"),
        pytest.param(b'{"adapters": "fr"}', "has adapters 'fr', not es", id="another adapter"),
    ],
)
def test_a_body_that_cannot_choose_the_adapter_is_refused(body: bytes, text: str) -> None:
    with pytest.raises(TerminalError, match=text):
        add_adapter(body, "es")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        pytest.param("missing", "missing cannot be read: No such file", id="a missing file"),
        pytest.param(".", "cannot be read: Is a directory", id="a folder"),
        pytest.param("/dev/zero", "has more than the 100 bytes", id="an endless file"),
    ],
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


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(_Body(b"\x00\xff"), id="whole"),
        pytest.param(
            [{"PayloadPart": {"Bytes": b"\x00"}}, {}, {"PayloadPart": {"Bytes": b"\xff"}}],
            id="streamed",
        ),
    ],
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


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        pytest.param("text/plain", b"a[2J\n", id="text without control characters"),
        pytest.param("image/png", b"\n", id="no bytes that are no text"),
    ],
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


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param(refusal(), "m n", id="the gateway's refusal"),
        pytest.param(
            refusal(OriginalStatusCode=500, OriginalMessage="line 1\nline 2\x1b[0m\n"),
            "the model answered 500: line 1\nline 2[0m",
            id="the container's text",
        ),
        pytest.param(
            refusal(OriginalStatusCode=400, OriginalMessage='{"error": {"message": "bad"}}'),
            "the model answered 400: bad",
            id="the message within its JSON",
        ),
        pytest.param(
            refusal(OriginalStatusCode=0, OriginalMessage="it died"),
            "the model gave no answer: it died",
            id="no answer",
        ),
    ],
)
def test_errors_have_the_containers_text(error: ClientError, text: str) -> None:
    assert model_error_text(error) == text


def test_an_error_has_its_facts() -> None:
    def call(**_: Any) -> Any:
        raise refusal(OriginalStatusCode=500, OriginalMessage="x", ResponseMetadata=HEAD)

    facts = call_model(call, {}, AnswerSink(keeps=True))
    assert (facts.status, facts.request_id) == (500, "r-1")
    assert facts.error == "the model answered 500: x"
