"""A model's shape, read from the config.json of a Hugging Face folder and checked.

Everything a model file of ours would ignore is refused by name: a wrong answer is worse than none.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostelry.engine.kernels.weights import Activation


class ModelError(ValueError):
    """The folder holds no model this engine can run; names the field or tensor and its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeSpec:
    """Rotary embedding; `kind` is default, linear or llama3, the rest as in config.json."""

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_len: int = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """What the engine knows of a model; lengths in tokens, `dtype` of the stored weights.

    Layer i sees the last `windows[i]` tokens, itself included (None: all), and turns by
    `ropes[layer_ropes[i]]`. `attention_bias` is of q, k and v, `output_bias` of o, `mlp_bias` of
    gate, up and down. Scores are multiplied by `attention_scale`, embeddings by `embedding_scale`
    (rounded to the computing dtype).
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    ropes: tuple[RopeSpec, ...]
    layer_ropes: tuple[int, ...]
    windows: tuple[int | None, ...]
    activation: Activation
    attention_scale: float
    embedding_scale: float
    tie_embeddings: bool
    attention_bias: bool
    output_bias: bool
    mlp_bias: bool
    max_model_len: int
    eos_token_ids: tuple[int, ...]
    dtype: str

    @property
    def rope(self) -> RopeSpec:
        """The rotary embedding of a model that has one for all layers."""
        return self.ropes[0]


DTYPE_NAMES = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "fp32": "fp32",
    "bf16": "bf16",
    "fp16": "fp16",
}


def load_spec(folder: Path) -> ModelSpec:
    """The spec of the model in `folder`. Raises ModelError naming what cannot be run."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"{folder} holds no config.json; give a Hugging Face model folder")
    config = _read_json(path)
    generation_path = folder / "generation_config.json"
    generation = _read_json(generation_path) if generation_path.is_file() else {}
    return parse_spec(config, generation)


def parse_spec(config: Mapping[str, Any], generation: Mapping[str, Any]) -> ModelSpec:
    """The spec in a parsed config.json and generation_config.json ({} where there is none)."""
    architecture = _architecture(config)
    _refuse_unknown(config)
    num_heads = _positive(config, "num_attention_heads")
    hidden_size = _positive(config, "hidden_size")
    num_kv_heads = config.get("num_key_value_heads") or num_heads
    if num_heads % num_kv_heads:
        raise ModelError(
            f"config.json: num_attention_heads {num_heads} is no multiple of "
            f"num_key_value_heads {num_kv_heads}"
        )
    return ModelSpec(
        architecture=architecture,
        vocab_size=_positive(config, "vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=_positive(config, "intermediate_size"),
        num_layers=_positive(config, "num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=config.get("head_dim") or hidden_size // num_heads,
        rms_norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        ropes=(_rope(config),),
        layer_ropes=(0,) * _positive(config, "num_hidden_layers"),
        windows=(None,) * _positive(config, "num_hidden_layers"),
        activation="silu",
        attention_scale=(config.get("head_dim") or hidden_size // num_heads) ** -0.5,
        embedding_scale=1.0,
        tie_embeddings=bool(config.get("tie_word_embeddings", False)),
        attention_bias=bool(config.get("attention_bias", False)),
        output_bias=bool(config.get("attention_bias", False)),
        mlp_bias=bool(config.get("mlp_bias", False)),
        max_model_len=int(config.get("max_position_embeddings", 2048)),
        eos_token_ids=_eos_token_ids(config, generation),
        dtype=_dtype(config),
    )


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path.name} is no JSON object")
    return value


def _architecture(config: Mapping[str, Any]) -> str:
    names = config.get("architectures") or [config.get("model_type")]
    if names[0] in ("LlamaForCausalLM", "llama"):
        return "LlamaForCausalLM"
    raise ModelError(f"architecture {names[0]} is not supported; supported: LlamaForCausalLM")


def _refuse_unknown(config: Mapping[str, Any]) -> None:
    if config.get("hidden_act", "silu") != "silu":
        raise ModelError(
            f"config.json: hidden_act {config['hidden_act']} is not supported; silu is"
        )
    if config.get("quantization_config"):
        method = config["quantization_config"].get("quant_method", "unnamed")
        raise ModelError(f"config.json: quantization_config {method} is not supported")


def _positive(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or value < 1:
        raise ModelError(f"config.json: {name} is {value!r}; it must be a positive integer")
    return value


def _rope(config: Mapping[str, Any]) -> RopeSpec:
    """Both spellings: rope_theta with rope_scaling, and the newer rope_parameters."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(scaling.get("rope_theta") or config.get("rope_theta") or 10000.0)
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind not in ("default", "linear", "llama3"):
        raise ModelError(
            f"config.json: rope type {kind} is not supported; default, linear and llama3 are"
        )
    if kind == "default":
        return RopeSpec(theta=theta)
    if kind == "linear":
        return RopeSpec(theta=theta, kind=kind, factor=_number(scaling, "factor"))
    return RopeSpec(
        theta=theta,
        kind=kind,
        factor=_number(scaling, "factor"),
        low_freq_factor=_number(scaling, "low_freq_factor"),
        high_freq_factor=_number(scaling, "high_freq_factor"),
        original_max_len=int(_number(scaling, "original_max_position_embeddings")),
    )


def _number(scaling: Mapping[str, Any], name: str) -> float:
    value = scaling.get(name)
    if not isinstance(value, int | float) or value <= 0:
        raise ModelError(f"config.json: rope {name} is {value!r}; it must be a positive number")
    return float(value)


def _eos_token_ids(config: Mapping[str, Any], generation: Mapping[str, Any]) -> tuple[int, ...]:
    """The generation config's end tokens, else the model config's; a model may have none."""
    for source in (generation, config):
        value = source.get("eos_token_id")
        if value is not None:
            return tuple(value) if isinstance(value, list) else (value,)
    return ()


def _dtype(config: Mapping[str, Any]) -> str:
    name = config.get("dtype") or config.get("torch_dtype") or "float32"
    if name not in DTYPE_NAMES:
        raise ModelError(f"config.json: dtype {name} is not supported; float32, bfloat16, float16")
    return DTYPE_NAMES[name]
