"""Streamed answers of LLMs, from bytes to text."""

import json
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.cli.calls import llm_calls
from hostelry.cli.calls.llm_calls import (
    AnswerPiece,
    AnswerReader,
    AnswerTimes,
    ModelAnswerError,
    RoutedNames,
    error_text,
    find_with_fallback,
)
from hostelry.cli.named import (
    NamedModel,
    NameKind,
    NoControlAnswerError,
    UnknownModelNameError,
    api_errors,
    called_model,
)
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import (
    ComponentRoute,
    EndpointRoute,
    FailedComponent,
    RouteSnapshot,
    VariantRoute,
)
from hostelry.domain.scope import Scope
from hostelry.home.home import Home, UpConfig, new_credentials

USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 7}}\n\n'
DONE = b"data: [DONE]\n\n"
SCOPE = Scope("111122223333", "us-east-1")
WINE = VariantRoute(name="v", weight=1.0, routing=RoutingStrategy.RANDOM, copies=())
COMPONENT, ADAPTER = NameKind.COMPONENT, NameKind.ADAPTER


def event(**choice: object) -> bytes:
    return b"data: %b\n\n" % json.dumps({"choices": [choice]}).encode()


def read_whole(stream: bytes) -> list[AnswerPiece]:
    reader = AnswerReader()
    return [*reader.feed(stream), *reader.end()]


CHAT = event(delta={"role": "assistant", "content": ""}) + event(delta={"content": "hé"})


@cases(
    "stream, text",
    case("chat", CHAT + USAGE + DONE, "hé"),
    case("completions", event(text="a") + event(text="b") + DONE, "ab"),
    case("lines of JSON", b'{"choices": [{"delta": {"content": "x"}}]}\n', "x"),
    case("a whole answer", b'{"choices": [{"message": {"content": "x"}}]}', "x"),
    case("other fields of events", b": ping\nevent: message\nid: 1\n" + CHAT, "hé"),
    case("lines that end as in HTTP", CHAT.replace(b"\n", b"\r\n"), "hé"),
    case("nulls", event(delta=None) + event(delta={"content": None}) + CHAT, "hé"),
    case("choices that are none", b'data: {"choices": [7, {}]}\n' + CHAT, "hé"),
)
def test_an_answer_is_the_same_however_it_is_cut(stream: bytes, text: str) -> None:
    for size in (1, 7, len(stream)):
        reader = AnswerReader()
        parts = [stream[at : at + size] for at in range(0, len(stream), size)]
        pieces = [piece for part in parts for piece in reader.feed(part)] + reader.end()
        assert "".join(piece.text for piece in pieces) == text
        assert reader.num_tokens == (7 if USAGE in stream else None)


def test_reasoning_is_marked() -> None:
    pieces = AnswerReader().feed(
        event(delta={"reasoning_content": "hm"}) + event(delta={"content": "so"})
    )
    assert pieces == [AnswerPiece("hm", is_reasoning=True), AnswerPiece("so")]


@cases(
    "stream, text",
    case("error", b'data: {"error": {"message": "out of\\n memory"}}\n', "out of"),
    case("an LLM server's error", b'{"error_msg": "broken"}\n', "broken"),
    case("no answer", b"", "empty"),
    case("a text", b"hello \x1b[31m\n", "not an LLM's; it begins: hello [31m"),
    case("another model's JSON", b'{"a": 1}\n', "no `choices`"),
    case("deep nesting", b"[" * 100_000 + b"\n", "not an LLM's"),
    case("no text", b"\xff\xfe\n", "not an LLM's"),
)
def test_an_answer_that_is_none_is_refused(stream: bytes, text: str) -> None:
    with pytest.raises(ModelAnswerError, match=text.replace("[", r"\[")):
        read_whole(stream)


def test_a_line_without_an_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm_calls, "MAX_LINE_BYTES", 100)
    with pytest.raises(ModelAnswerError, match="more than 100 bytes"):
        AnswerReader().feed(b"x" * 101)


