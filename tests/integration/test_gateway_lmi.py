"""The gateway with the real LLM server: a missing adapter is never replaced by the base."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import openai
import pytest
from botocore.exceptions import ClientError
from tests.cases import case, cases
from tests.integration.gateway_rig import (
    GatewayRig,
    component,
    components_endpoint,
    running_gateway,
    snapshot_of,
)
from tests.integration.lmi_rig import byte_model, serving

from hostelry.domain.routes import CopyRoute

pytestmark = pytest.mark.integration
ENDPOINT = "llms"
MESSAGES: Any = [{"role": "user", "content": "hello"}]
GREEDY = {"max_new_tokens": 8, "do_sample": False, "ignore_eos_token": True}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayRig]:
    """A base with es and fr in its archive, and an adapter component of each kind on it.

    The routes claim for a moment that the copy has ``ghost``, but it does not.
    """
    root = tmp_path_factory.mktemp("lmi")
    log = root / "log"
    with serving(byte_model(root), log, OPTION_ENABLE_LORA="true") as server:
        with server.client() as client:
            added = client.post(
                "/adapters", params={"name": "late-1", "src": str(root / "outside")}
            )
            assert added.status_code == 200, added.text
        copies = (CopyRoute(id="c-1", address=server.url),)
        endpoint = components_endpoint(
            ENDPOINT,
            component("base", copies),
            component("late", copies, adapter_id="late-1"),
            component("ghost", copies, adapter_id="ghost-1"),
        )
        with running_gateway(root, snapshot_of("1", endpoint)) as running:
            yield running


@pytest.fixture
def client(rig: GatewayRig) -> Iterator[openai.OpenAI]:
    key, url = rig.credentials.openai_api_key, f"{rig.config.gateway_url}/v1"
    with openai.OpenAI(api_key=key, base_url=url, max_retries=0) as made:
        yield made


def invoke(rig: GatewayRig, name: str, body: dict[str, Any], *, stream: bool = False) -> bytes:
    """The component's answer. Raises ClientError."""
    if stream:
        return b"".join(streamed(rig, name, body))
    whole: bytes = rig.client().invoke_endpoint(**asked(name, body))["Body"].read()
    return whole


def streamed(rig: GatewayRig, name: str, body: dict[str, Any]) -> list[bytes]:
    """The parts of the component's streamed answer. Raises ClientError."""
    answer = rig.client().invoke_endpoint_with_response_stream(**asked(name, body))
    return [event["PayloadPart"]["Bytes"] for event in answer["Body"]]


def asked(name: str, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "EndpointName": ENDPOINT,
        "InferenceComponentName": name,
        "ContentType": "application/json",
        "Body": json.dumps(body),
    }


@cases(
    "body, parts",
    case("a token a part", {"inputs": "a", "parameters": GREEDY}, 8),
    case("a chat's role, its tokens, its usage",
        {"messages": MESSAGES, "max_tokens": 3, "ignore_eos": True, "stream": True,
         "stream_options": {"include_usage": True}}, 1 + 3 + 1),
)  # fmt: skip
def test_each_part_of_a_stream_is_one_json_value(
    rig: GatewayRig, body: dict[str, Any], parts: int
) -> None:
    """Old clients parse a PayloadPart as a whole."""
    found = [json.loads(part) for part in streamed(rig, "base", body)]
    assert 1 < len(found) <= parts


def test_every_way_to_an_adapter_that_is_there(rig: GatewayRig, client: openai.OpenAI) -> None:
    def completed(model: str, **more: Any) -> str:
        answer = client.completions.create(
            model=model, prompt="hello", max_tokens=8, temperature=0, extra_body=more or None
        )
        return answer.choices[0].text

    texts = {name: completed(name) for name in ("base", "base:es", "base:fr", "late")}
    assert len(set(texts.values())) == 4, texts
    assert completed("base", adapters="es") == texts["base:es"]
    assert completed("late", adapters="late") == texts["late"]


def test_responses_through_the_gateway(client: openai.OpenAI) -> None:
    parts = list(client.responses.create(model="base", input="hi", stream=True))
    whole = client.responses.create(model="base", input="hi", max_output_tokens=16)
    assert parts[-1].type in ("response.completed", "response.incomplete")
    assert whole.model == "base"


@pytest.mark.parametrize("model", ["base:nobody", "ghost"])
@pytest.mark.parametrize("stream", [False, True])
def test_openai_clients_are_refused_without_their_adapter(
    client: openai.OpenAI, model: str, stream: bool
) -> None:
    with pytest.raises(openai.NotFoundError, match="is not registered"):
        client.chat.completions.create(model=model, messages=MESSAGES, stream=stream)
    with pytest.raises(openai.NotFoundError, match="is not registered"):
        client.completions.create(model=model, prompt="hello", stream=stream)


@pytest.mark.parametrize("model", ["base", "late", "base:es"])
def test_a_body_that_names_another_adapter_is_an_error(client: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.APIStatusError, match="nobody") as failure:
        client.completions.create(
            model=model, prompt="hello", max_tokens=1, extra_body={"adapters": "nobody"}
        )
    assert failure.value.status_code == (404 if model == "base" else 400)


