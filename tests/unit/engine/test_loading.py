"""Settings of an engine, those a model cannot meet, and which kernels compute."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases
from tests.models import tiny_llama
from tests.unit.engine.oracle import greedy, run, variant

from hostelry.engine import loading
from hostelry.engine.engine import Engine, EngineConfig

CONFIG = EngineConfig(dtype="fp32", pool_bytes=1 << 20, num_threads=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_llama(tmp_path / "model")


@cases(
    "fields, message",
    case("an unknown dtype", {"dtype": "int8"}, "dtype is 'int8'"),
    case("unknown weights", {"weight_dtype": "int4"}, "weight_dtype is 'int4'"),
    case("unknown kernels", {"kernels": "cuda"}, "kernels is 'cuda'"),
    case("an empty batch", {"max_batch_size": 0}, "max_batch_size is 0"),
    case("negative pages", {"page_tokens": -1}, "page_tokens is -1"),
    case("no pool", {"pool_bytes": 0}, "pool_bytes is 0"),
    case("no host memory", {"adapter_host_bytes": 0}, "adapter_host_bytes is 0"),
    case("no wait", {"max_wait_s": 0.0}, "max_wait_s is 0"),
    case("a wait of nan", {"max_wait_s": float("nan")}, "max_wait_s is nan"),
    case("more pins than pool", {"pin_share": 1.5}, "pin_share is 1.5"),
)
def test_refused_settings(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EngineConfig(**fields)


def test_settings_the_model_cannot_meet(folder: Path) -> None:
    with pytest.raises(ValueError, match="max_model_len is 300; the model has 256 positions"):
        Engine.load(folder, EngineConfig(max_model_len=300))
    with pytest.raises(ValueError, match="one page of 16 tokens needs 8192"):
        Engine.load(folder, variant(CONFIG, pool_bytes=5000))


def test_end_tokens_come_from_the_generation_config_first(folder: Path) -> None:
    assert Engine.load(folder, CONFIG).model.eos_token_ids == (2,)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    assert Engine.load(folder, CONFIG).model.eos_token_ids == (7, 9)


def test_native_kernels_compute_on_a_cpu_unless_asked_otherwise(folder: Path) -> None:
    assert Engine.load(folder, CONFIG).stats.kernels == "native"
    assert Engine.load(folder, variant(CONFIG, kernels="torch")).stats.kernels == "torch"


def test_without_native_kernels_torch_computes_with_a_warning(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(Engine.load(folder, CONFIG), [greedy("a", [5, 9, 33], 8)])
    monkeypatch.setattr(loading, "why_unavailable", lambda: "there was no compiler")
    engine = Engine.load(folder, CONFIG)
    assert engine.stats.kernels == "torch"
    assert [it for it in engine.warnings if "there was no compiler" in it]
    assert run(engine, [greedy("a", [5, 9, 33], 8)]) == expected
    with pytest.raises(ValueError, match="kernels is native, but there was no compiler"):
        Engine.load(folder, variant(CONFIG, kernels="native"))
    with pytest.raises(ValueError, match=r"weight_dtype is int8, .* there was no compiler"):
        Engine.load(folder, variant(CONFIG, weight_dtype="int8"))


def test_int8_weights_answer_nearly_alike(folder: Path) -> None:
    engine = Engine.load(folder, variant(CONFIG, weight_dtype="int8"))
    assert len(run(engine, [greedy("a", [5, 9, 33], 8)])["a"]) == 8
    with pytest.raises(ValueError, match="weight_dtype is int8, which needs native kernels"):
        Engine.load(folder, variant(CONFIG, weight_dtype="int8", kernels="torch"))
