"""Models read from a folder: transformers' logits, or a refusal that names the field or tensor."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.models import random_adapter, tiny_llama
from tests.unit.engine.oracle import PROMPTS, Logits, reference_logits, reference_model

from hostelry.engine.engine import Engine, EngineConfig, ModelError
from hostelry.engine.layers.rope import inverse_frequencies

CONFIG = EngineConfig(dtype="fp32", kv_cache_bytes=1 << 20, num_threads=1)

# Largest difference of a logit from transformers in fp32, relative to the largest logit.
LOGIT_TOLERANCE = {"fp32": 1e-5, "bf16": 6e-2}


def largest_difference(folder: Path, config: EngineConfig, adapter: Path | None = None) -> float:
    """Of the engine's logits from those of fp32 transformers + PEFT, relative to the largest."""
    engine = Engine.load(folder, config)
    if adapter is not None:
        engine.load_adapter("a", adapter)
    name = "a" if adapter else None
    model = reference_model(folder, {"a": adapter} if adapter else None)
    logits = Logits.of(engine)
    differences = []
    for prompt in PROMPTS:
        expected = reference_logits(model, prompt, name)
        differences.append(
            float((logits.after(prompt, name) - expected).abs().max() / expected.abs().max())
        )
    return max(differences)


LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param({}, id="grouped queries and tied embeddings"),
        pytest.param({"tie_word_embeddings": False}, id="untied embeddings"),
        pytest.param({"num_key_value_heads": 1}, id="one key-value head"),
        pytest.param({"num_key_value_heads": 4}, id="every head its own"),
        pytest.param({"head_dim": 24}, id="a head dimension of its own"),
        pytest.param({"attention_bias": True}, id="attention biases"),
        pytest.param({"mlp_bias": True}, id="mlp biases"),
        pytest.param({"rms_norm_eps": 0.1}, id="a large epsilon"),
        pytest.param({"rope_parameters": LLAMA3_ROPE}, id="llama3 rope"),
        pytest.param(
            {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}},
            id="linear rope",
        ),
        pytest.param(
            {"rope_parameters": {"rope_type": "default", "rope_theta": 77.0}}, id="a rope theta"
        ),
    ],
)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_logits_equal_transformers(overrides: dict[str, Any], dtype: str, tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "model", **overrides)
    config = EngineConfig(dtype=dtype, kv_cache_bytes=1 << 20, num_threads=1)
    assert largest_difference(folder, config) < LOGIT_TOLERANCE[dtype]


@pytest.mark.parametrize("rank", [8, 16, 64])
def test_bf16_adapter_logits_stay_within_tolerance(rank: int, tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "model", dtype="bfloat16")
    adapter = random_adapter(tmp_path / "adapter", folder, rank, std=0.05)
    config = EngineConfig(dtype="bf16", kv_cache_bytes=1 << 20, num_threads=1)
    assert largest_difference(folder, config, adapter) < LOGIT_TOLERANCE["bf16"]


def edit_config(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, **fields}))


@pytest.fixture(scope="module")
def whole_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def folder(whole_model: Path, tmp_path: Path) -> Path:
    for path in whole_model.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_older_spellings_of_rope(folder: Path) -> None:
    new = tiny_llama(folder / "new", rope_parameters=LLAMA3_ROPE)
    before = Logits.of(Engine.load(new, CONFIG)).after(PROMPTS[3])
    scaling = {key: value for key, value in LLAMA3_ROPE.items() if key != "rope_theta"}
    edit_config(new, rope_parameters=None, rope_scaling=scaling, rope_theta=500000.0)
    assert torch.equal(Logits.of(Engine.load(new, CONFIG)).after(PROMPTS[3]), before)
    scaling["type"] = scaling.pop("rope_type")
    edit_config(new, rope_scaling=scaling)
    assert torch.equal(Logits.of(Engine.load(new, CONFIG)).after(PROMPTS[3]), before)


def test_shards_are_read_through_their_index(folder: Path) -> None:
    before = Logits.of(Engine.load(folder, CONFIG)).after(PROMPTS[0])
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    weight_map = {}
    for number, part in enumerate((names[::2], names[1::2])):
        file = f"model-{number}.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
        weight_map.update(dict.fromkeys(part, file))
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert torch.equal(Logits.of(Engine.load(folder, CONFIG)).after(PROMPTS[0]), before)
    (folder / "model-1.safetensors").unlink()
    with pytest.raises(ModelError, match=r"names model-1\.safetensors, which is no file"):
        Engine.load(folder, CONFIG)


