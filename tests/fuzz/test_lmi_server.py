"""Bodies to the real LLM server. Another request at the same time must not be affected."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import httpx
import pytest
from tests.fuzz.bodies import CHAT_TEMPLATE, mutated
from tests.fuzz.conftest import Cases
from tests.integration.lmi_rig import Server, byte_model, eventually, is_idle, serving

pytestmark = pytest.mark.integration

TOGETHER = 16
CONTROL = {
    "inputs": ["hello", "hola"],
    "adapters": ["", "fr"],  # no body names fr to a route that removes adapters
    "parameters": {"max_new_tokens": 12, "do_sample": True, "seed": 7, "ignore_eos_token": True},
}
# Texts that no answer or stream has unless an unexpected error ended it.
DEFECTS = ("the step failed", "failed at this answer", "Error: ", "Engine Failure", "not finite")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("fuzz")
    options = {
        "OPTION_ENABLE_LORA": "true",
        "OPTION_MAX_MODEL_LEN": "128",
        "OPTION_CHAT_TEMPLATE": CHAT_TEMPLATE,
        "OPTION_TOOL_CALL_PARSER": "hermes",
        "OPTION_REASONING_PARSER": "qwen3",
    }
    with serving(byte_model(root), root / "log", **options) as server:
        yield server


def test_no_body_is_a_500_a_death_or_a_leaked_page(server: Server, cases: Cases) -> None:
    engine = server.engine_pid()
    with server.client() as client, ThreadPoolExecutor(TOGETHER + 1) as pool:
        expected = control(client)
        source = cases(800)
        while bodies := [mutated(random, everywhere=True) for random in islice(source, TOGETHER)]:
            beside = pool.submit(control, client)
            for sent, answer in zip(
                bodies, pool.map(lambda body: send(client, *body), bodies), strict=True
            ):
                assert answer.status_code < 500, (sent, answer.text)
                assert not [it for it in DEFECTS if it in answer.text], (sent, answer.text)
            assert beside.result() == expected
        eventually(lambda: is_idle(client), "every page is free")
    assert server.engine_pid() == engine


def send(client: httpx.Client, path: str, body: bytes) -> httpx.Response:
    return client.post(path, content=body, headers={"content-type": "application/json"})


def control(client: httpx.Client) -> str:
    """The answer that must be the same in any company."""
    answer = client.post("/invocations", json=CONTROL)
    assert answer.status_code == 200, answer.text
    return answer.text
