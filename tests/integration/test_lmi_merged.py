"""An LLM server whose one adapter is merged: the same answers as without, and its refusals."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.lmi_rig import START_S, byte_model, eventually, serving, start
from tests.models import random_adapter, tiny_llama
from tests.selection import first_alone

LORA = {"OPTION_ENABLE_LORA": "true"}
MERGED = {**LORA, "OPTION_FUSE_ADAPTER": "es"}
ADAPTERS = ("es", "fr", "")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("merged")
    byte_model(root)
    return root


@pytest.fixture(scope="module")
def plain(root: Path) -> Iterator[dict[str, str]]:
    """The answers of a server that merges nothing."""
    with serving(root / "model", root / "plain.log", **LORA) as server, server.client() as client:
        client.post("/adapters", params={"name": "new", "src": str(root / "outside")})
        yield {name: text_of(client, name) for name in (*ADAPTERS, "new")}


def text_of(client: httpx.Client, adapter: str) -> str:
    body = {
        "inputs": "hello",
        "parameters": {"max_new_tokens": 12, "do_sample": False},
        "adapters": adapter,
    }
    answer = client.post("/invocations", json=body)
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["generated_text"]
    return text


def merged_bytes(client: httpx.Client) -> int:
    lines = client.get("/metrics").text.splitlines()
    (line,) = [it for it in lines if it.startswith("hostelry_llm_merged_bytes")]
    return int(float(line.rpartition(" ")[2]))


def test_merged_updated_and_removed_it_never_changes_an_answer(
    root: Path, plain: dict[str, str]
) -> None:
    with (
        serving(root / "model", root / "merged.log", **MERGED) as server,
        server.client() as client,
    ):
        assert {name: text_of(client, name) for name in ADAPTERS} == {
            name: plain[name] for name in ADAPTERS
        }
        first = merged_bytes(client)
        assert first > 0
        update: dict[str, Any] = {"src": str(root / "outside")}
        assert client.post("/adapters/es/update", params=update).status_code == 200
        assert text_of(client, "es") == plain["new"]
        assert text_of(client, "") == plain[""]
        assert client.delete("/adapters/es").status_code == 200
        assert text_of(client, "") == plain[""]
        assert text_of(client, "fr") == plain["fr"]
        gone = client.post("/invocations", json={"inputs": "hello", "adapters": "es"})
        assert gone.status_code == 424
        eventually(lambda: text_of(client, "") == plain[""] and merged_bytes(client) == 0, "clean")


@pytest.mark.parametrize(
    ("options", "message"),
    first_alone(
        [
            pytest.param(
                {"OPTION_FUSE_ADAPTER": "de"}, "none of this model's adapters", id="no such"
            ),
            pytest.param(
                {"OPTION_FUSE_ADAPTER": "es,fr"}, "the name of one adapter", id="two names"
            ),
            pytest.param({"OPTION_MAX_LORA_RANK": "4"}, "r is 8", id="a rank over the limit"),
            pytest.param({"OPTION_QUANTIZE": "int8"}, "too coarse", id="a quantized base"),
        ]
    ),
)
def test_a_start_that_is_refused(
    options: dict[str, str], message: str, root: Path, tmp_path: Path
) -> None:
    refused(root / "model", tmp_path / "server.log", message, {**MERGED, **options})


@pytest.mark.thorough
def test_an_adapter_of_another_shape_fails_the_start(tmp_path: Path) -> None:
    model = byte_model(tmp_path)
    other = tiny_llama(tmp_path / "other", intermediate_size=96)
    random_adapter(model / "adapters" / "wide", other, rank=4, seed=3)
    refused(model, tmp_path / "server.log", "shape", {**MERGED, "OPTION_FUSE_ADAPTER": "wide"})


def refused(folder: Path, log: Path, message: str, options: dict[str, str]) -> None:
    """The server ends by itself and says why."""
    process, _ = start(folder, log, **options)
    try:
        assert process.wait(START_S) in (1, 2)
    finally:
        process.kill()
        process.wait()
    assert message in log.read_text()
