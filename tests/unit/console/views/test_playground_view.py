"""The playground's targets, and which requests of a page are sent."""

from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.console.views.playground import (
    PlaygroundRefusedError,
    chat_asked,
    invocation_asked,
    targets,
)

Json = dict[str, Any]
MESSAGES = [{"role": "user", "content": "hi"}]


def chat(**changes: Any) -> Json:
    return {"endpoint": "ep", "request": {"model": "m", "messages": MESSAGES, **changes}}


def test_targets_are_components_endpoints_and_adapters_of_archives() -> None:
    component = {"name": "base", "base": None, "status": "InService", "ready_copies": 1}
    adapter = {**component, "name": "fr", "base": "base", "ready_copies": 0}
    plain = {**component, "name": "trees"}
    endpoints = [
        {"name": "ep", "takes_components": True, "copies": [], "components": [
            component, adapter, plain]},
        {"name": "many", "takes_components": False, "components": [], "copies": [
            {"phase": "ready", "models_address": "http://a"}, {"phase": "starting"}]},
    ]  # fmt: skip
    cached = {"x": {"alias": "fr"}, "es": {"alias": "es"}}
    caches: dict[str, Json] = {
        "c-1": {"component": "base", "cache": {"adapters": cached}},
        "c-2": {"component": "base", "fault": "silent"},
        "c-3": {"component": None, "models": {}},
    }
    found = targets(endpoints, {"base", "fr"}, caches)
    assert list(found["chats"]) == ["base", "fr", "base:es"]
    assert found["chats"]["fr"]["base"] == found["chats"]["base:es"]["base"] == "base"
    assert list(found["invocations"]) == ["ep/base", "ep/fr", "ep/trees", "many"]
    assert found["invocations"]["many"] == {"endpoint": "many", "ready": 1, "many": True}


def test_a_chat_is_always_streamed_and_otherwise_as_the_page_has_it() -> None:
    asked = chat_asked(chat(stream=False, temperature=0, top_k=3))
    assert asked.endpoint == "ep"
    assert asked.request == {
        "model": "m",
        "messages": MESSAGES,
        "stream": True,
        "temperature": 0,
        "top_k": 3,
        "stream_options": {"include_usage": True},
    }


@cases(
    "body, words",
    case("nothing", {}, "members endpoint"),
    case("no object", {"endpoint": "ep", "request": []}, "members endpoint"),
    case("no model", chat(model=""), "model is missing"),
    case("a model that is no text", chat(model=3), "model is missing"),
    case("no message", chat(messages=[]), "1 to 500 messages"),
    case("too many messages", chat(messages=MESSAGES * 501), "1 to 500 messages"),
    case("several answers", chat(n=2), "n must be 1"),
)
def test_chats_that_are_refused(body: Json, words: str) -> None:
    with pytest.raises(PlaygroundRefusedError, match=words):
        chat_asked(body)


def test_an_invocation_has_the_parameters_that_are_not_empty() -> None:
    given = {"EndpointName": "ep", "InferenceComponentName": "", "ContentType": "text/csv"}
    asked = invocation_asked({"parameters": given, "body": "1,2"})
    assert asked.parameters == {"EndpointName": "ep", "ContentType": "text/csv"}
    assert asked.body == "1,2"


@cases(
    "body, words",
    case("no body", {"parameters": {}}, "parameters .object. and body"),
    case("no endpoint", {"parameters": {}, "body": ""}, "EndpointName is missing"),
    case(
        "another parameter",
        {"parameters": {"EndpointName": "e", "Host": "x"}, "body": ""},
        "unknown Host",
    ),
    case(
        "a header within a header",
        {"parameters": {"EndpointName": "e", "Accept": "a\r\nHost: x"}, "body": ""},
        "Accept must be",
    ),
    case(
        "a name that is too long",
        {"parameters": {"EndpointName": "e" * 257}, "body": ""},
        "EndpointName must be",
    ),
    case("a name that is no text", {"parameters": {"EndpointName": 1}, "body": ""}, "must be"),
)
def test_invocations_that_are_refused(body: Json, words: str) -> None:
    with pytest.raises(PlaygroundRefusedError, match=words):
        invocation_asked(body)
