"""The LLM server over the real vLLM, where `hostelry runtimes install vllm` has installed it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cases import case, cases
from tests.integration import lmi_rig
from tests.integration.lmi_rig import Server, eventually, is_idle, serving
from tests.models import random_adapter, tiny_llama
from tests.unit.containers.lmi.tiny import write_tokenizer

from hostelry.base.runtimes import VARIABLE, find_installed, runtimes_folder

FOLDER = runtimes_folder(os.environ)
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        find_installed(FOLDER, "vllm") is None,
        reason=f"vLLM is not installed in {FOLDER}: hostelry runtimes install vllm",
    ),
]
START_S = 300.0
GREEDY = {"max_new_tokens": 12, "do_sample": False, "ignore_eos_token": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with heads of a size that vLLM has CPU kernels for."""
    root = tmp_path_factory.mktemp("vllm")
    folder = tiny_llama(root / "model", vocab_size=259, max_position_embeddings=2048, head_dim=32)
    write_tokenizer(folder)
    for seed, name in enumerate(("es", "fr"), 1):
        random_adapter(folder / "adapters" / name, folder, rank=8, seed=seed)
    random_adapter(root / "outside", folder, rank=4, seed=9, use_rslora=True)
    random_adapter(root / "dora", folder, rank=4, seed=9, use_dora=True)
    return folder


@pytest.fixture(scope="module")
def both(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """The model on vLLM, and on our engine."""
    logs = tmp_path_factory.mktemp("logs")
    options = {"OPTION_ENABLE_LORA": "true", "OPTION_POOL_BYTES": str(64 << 20)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lmi_rig, "START_S", START_S)
        runtime = {VARIABLE: str(FOLDER), "OPTION_BACKEND": "vllm"}
        with (
            serving(model, logs / "vllm", **options, **runtime) as vllm,
            serving(model, logs / "ours", **options, OPTION_BACKEND="hostelry") as ours,
        ):
            yield vllm, ours


def invoke(server: Server, **body: Any) -> httpx.Response:
    with server.client() as client:
        return client.post("/invocations", json={"parameters": GREEDY, **body})


def complete(server: Server, **body: Any) -> Any:
    with server.client() as client:
        answer = client.post("/v1/completions", json={"model": "lmi", **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def text(server: Server, **body: Any) -> str:
    answer = invoke(server, **body)
    assert answer.status_code == 200, answer.text
    generated: str = answer.json()["generated_text"]
    return generated


def test_both_engines_serve_the_same_contract(both: tuple[Server, Server]) -> None:
    vllm, ours = both
    for adapter in ("", "es", "fr"):
        body = {"inputs": "hello world", "adapters": adapter}
        assert text(vllm, **body) == text(ours, **body)
    with vllm.client() as client:
        described = client.get("/models/lmi").text
    assert '"kernels":"vllm"' in described


def test_log_probabilities_agree(both: tuple[Server, Server]) -> None:
    body = {"prompt": "hello", "max_tokens": 4, "temperature": 0, "echo": True, "logprobs": 2}
    found, expected = (complete(it, **body)["choices"][0]["logprobs"] for it in both)
    assert found["tokens"] == expected["tokens"]
    assert found["token_logprobs"][1:] == pytest.approx(expected["token_logprobs"][1:], abs=1e-3)


def test_seeds_penalties_structures_and_streams(both: tuple[Server, Server]) -> None:
    vllm, _ = both
    sampled = {"prompt": "a", "max_tokens": 8, "temperature": 1.0}
    one, same, other = (complete(vllm, **sampled, seed=seed) for seed in (1, 1, 2))
    assert one["choices"][0]["text"] == same["choices"][0]["text"]
    assert one["choices"][0]["text"] != other["choices"][0]["text"]
    banned = complete(vllm, prompt="a", max_tokens=1, temperature=0, logit_bias={"33": 100})
    assert (
        banned["choices"][0]["text"]
        == complete(both[1], prompt="a", max_tokens=1, temperature=0, logit_bias={"33": 100})[
            "choices"
        ][0]["text"]
    )
    chosen = complete(
        vllm, **{**sampled, "max_tokens": 30}, structured_outputs={"choice": ["red", "green"]}
    )
    assert chosen["choices"][0]["text"] in ("red", "green")
    with (
        vllm.client() as client,
        client.stream("POST", "/v1/completions", json={**sampled, "stream": True}) as answer,
    ):
        lines = [it for it in answer.iter_lines() if it]
    assert lines[-1] == "data: [DONE]"


@cases(
    "body, words",
    case("a value vLLM changes", {"temperature": 0.001}, "temperature is 0.001"),
    case("a prompt too long", {"prompt": "x" * 3000}, "max_model_len"),
)
def test_refusals(both: tuple[Server, Server], body: dict[str, Any], words: str) -> None:
    with both[0].client() as client:
        asked = {"model": "lmi", "prompt": "x", "max_tokens": 2, **body}
        answer = client.post("/v1/completions", json=asked)
    assert answer.status_code in (400, 424)
    assert words in answer.text


def test_adapters_come_change_and_go_at_run_time(both: tuple[Server, Server], model: Path) -> None:
    outside = model.parent / "outside"
    for server in both:
        with server.client() as client:
            params = {"name": "out", "src": str(outside)}
            assert client.post("/adapters", params=params).status_code == 200
    body = {"inputs": "hello world", "adapters": "out"}
    answers = {text(server, **body) for server in both}
    assert len(answers) == 1, "rsLoRA's scale holds with vLLM, too"
    vllm, _ = both
    with vllm.client() as client:
        refused = client.post("/adapters", params={"name": "d", "src": str(model.parent / "dora")})
        assert refused.status_code == 424
        assert "use_dora" in refused.text
        pinned = client.post("/adapters", params={"name": "p", "src": str(outside), "pin": "true"})
        assert pinned.status_code == 424
        assert "pin is not done with vLLM" in pinned.text
        update = {"src": str(model / "adapters" / "es")}
        assert client.post("/adapters/out/update", params=update).status_code == 200
    assert text(vllm, **body) == text(vllm, inputs="hello world", adapters="es")
    for server in both:
        with server.client() as client:
            assert client.delete("/adapters/out").status_code == 200
    assert invoke(vllm, **body).status_code == 424


def test_a_client_that_leaves_ends_its_request(both: tuple[Server, Server]) -> None:
    vllm, _ = both
    endless = {**GREEDY, "max_new_tokens": 2000}
    with (
        vllm.client() as client,
        client.stream(
            "POST", "/invocations", json={"inputs": "x", "parameters": endless, "stream": True}
        ) as answer,
    ):
        next(answer.iter_lines())
    with vllm.client() as client:
        eventually(lambda: is_idle(client), "the request ends")


def test_a_killed_server_leaves_no_process(model: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lmi_rig, "START_S", START_S)
        runtime = {VARIABLE: str(FOLDER), "OPTION_BACKEND": "vllm", "TMPDIR": str(tmp_path)}
        with serving(model, tmp_path / "log", OPTION_POOL_BYTES=str(64 << 20), **runtime) as server:
            group = server.engine_pid()
            assert group_members(group) > 1
    eventually(lambda: not group_members(group), "vLLM's processes end")
    eventually(lambda: not list(tmp_path.glob("hostelry-vllm-*")), "its files are deleted")


def group_members(group: int) -> int:
    """Living processes of the process group."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found += fields[2] == str(group) and fields[0] != "Z"
    return found
