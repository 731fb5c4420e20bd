"""A model folder with random weights of a given size."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tests.unit.containers.lmi.tiny import write_tokenizer

from benchmarks.gpu_model import Sizes

LLAMA_3_8B = Sizes(
    intermediate_size=14336, num_kv_heads=8, vocab_size=128256, max_len=4096
)  # Llama 3.1's shapes


def write_random_model(folder: Path, sizes: Sizes, dtype: torch.dtype) -> Path:
    """Write a Llama and a tokenizer of bytes to `folder`. The host holds all weights meanwhile."""
    folder.mkdir(parents=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tensors = {
        name: torch.ones(shape, dtype=dtype)
        if len(shape) == 1
        else torch.empty(shape, dtype=dtype, device=device).normal_(std=0.02).cpu()
        for name, shape in _list_shapes(sizes).items()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(_build_config(sizes, dtype)))
    write_tokenizer(folder)
    return folder


def _list_shapes(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    hidden, inner = sizes.hidden_size, sizes.intermediate_size
    query, key = sizes.num_heads * sizes.head_dim, sizes.num_kv_heads * sizes.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (query, hidden),
        "self_attn.k_proj.weight": (key, hidden),
        "self_attn.v_proj.weight": (key, hidden),
        "self_attn.o_proj.weight": (hidden, query),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    return {
        "model.embed_tokens.weight": (sizes.vocab_size, hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (sizes.vocab_size, hidden),
        **{
            f"model.layers.{number}.{name}": shape
            for number in range(sizes.num_layers)
            for name, shape in layer.items()
        },
    }


def _build_config(sizes: Sizes, dtype: torch.dtype) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": sizes.hidden_size,
        "intermediate_size": sizes.intermediate_size,
        "num_hidden_layers": sizes.num_layers,
        "num_attention_heads": sizes.num_heads,
        "num_key_value_heads": sizes.num_kv_heads,
        "head_dim": sizes.head_dim,
        "vocab_size": sizes.vocab_size,
        "max_position_embeddings": sizes.max_len,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": str(dtype).removeprefix("torch."),
        "eos_token_id": 2,
        "bos_token_id": 1,
    }