def test_tensors_that_say_nothing_new_are_left_out(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = inverse_frequencies(16, 1e4)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, folder / "model.safetensors")
    Engine.load(folder, CONFIG)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param(
            {"architectures": ["MambaForCausalLM"]}, "MambaForCausalLM", id="another architecture"
        ),
        pytest.param(
            {"architectures": None, "model_type": "mamba"}, "mamba", id="another model type"
        ),
        pytest.param({"hidden_act": "relu"}, "hidden_act relu", id="another activation"),
        pytest.param(
            {"quantization_config": {"quant_method": "gptq"}}, "gptq", id="quantized weights"
        ),
        pytest.param(
            {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "rope type yarn", id="yarn"
        ),
        pytest.param(
            {"rope_parameters": None, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
            "rope type dynamic",
            id="dynamic rope",
        ),
        pytest.param(
            {"rope_parameters": {"rope_type": "linear"}}, "rope factor is None", id="no factor"
        ),
        pytest.param({"vocab_size": None}, "vocab_size is None", id="no vocabulary size"),
        pytest.param({"hidden_size": -3}, "hidden_size is -3", id="a negative size"),
        pytest.param({"num_key_value_heads": 3}, "is no multiple of", id="uneven groups"),
        pytest.param({"dtype": "int4"}, "dtype int4", id="an unknown dtype"),
        pytest.param(
            {"num_hidden_layers": 3}, r"model\.layers\.2\..* is missing", id="a missing layer"
        ),
        pytest.param({"num_hidden_layers": 1}, "9 unexpected tensors", id="a layer too many"),
        pytest.param({"intermediate_size": 96}, r"has shape \(112, 64\)", id="another width"),
        pytest.param(
            {"tie_word_embeddings": False}, "lm_head.weight is missing", id="no output projection"
        ),
        pytest.param({"attention_bias": True}, "q_proj.bias is missing", id="no biases"),
    ],
)
def test_refused_configurations(fields: dict[str, Any], message: str, folder: Path) -> None:
    edit_config(folder, **fields)
    with pytest.raises(ModelError, match=message):
        Engine.load(folder, CONFIG)


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def write(name: str, content: bytes) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return act


def integers(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"].to(torch.int32)
    save_file(tensors, folder / "model.safetensors")


def wrong_index(content: bytes) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_bytes(content)

    return act


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(remove("config.json"), r"holds no config\.json", id="no configuration"),
        pytest.param(write("config.json", b"{"), "is not JSON", id="a configuration cut short"),
        pytest.param(write("config.json", b"[]"), "no JSON object", id="a list"),
        pytest.param(remove("model.safetensors"), "holds neither", id="no weights"),
        pytest.param(
            write("model.safetensors", b"nonsense" * 9), "cannot be read", id="damaged weights"
        ),
        pytest.param(integers, "has dtype torch.int32", id="integer weights"),
        pytest.param(wrong_index(b"{}"), "has no weight_map", id="an index without a map"),
        pytest.param(
            wrong_index(b'{"weight_map": {"a": "../../secret"}}'),
            "which is no file",
            id="an index that leads outside",
        ),
    ],
)
def test_refused_folders(damage: Callable[[Path], None], message: str, folder: Path) -> None:
    damage(folder)
    with pytest.raises(ModelError, match=message):
        Engine.load(folder, CONFIG)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param({"dtype": "int8"}, "dtype is 'int8'", id="an unknown dtype"),
        pytest.param({"max_batch_size": 0}, "max_batch_size is 0", id="an empty batch"),
        pytest.param({"page_tokens": -1}, "page_tokens is -1", id="negative pages"),
    ],
)
def test_refused_settings(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EngineConfig(**fields)


def test_settings_the_model_cannot_meet(folder: Path) -> None:
    with pytest.raises(ValueError, match="max_model_len is 300; the model has 256 positions"):
        Engine.load(folder, EngineConfig(max_model_len=300))
    with pytest.raises(ValueError, match="two pages of 16 tokens need 16384"):
        Engine.load(folder, EngineConfig(kv_cache_bytes=5000))


def test_end_tokens_come_from_the_generation_config_first(folder: Path) -> None:
    assert Engine.load(folder, CONFIG).model.eos_token_ids == (2,)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    assert Engine.load(folder, CONFIG).model.eos_token_ids == (7, 9)