def test_a_deadline_goes_through_the_gateway_and_retry_after_comes_back(
    client: openai.OpenAI,
) -> None:
    with pytest.raises(openai.InternalServerError) as failure:
        client.completions.create(
            model="base",
            prompt="hello",
            extra_headers={"X-Hostelry-First-Token-Deadline-S": "0.000001"},
        )
    assert failure.value.status_code == 503
    assert failure.value.response.headers["retry-after"] == "1"


@pytest.mark.parametrize("stream", [False, True])
@cases(
    "name, body",
    case("in LMI's schema", "base", {"inputs": "a", "adapters": "nobody"}),
    case("one of two", "base", {"inputs": ["a", "b"], "adapters": ["es", "nobody"]}),
    case("of a completion", "base", {"prompt": "a", "adapters": "nobody"}),
    case("of a chat", "base", {"messages": MESSAGES, "adapters": "nobody"}),
    case("as a chat's model", "base", {"messages": MESSAGES, "model": "nobody"}),
    case("of the component", "ghost", {"inputs": "a"}),
)
def test_an_invocation_is_refused_without_its_adapter(
    rig: GatewayRig, name: str, body: dict[str, Any], stream: bool
) -> None:
    with pytest.raises(ClientError) as failure:
        invoke(
            rig, name, {**body, "parameters": GREEDY} if "inputs" in body else body, stream=stream
        )
    answer = failure.value.response
    assert answer["Error"]["Code"] == "ModelError"
    assert answer["OriginalStatusCode"] == (404 if "model" in body else 424)
    assert name == "ghost" or "nobody" in answer["OriginalMessage"]
    assert b"generated_text" in invoke(rig, "base", {"inputs": "a", "parameters": GREEDY})


def test_fields_outside_the_table_are_named_through_the_gateway(
    rig: GatewayRig, client: openai.OpenAI
) -> None:
    asked: Any = {"model": "base", "prompt": "a", "max_tokens": 1, "extra_body": {"flavour": 1}}
    raw = client.completions.with_raw_response.create(**asked)
    assert raw.headers["x-hostelry-ignored-fields"] == "flavour"
    with pytest.raises(openai.BadRequestError, match="flavour"):
        client.completions.create(**asked, extra_headers={"X-Hostelry-Strict-Fields": "true"})
    body = {"inputs": "a", "parameters": {**GREEDY, "flavour": 1}}
    answer = rig.client().invoke_endpoint(
        EndpointName=ENDPOINT,
        InferenceComponentName="base",
        ContentType="application/json",
        Body=json.dumps(body),
    )
    headers = answer["ResponseMetadata"]["HTTPHeaders"]
    assert headers["x-hostelry-ignored-fields"] == "flavour"


def test_the_gateways_request_id_is_in_the_copys_log(rig: GatewayRig) -> None:
    body = {"inputs": "a", "parameters": {**GREEDY, "never_seen": 1}}
    answer = rig.client().invoke_endpoint(
        EndpointName=ENDPOINT,
        InferenceComponentName="base",
        ContentType="application/json",
        Body=json.dumps(body),
    )
    log = rig.log.with_name("log").read_text()
    (line,) = [each for each in log.splitlines() if "never_seen" in each]
    assert line.endswith(f"requestId={answer['ResponseMetadata']['RequestId']}")


def test_a_session_of_the_llm_server_through_the_gateway(rig: GatewayRig) -> None:
    runtime = rig.client()
    asked: dict[str, Any] = {
        "EndpointName": ENDPOINT,
        "InferenceComponentName": "base",
        "ContentType": "application/json",
    }

    def sent(body: dict[str, Any], session: str) -> Any:
        return runtime.invoke_endpoint(**asked, Body=json.dumps(body), SessionId=session)

    opened = sent({"requestType": "NEW_SESSION"}, "NEW_SESSION")
    session = opened["NewSessionId"].partition(";")[0]
    assert "Expires=" in opened["NewSessionId"]
    inside = sent({"inputs": "a", "parameters": GREEDY}, session)
    assert json.loads(inside["Body"].read())["generated_text"]
    assert sent({"requestType": "CLOSE"}, session)["ClosedSessionId"] == session
    with pytest.raises(ClientError, match=session):
        sent({"inputs": "a"}, session)


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_trace_has_the_tokens_of_the_answer(
    rig: GatewayRig, client: openai.OpenAI, is_stream: bool
) -> None:
    streams: Any = {"stream": True, "stream_options": {"include_usage": True}}
    answer = client.chat.completions.with_raw_response.create(
        model="late", messages=MESSAGES, max_tokens=5, **(streams if is_stream else {})
    )
    found: Any = answer.parse()
    usage = [it for it in found if it.usage][-1].usage if is_stream else found.usage
    url = f"{rig.config.gateway_url}/traces/{answer.headers['x-request-id']}"
    key = {"Authorization": f"Bearer {rig.credentials.openai_api_key}"}
    with urlopen(Request(url, headers=key)) as traced:
        call = json.loads(traced.read())["call"]
    assert call["tokens"] == {
        name: getattr(usage, name)
        for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    }
    assert (call["component"], call["operation"]) == ("late", "/v1/chat/completions")
    (attempt,) = [it for it in call["spans"] if it["name"] == "attempt"]
    assert 0 < attempt["first_byte_ms"] <= attempt["ms"]