@cases(
    "body, text",
    case("OpenAI's", {"error": {"message": "m", "code": "c"}}, "m"),
    case("a text", {"error": "m"}, "m"),
    case("AWS's, its first line", {"message": "m\nn"}, "m"),
    case("without a message", {"error": {"message": None}}, "{'message': None}"),
    case("no object", "plain\x07", "plain"),
)
def test_error_texts(body: object, text: str) -> None:
    assert text in error_text(body)


@cases(
    "times, text",
    case("several tokens", AnswerTimes(num_tokens=11, first_s=0.5, total_s=1.0),
        "11 tokens, first after 500 ms, 20.0 tokens/s"),
    case("one token has no rate", AnswerTimes(num_tokens=1, first_s=0.1, total_s=0.1),
        "1 token, first after 100 ms"),
    case("no token", AnswerTimes(num_tokens=0, first_s=None, total_s=0.25),
        "no text, after 0.25 s"),
)  # fmt: skip
def test_times(times: AnswerTimes, text: str) -> None:
    assert times.text() == text


def component(name: str, base: str | None = None) -> ComponentRoute:
    return ComponentRoute(
        name=name,
        variant_name="v",
        routing=RoutingStrategy.RANDOM,
        copies=(),
        base_name=base,
        adapter_id=base and name,
    )


NAMES = RoutedNames(
    RouteSnapshot(
        version="1",
        endpoints=(
            EndpointRoute(scope=SCOPE, name="wine", takes_components=False, variants=(WINE,)),
            EndpointRoute(
                scope=SCOPE, name="chat", takes_components=True, components=(component("llama"),)
            ),
            EndpointRoute(
                scope=SCOPE,
                name="shop",
                takes_components=True,
                components=(component("base"), component("es", "base")),
                failed=(FailedComponent(name="broken", reason="it ended"),),
            ),
        ),
    )
)


@cases(
    "name, found",
    case("a model", "wine", NamedModel(kind=NameKind.ENDPOINT, endpoint="wine")),
    case(
        "the only component of an endpoint",
        "chat",
        NamedModel(kind=COMPONENT, endpoint="chat", component="llama"),
    ),
    case(
        "an adapter that is a component",
        "es",
        NamedModel(kind=ADAPTER, endpoint="shop", component="es", base="base"),
    ),
    case(
        "an adapter inside an archive",
        "base:fr",
        NamedModel(kind=ADAPTER, endpoint="shop", component="base", adapter="fr"),
    ),
    case(
        "a failed component, whose calls get the reason",
        "broken",
        NamedModel(kind=COMPONENT, endpoint="shop", component="broken"),
    ),
)
def test_a_name_is_found_in_the_routes(name: str, found: NamedModel) -> None:
    assert called_model(NAMES, name) == found


def test_a_name_that_is_not_in_the_routes_is_refused() -> None:
    with pytest.raises(UnknownModelNameError, match=r"there is no .* wines: did you mean wine"):
        called_model(NAMES, "wines")


@cases(
    "code, error",
    case("control is away", "ServiceUnavailable", NoControlAnswerError),
    case("a refusal", "ValidationException", TerminalError),
)
def test_without_routes_the_cause_is_raised(
    code: str, error: type[TerminalError], tmp_path: Path
) -> None:
    def fails(_: object) -> None:
        refused = {"Error": {"Code": code, "Message": "not now"}}
        raise ClientError(refused, "ListEndpoints")

    config, credentials = UpConfig(control_port=1), new_credentials("111122223333", "us-east-1")
    with pytest.raises(TerminalError, match="ListEndpoints was refused: not now") as raised:
        find_with_fallback(Home(tmp_path), config, credentials, fails)
    assert type(raised.value) is error
    with pytest.raises(error), api_errors(config):
        fails(None)
