"""Requests that harm: each is answered with its cause, and no neighbour loses a token."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cases import case, cases
from tests.hostile.neighbours import undisturbed
from tests.integration.lmi_rig import Server, byte_model, eventually, is_idle, serving
from tests.unit.containers.lmi.request.test_parse import nested

pytestmark = pytest.mark.integration
TOO_SLOW = "more than"  # seconds or milliseconds, of a structure that this machine is too slow for


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("hostile")
    options = {"OPTION_ENABLE_LORA": "true", "OPTION_MAX_MODEL_LEN": "512"}
    with serving(byte_model(root), root / "log", **options) as server:
        yield server


def inputs(**parameters: Any) -> bytes:
    return json.dumps({"inputs": "hi", "parameters": {"max_new_tokens": 4, **parameters}}).encode()


def text(value: str) -> bytes:
    return inputs(guided_json=value)


@cases(
    "body, reason",
    case("a stop token of 64 bits", inputs(stop_token_ids=[2**63]), "token ids"),
    case("a stop token of no model", inputs(stop_token_ids=[259]), "vocabulary"),
    case("a biased token of no model", inputs(logit_bias={"259": 1}), "vocabulary"),
    case("a penalty of nearly 0", inputs(repetition_penalty=1e-46), "at least 0.01"),
    case("a penalty of no float", inputs(repetition_penalty=10**400), "at most 100"),
    case("a subnormal temperature", inputs(temperature=5e-324), None),
    case("a subnormal top_p", inputs(top_p=5e-324, temperature=100), None),
    case("a top_k of 64 bits", inputs(top_k=2**63 - 1), "at most"),
    case("more tokens than 64 bits", inputs(max_new_tokens=2**64), "at least 1"),
    case("a deep schema", inputs(guided_json=nested(400)), "deeper than 200"),
    case("a deep schema as text", text(json.dumps(nested(400))), "deeper than 192"),
    case("a schema whose default is deep", text('{"default":' + "[" * 900 + "]" * 900 + "}"),
        "deeper than 192"),
    case("a schema of brackets", text("[" * 60_000), "not JSON"),
    case("a body of brackets", b"[" * 100_000, "deeper than 200"),
    case("a pattern of repeats", inputs(guided_regex="(a+)+" * 300), ""),
    case("many repeats", inputs(guided_regex="((a{1,999}){1,999}){1,9}"), TOO_SLOW),
    case("a grammar without an end", inputs(guided_grammar="root ::= root"), ""),
    case("long stops", inputs(stop=["a" * 998 + str(n) for n in range(64)]), None),
    case("as many sequences as may be", inputs(n=128, best_of=128), None),
    case("a prompt of no token", json.dumps({"prompt": [2**64]}).encode(), "token ids"),
    case("a deep message",
        json.dumps({"messages": [{"role": "user", "content": "a", "x": nested(300)}]}).encode(),
        "deeper than 200"),
    case("half a character", b'{"inputs": "\xed\xa0\x80"}', "JSON"),
    case("half a character, escaped", b'{"inputs": "\\ud800"}', "JSON"),
)  # fmt: skip
def test_a_poisoned_request_is_answered_and_harms_no_client(
    server: Server, body: bytes, reason: str | None
) -> None:
    """`reason` None: the request is valid. TOO_SLOW: refused only if the machine is too slow."""
    engine = server.engine_pid()
    headers = {"content-type": "application/json"}
    with server.client() as client:
        answer = undisturbed(
            client, lambda: client.post("/invocations", content=body, headers=headers)
        )
        eventually(lambda: is_idle(client), "every page is free")
    is_served = reason is None or (reason == TOO_SLOW and answer.status_code == 200)
    assert answer.status_code == (200 if is_served else 424), answer.text
    assert is_served or str(reason) in answer.text
    assert server.engine_pid() == engine
