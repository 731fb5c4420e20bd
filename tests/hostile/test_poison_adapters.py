"""Adapters that harm: each is refused with its cause, or ends its own requests alone."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases
from tests.hostile.neighbours import undisturbed
from tests.integration.lmi_rig import Server, byte_model, eventually, is_idle, serving
from tests.models import random_adapter

pytestmark = pytest.mark.integration

Making = Callable[[Path, Path], Path]  # the adapter's folder, the model's -> the adapter's


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_model(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Server]:
    options = {"OPTION_ENABLE_LORA": "true", "OPTION_MAX_MODEL_LEN": "512"}
    with serving(model, model.parent / "log", **options) as server:
        yield server


def saying(**fields: Any) -> Making:
    """An adapter with these fields in its configuration."""
    return lambda folder, model: random_adapter(folder, model, 8, **fields)


def scaled(std: float) -> Making:
    return lambda folder, model: random_adapter(folder, model, 8, std=std)


def configured(text: str) -> Making:
    """An adapter whose configuration is this text."""

    def make(folder: Path, model: Path) -> Path:
        random_adapter(folder, model, 8)
        (folder / "adapter_config.json").write_text(text)
        return folder

    return make


def weights(change: Callable[[bytes], bytes]) -> Making:
    """An adapter the bytes of whose weights are changed."""

    def make(folder: Path, model: Path) -> Path:
        path = random_adapter(folder, model, 8) / "adapter_model.safetensors"
        path.write_bytes(change(path.read_bytes()))
        return folder

    return make


def huge_header(raw: bytes) -> bytes:
    return (2**62).to_bytes(8, "little") + raw[8:]


def shape_past_memory(raw: bytes) -> bytes:
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    for tensor in header.values():
        tensor["shape"] = [2**40, 2**20]
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + raw[8 + size :]


def looped(folder: Path, model: Path) -> Path:
    random_adapter(folder, model, 8)
    config = folder / "adapter_config.json"
    config.unlink()
    config.symlink_to(config)
    return folder


@cases(
    "make, reason",
    case("a pattern for hours", saying(target_modules="(?:[a-z0-9._]?){40}!"), "names no module"),
    case("many of them",
        saying(rank_pattern={f"(?:[a-z0-9._]?){{40}}!{n}": 8 for n in range(1500)}),
        "instructions; at most"),
    case("a pattern that looks on and on",
        saying(target_modules="(?:(?=.*(?=.*(?=.*(?=.*(?=.*(?=.*!)))))).)*"), "steps to match"),
    case("a huge rank", saying(r=2**31), "max_lora_rank"),
    case("a rank of no float", saying(r=10**400), "max_lora_rank"),
    case("an alpha of no float", saying(lora_alpha=10**400), "lora_alpha"),
    case("an alpha of no fp32", saying(lora_alpha=1e299), "no fp32"),
    case("weights of nan", scaled(float("nan")), "nan or inf"),
    case("weights of inf", scaled(float("inf")), "nan or inf"),
    case("weights of another shape", saying(r=4), "shape"),
    case("a configuration of brackets", configured("[" * 100_000), "not JSON"),
    case("a deep configuration", configured("[" * 900 + "]" * 900), "object"),
    case("weights that are cut off", weights(lambda raw: raw[:-100]), ""),
    case("weights of seven bytes", weights(lambda raw: raw[:7]), ""),
    case("a header past the file", weights(huge_header), ""),
    case("shapes past all memory", weights(shape_past_memory), ""),
    case("a link to itself", looped, ""),
)  # fmt: skip
def test_a_poisoned_adapter_is_refused_and_harms_no_client(
    server: Server, model: Path, tmp_path: Path, make: Making, reason: str
) -> None:
    folder = make(tmp_path / "poison", model)
    engine = server.engine_pid()
    with server.client() as client:
        answer = undisturbed(client, lambda: client.post(f"/adapters?name=poison&src={folder}"))
        listed = [each["name"] for each in client.get("/adapters").json()["adapters"]]
    assert answer.status_code == 424, answer.text
    assert reason in answer.text
    assert listed == ["es", "fr"]
    assert server.engine_pid() == engine


def test_an_adapter_whose_logits_overflow_ends_its_own_requests_alone(
    server: Server, model: Path, tmp_path: Path
) -> None:
    folder = scaled(1e18)(tmp_path / "huge", model)
    body = {"inputs": "hello", "adapters": "huge"}
    with server.client() as client:
        assert client.post(f"/adapters?name=huge&src={folder}").status_code == 200
        for _ in range(3):
            answer = undisturbed(client, lambda: client.post("/invocations", json=body))
            assert answer.status_code == 500
            assert "not finite" in answer.text
        assert client.delete("/adapters/huge").status_code == 200
        eventually(lambda: is_idle(client), "every page is free")
