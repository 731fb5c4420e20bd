"""The OpenAI routes through a real gateway process, with OpenAI's own client."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from benchmarks.echo_model import BREAK_OFF
from tests.cases import case, cases
from tests.integration.gateway_rig import (
    EchoProcess,
    GatewayRig,
    component,
    components_endpoint,
    dead_copy,
    running_gateway,
    snapshot_of,
)

pytestmark = pytest.mark.integration
MESSAGES: Any = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayRig]:
    copy = EchoProcess("llm")
    copies = (copy.route,)
    endpoint = components_endpoint(
        "llms",
        component("base", copies),
        component("pirate", copies, adapter_id="pirate-3"),
        component("asleep", ()),
        component("dead", (dead_copy(),)),
    )
    root: Path = tmp_path_factory.mktemp("gateway")
    with running_gateway(root, snapshot_of("1", endpoint)) as running:
        yield running
    copy.kill()


@pytest.fixture
def client(rig: GatewayRig) -> Iterator[openai.OpenAI]:
    key, url = rig.credentials.openai_api_key, f"{rig.config.gateway_url}/v1"
    with openai.OpenAI(api_key=key, base_url=url, max_retries=0) as made:
        yield made


ADAPTER_HEADERS = [
    pytest.param("base", None, None, id="a base component"),
    pytest.param("pirate", "pirate-3", "pirate", id="an adapter component"),
    pytest.param("base:spanish", "spanish", "spanish", id="an adapter inside the archive"),
]


@pytest.mark.parametrize(("model", "identifier", "alias"), ADAPTER_HEADERS)
def test_chat_names_the_model_and_its_adapter_to_the_copy(
    client: openai.OpenAI, model: str, identifier: str | None, alias: str | None
) -> None:
    answer = client.chat.completions.create(model=model, messages=MESSAGES)
    seen = json.loads(answer.choices[0].message.content or "")
    assert answer.model == seen["x-hostelry-model"] == model
    assert seen.get("x-amzn-sagemaker-adapter-identifier") == identifier
    assert seen.get("x-amzn-sagemaker-adapter-alias") == alias


@pytest.mark.parametrize(("model", "identifier", "alias"), ADAPTER_HEADERS)
def test_streamed_chat_passes_through(
    client: openai.OpenAI, model: str, identifier: str | None, alias: str | None
) -> None:
    parts = list(client.chat.completions.create(model=model, messages=MESSAGES, stream=True))
    assert len(parts) == 2
    text = "".join(part.choices[0].delta.content or "" for part in parts)
    assert json.loads(text).get("x-amzn-sagemaker-adapter-identifier") == identifier


def test_completions(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="base", prompt="hello")
    parts = client.completions.create(model="base", prompt="hello", stream=True)
    texts = [whole.choices[0].text, "".join(part.choices[0].text for part in parts)]
    first, second = (json.loads(text) for text in texts)
    assert first.pop("x-request-id") != second.pop("x-request-id")
    assert first == second == {"x-hostelry-model": "base"}


def test_a_client_cannot_choose_the_adapter_behind_the_models_back(client: openai.OpenAI) -> None:
    smuggled = {"X-Amzn-SageMaker-Adapter-Identifier": "stolen", "X-Hostelry-Model": "other"}
    smuggled["X-Request-Id"] = "mine"
    answer = client.completions.create(model="base", prompt="hello", extra_headers=smuggled)
    assert json.loads(answer.choices[0].text) == {
        "x-hostelry-model": "base",
        "x-request-id": answer._request_id,
    }


def test_a_stream_that_breaks_off_ends_with_an_error(client: openai.OpenAI) -> None:
    parts = client.completions.create(model="base", prompt=BREAK_OFF, stream=True)
    assert next(parts).choices[0].text
    with pytest.raises(openai.APIError, match="broke off"):
        list(parts)
    parts.close()


def test_models_are_listed_and_found(client: openai.OpenAI) -> None:
    assert [it.id for it in client.models.list()] == ["asleep", "base", "dead", "pirate"]
    assert client.models.retrieve("pirate").id == "pirate"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")


def test_a_wrong_key_is_refused(rig: GatewayRig) -> None:
    url = f"{rig.config.gateway_url}/v1"
    with openai.OpenAI(api_key="sk-wrong", base_url=url, max_retries=0) as unrelated:
        with pytest.raises(openai.AuthenticationError) as failure:
            unrelated.chat.completions.create(model="base", messages=MESSAGES)
        assert failure.value.code == "invalid_api_key"


@cases(
    "model, error, code",
    case("an unknown model", "gpt-4", openai.NotFoundError, "model_not_found"),
    case("no such adapter", "pirate:x", openai.NotFoundError, "model_not_found"),
    case("no copy", "asleep", openai.InternalServerError, "no_capacity"),
    case("no reachable copy", "dead", openai.InternalServerError, "no_capacity"),
)  # fmt: skip
def test_models_that_cannot_answer(
    client: openai.OpenAI, model: str, error: type[openai.APIStatusError], code: str
) -> None:
    with pytest.raises(error) as failure:
        client.chat.completions.create(model=model, messages=MESSAGES)
    assert failure.value.code == code


@cases(
    "line, body, status",
    case("a body that is no JSON", b"POST /v1/chat/completions", b"{", 400),
    case("a body without a model", b"POST /v1/chat/completions", b"{}", 400),
    case("the wrong method", b"GET /v1/chat/completions", b"", 405),
    case("a method that is not offered", b"DELETE /v1/models/base", b"", 405),
    case("a route that is not offered", b"POST /v1/audio/speech", b"{}", 404),
)
def test_requests_that_make_no_sense(
    rig: GatewayRig, line: bytes, body: bytes, status: int
) -> None:
    head = b"%b HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n" % (
        line,
        len(body),
    )
    key = b"Authorization: Bearer %b\r\n\r\n" % rig.credentials.openai_api_key.encode()
    answer = rig.ask(head + key + body)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b'{"error":{"message":' in answer
