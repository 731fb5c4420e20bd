"""The LLM server in the manner of a vLLM image, as a real process with vLLM's own variables."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from tests.integration.lmi_rig import Server, byte_model, serving, start
from tests.unit.containers.lmi.tiny import CODEC, ids
from transformers import AutoConfig, AutoModelForCausalLM

pytestmark = pytest.mark.integration

THETA = 40.0
NAME = "org/tiny"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of an archive: one top folder with the model and its default options."""
    root = tmp_path_factory.mktemp("images")
    folder = byte_model(root)
    (folder / "generation_config.json").write_text(
        json.dumps({"temperature": 0.0, "eos_token_id": 2, "max_new_tokens": 7})
    )
    (root / "archive").mkdir()
    (folder / "adapters").rename(folder / "loras")
    return folder.rename(root / "archive" / "top").parent


@pytest.fixture(scope="module")
def vllm(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(
        archive,
        tmp_path_factory.mktemp("log") / "log",
        "--vllm",
        SM_VLLM_DTYPE="float32",
        SM_VLLM_SERVED_MODEL_NAME=NAME,
        SM_VLLM_ENABLE_LORA="",
        SM_VLLM_LORA_MODULES="es=/opt/ml/model/loras/es",
        SM_VLLM_HF_OVERRIDES=json.dumps({"rope_theta": THETA}),
        SM_VLLM_GPU_MEMORY_UTILIZATION="0.9",
    ) as server:
        yield server


@pytest.fixture
def client(vllm: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{vllm.url}/v1", api_key="none") as opened:
        yield opened


def transformers_text(folder: Path, prompt: list[int], theta: float) -> str:
    """The greedy answer of transformers with this base of the rope."""
    settings = AutoConfig.from_pretrained(folder)
    settings.rope_parameters = {"rope_type": "default", "rope_theta": theta}
    oracle: Any = AutoModelForCausalLM.from_pretrained(folder, config=settings)
    given = torch.tensor([prompt])
    with torch.no_grad():
        found = oracle.generate(given, max_new_tokens=12, do_sample=False, eos_token_id=None)
    return CODEC.decode(found[0, len(prompt) :].tolist(), skip_special_tokens=True)


def test_overrides_of_the_configuration_are_what_transformers_computes(
    client: openai.OpenAI, archive: Path
) -> None:
    prompt = list(ids("a prompt that is long enough for its positions to count"))
    answer = client.completions.create(
        model=NAME, prompt=prompt, max_tokens=12, extra_body={"ignore_eos": True}
    )
    assert answer.choices[0].text == transformers_text(archive / "top", prompt, THETA)
    assert answer.choices[0].text != transformers_text(archive / "top", prompt, 10_000.0)


def test_a_chat_takes_the_defaults_of_the_model(client: openai.OpenAI) -> None:
    answers = [
        client.chat.completions.create(
            model=NAME,
            messages=[{"role": "user", "content": "hello"}],
            extra_body={"ignore_eos": True, **given},
        )
        for given in ({}, {}, {"temperature": 0})
    ]
    assert len({it.choices[0].message.content for it in answers}) == 1
    assert {it.usage.completion_tokens for it in answers if it.usage} == {7}


def test_a_stream_of_invocations_is_events(vllm: Server) -> None:
    with vllm.client() as http:
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 3}
        answer = http.post("/invocations", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("data: [DONE]\n\n")


def test_the_adapters_of_the_options_are_served(client: openai.OpenAI) -> None:
    names = [it.id for it in client.models.list()]
    assert names[0] == NAME
    assert "es" in names
    base, adapted = (
        client.completions.create(model=name, prompt="hello", max_tokens=12).choices[0].text
        for name in (NAME, "es")
    )
    assert base != adapted


def test_an_option_that_would_change_answers_ends_the_start(archive: Path, tmp_path: Path) -> None:
    without_vllm = {"HOSTELRY_RUNTIMES_DIR": str(tmp_path)}
    options = {"SM_VLLM_KV_CACHE_DTYPE": "fp8", **without_vllm}
    process, _ = start(archive, tmp_path / "log", "--vllm", **options)
    assert process.wait(60) == 1
    log = (tmp_path / "log").read_text()
    assert "SM_VLLM_KV_CACHE_DTYPE is 'fp8'; with our own engine it must be auto" in log
    assert "hostelry runtimes install vllm" in log
