"""Small models and adapters, created when needed. Without pytest, because benchmarks use them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

ALL_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


_TINY: dict[str, Any] = {
    "vocab_size": 199,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def tiny_llama(folder: Path, **overrides: Any) -> Path:
    """Write a random Llama of two layers with grouped queries to `folder`. Returns the folder.

    `overrides` are fields of transformers' LlamaConfig, `seed`, and `dtype` (a name in torch).
    """
    return _tiny("Llama", folder, overrides)


def tiny_mistral(folder: Path, **overrides: Any) -> Path:
    """Write a Mistral as `tiny_llama` does. Its layers see 16 tokens."""
    return _tiny("Mistral", folder, {"sliding_window": 16, **overrides})


def tiny_qwen2(folder: Path, **overrides: Any) -> Path:
    """Write a Qwen2 as `tiny_llama` does. It has biases on q, k and v."""
    return _tiny("Qwen2", folder, overrides)


def tiny_qwen3(folder: Path, **overrides: Any) -> Path:
    """Write a Qwen3 as `tiny_llama` does. It has a norm over each query and key head."""
    return _tiny("Qwen3", folder, {"head_dim": 24, **overrides})


def tiny_gemma3(folder: Path, **overrides: Any) -> Path:
    """Write a text-only Gemma 3 of three layers. The second is global, the others see 16 tokens."""
    fields = {
        "num_hidden_layers": 3,
        "head_dim": 24,
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "query_pre_attn_scalar": 20,
    }
    return _tiny("Gemma3", folder, {**fields, **overrides}, "Gemma3TextConfig")


def tiny_llava(folder: Path, vocab_size: int, image_token: int) -> Path:
    """Write a random LLaVA, for which a picture of 28 x 28 pixels is four tokens `image_token`."""
    import transformers

    size: dict[str, Any] = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    of_text = {
        "vocab_size": vocab_size,
        "head_dim": 32,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
    }
    text = transformers.LlamaConfig(**{**_TINY, **size, **of_text})
    vision = transformers.CLIPVisionConfig(
        **size, intermediate_size=64, image_size=28, patch_size=14, initializer_range=0.2
    )
    fields = transformers.LlavaConfig(
        text_config=text, vision_config=vision, image_token_index=image_token,
        vision_feature_layer=-1, image_seq_length=4,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformers.LlavaForConditionalGeneration(fields).save_pretrained(folder)
    # Weights have the names that checkpoints on the hub have, because vLLM reads no others.
    weights = load_file(folder / "model.safetensors")
    named = {
        name.replace("vision_tower.", "vision_tower.vision_model."): it
        for name, it in weights.items()
    }
    save_file(named, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _tiny(family: str, folder: Path, overrides: dict[str, Any], config: str = "") -> Path:
    """Write a random `{family}ForCausalLM` of transformers, with random biases and norms."""
    import transformers

    seed = overrides.pop("seed", 0)
    dtype = getattr(torch, overrides.pop("dtype", "float32"))
    config_class = getattr(transformers, config or f"{family}Config")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fields = config_class(**{**_TINY, **overrides})
        model = getattr(transformers, f"{family}ForCausalLM")(fields)
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(parameter, std=0.2)
            elif "norm" in name and family != "Llama":
                parameter.data += 0.2 * torch.randn_like(parameter)
    model.to(dtype).save_pretrained(folder)
    return folder


def random_adapter(
    folder: Path,
    model_folder: Path,
    rank: int,
    targets: Sequence[str] = ALL_TARGETS,
    seed: int = 0,
    **config: Any,
) -> Path:
    """Write a random LoRA adapter for the model in PEFT's format. Returns the folder.

    `config` has further fields of adapter_config.json, and these: `file` names the file of the
    weights, whose suffix chooses the format, `std` is their standard deviation, `dtype` their type.
    """
    file = config.pop("file", "adapter_model.safetensors")
    std = config.pop("std", 0.1)
    dtype = getattr(torch, config.pop("dtype", "float32"))
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for path, (out_features, in_features) in _linear_shapes(model_folder).items():
        if path.rsplit(".", 1)[-1] in targets:
            down = torch.randn(rank, in_features, generator=generator) * std
            up = torch.randn(out_features, rank, generator=generator) * std
            tensors[f"base_model.model.{path}.lora_A.weight"] = down.to(dtype)
            tensors[f"base_model.model.{path}.lora_B.weight"] = up.to(dtype)
    fields = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": 2 * rank,
        "target_modules": list(targets),
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
        "base_model_name_or_path": None,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({**fields, **config}), encoding="utf-8")
    if file.endswith(".bin"):
        torch.save(tensors, folder / file)
    else:
        save_file(tensors, folder / file, metadata={"format": "pt"})
    return folder


def _linear_shapes(model_folder: Path) -> dict[str, tuple[int, int]]:
    """(out, in) of every linear module in the layers, by path."""
    shapes = {}
    with safe_open(model_folder / "model.safetensors", framework="pt") as reader:
        for name in reader.keys():  # noqa: SIM118 - the reader is not a mapping
            path = name.removesuffix(".weight")
            if path.rsplit(".", 1)[-1] in ALL_TARGETS and name.endswith(".weight"):
                out_features, in_features = reader.get_slice(name).get_shape()
                shapes[path] = (out_features, in_features)
    return shapes
