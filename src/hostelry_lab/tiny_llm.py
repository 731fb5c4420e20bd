"""Random two-layer byte-level Llama with LoRA adapters, for drills of LLM servers.

Some hundred kilobytes, made on the spot: the drill tests the server, not the model's text.
"""

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SPECIAL = ("<|endoftext|>", "<|begin|>", "<|end|>")
HIDDEN, INNER, LAYERS, HEADS, KV_HEADS = 64, 128, 2, 4, 2
VOCABULARY = len(SPECIAL) + 256
MAX_LEN = 1024
RANK = 4
SEED = 0
STD = 0.1
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": MAX_LEN,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}


def write_model(folder: Path) -> None:
    """Write the model as a Hugging Face folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    save_file(_weights(), folder / "model.safetensors", metadata={"format": "pt"})
    _tokenizer().save(str(folder / "tokenizer.json"))
    settings = {"bos_token": SPECIAL[1], "eos_token": SPECIAL[2]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def adapter_archive(target_modules: str | list[str]) -> bytes:
    """A tar.gz of an adapter of rank 4 on q_proj whose configuration names `target_modules`."""
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": RANK,
        "lora_alpha": RANK,
        "target_modules": target_modules,
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
    }
    random = np.random.default_rng(SEED)
    tensors = {}
    for layer in range(LAYERS):
        path = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        tensors[f"{path}.lora_A.weight"] = _random(random, (RANK, HIDDEN))
        tensors[f"{path}.lora_B.weight"] = _random(random, (HIDDEN, RANK))
    files = {
        "adapter_config.json": json.dumps(config).encode(),
        "adapter_model.safetensors": save(tensors, metadata={"format": "pt"}),
    }
    return _tar(files)


def _weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(SEED)
    kv = HIDDEN // HEADS * KV_HEADS
    shapes = {
        "self_attn.q_proj": (HIDDEN, HIDDEN),
        "self_attn.k_proj": (kv, HIDDEN),
        "self_attn.v_proj": (kv, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HIDDEN),
        "mlp.gate_proj": (INNER, HIDDEN),
        "mlp.up_proj": (INNER, HIDDEN),
        "mlp.down_proj": (HIDDEN, INNER),
    }
    found = {"model.embed_tokens.weight": _random(random, (VOCABULARY, HIDDEN))}
    found["model.norm.weight"] = np.ones(HIDDEN, dtype=np.float32)
    for layer in range(LAYERS):
        path = f"model.layers.{layer}"
        for name, shape in shapes.items():
            found[f"{path}.{name}.weight"] = _random(random, shape)
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"{path}.{name}.weight"] = np.ones(HIDDEN, dtype=np.float32)
    return found


def _random(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return (STD * random.standard_normal(shape)).astype(np.float32)


def _tokenizer() -> Tokenizer:
    """A tokenizer with one token for each byte of UTF-8, after the control tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: index for index, text in enumerate([*SPECIAL, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    return tokenizer


def _tar(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()
