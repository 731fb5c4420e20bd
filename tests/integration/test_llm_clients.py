"""LangChain and LlamaIndex against the LLM server, alone and through the gateway."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.integration.gateway_rig import (
    component,
    components_endpoint,
    running_gateway,
    snapshot_of,
)
from tests.integration.lmi_rig import byte_model, serving
from tests.integration.virtual_environments import virtual_environment
from tests.pooled_models import tiny_encoder, write_modules, write_word_tokenizer
from tests.selection import first_alone

from hostelry.domain.routes import CopyRoute

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]  # the first run installs them

PROGRAMS = Path(__file__).with_name("llm_clients")
PACKAGES = {
    "with_langchain": ("langchain-openai==1.7.3",),
    "with_llama_index": (
        "llama-index-llms-openai-like==0.8.1",
        "llama-index-embeddings-openai-like==0.4.0",
    ),
}
TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson }}<tool_call>{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MESSAGES: Any = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
Way = dict[str, str]


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Way]]:
    """How a program is pointed at the servers: themselves, or the gateway in front of both."""
    root = tmp_path_factory.mktemp("llm")
    encoder = tiny_encoder(root / "encoder", "Bert")
    write_modules(encoder, "mean_tokens", max_seq_length=32)
    write_word_tokenizer(encoder)
    options = {"OPTION_ENABLE_LORA": "true", "OPTION_CHAT_TEMPLATE": TEMPLATE}
    with (
        serving(byte_model(root), root / "log", **options) as server,
        serving(encoder, root / "encoder.log") as vectors,
    ):
        endpoint = components_endpoint(
            "llms",
            component("base", (CopyRoute(id="c-1", address=server.url),)),
            component("vectors", (CopyRoute(id="c-2", address=vectors.url),)),
        )
        with running_gateway(root, snapshot_of("1", endpoint)) as rig:
            urls = {"URL": f"{server.url}/v1", "ENCODER_URL": f"{vectors.url}/v1"}
            alone = {**urls, "KEY": "none", "MODEL": "es", "ENCODER": "lmi"}
            url, key = f"{rig.config.gateway_url}/v1", rig.credentials.openai_api_key
            urls = {"URL": url, "ENCODER_URL": url, "KEY": key}
            yield {"server": alone, "gateway": {**urls, "MODEL": "base:es", "ENCODER": "vectors"}}


@pytest.mark.parametrize("way", first_alone(["gateway", "server"]))
@pytest.mark.parametrize("name", first_alone(PACKAGES))
def test_a_frameworks_classes_give_what_openais_client_gives(
    ways: dict[str, Way], name: str, way: str
) -> None:
    program = str(PROGRAMS / f"{name}.py")
    python = str(virtual_environment(name, *PACKAGES[name]) / "python")
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **ways[way]}
    done = subprocess.run(
        [python, program], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout)
    expected = plainly(ways[way])
    assert reported["chat"] == expected["chat"] != ""
    assert reported["stream"] == reported["chat"]
    assert reported["several"] == [reported["chat"]] * 3
    assert reported["usage"] == expected["usage"]
    assert reported["completion"] == expected["completion"]
    assert reported["call"]["good"] in (True, False)
    first, second = reported["vector"]
    assert first == pytest.approx(expected["vector"], abs=1e-6)
    assert first != second
    if name == "with_langchain":
        assert reported["tokens"] == [reported["usage"]]
        assert reported["structured"] == "bool"
        assert reported["scores"] == 12


def plainly(way: Way) -> dict[str, Any]:
    """The answers to the same questions through OpenAI's client."""
    with openai.OpenAI(base_url=way["URL"], api_key=way["KEY"], max_retries=0) as client:
        greedy: Any = {"model": way["MODEL"], "temperature": 0, "max_tokens": 12}
        chat = client.chat.completions.create(messages=MESSAGES, **greedy)
        completion = client.completions.create(prompt="hi", **greedy)
    with openai.OpenAI(base_url=way["ENCODER_URL"], api_key=way["KEY"]) as client:
        vectors = client.embeddings.create(model=way["ENCODER"], input=["the sea is blue"])
    assert chat.usage is not None
    return {
        "chat": chat.choices[0].message.content,
        "usage": chat.usage.completion_tokens,
        "completion": completion.choices[0].text,
        "vector": vectors.data[0].embedding,
    }
