"""vLLM and SGLang as servers on a GPU, each with an interpreter that the caller names."""

import os
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers.completions import HttpBatches, openai_body
from benchmarks.peers.contestant import Ask, Contestant
from benchmarks.peers.served import Launch, start_server
from hostelry.base.ports import free_port

BASE = "base"
MAX_SLOTS = 64  # adapters in one step: each request of a batch may have its own


def start_gpu_vllm(
    python: Path, model: Path, adapters: dict[str, Path], scratch: Path, rank: int, batch: int
) -> Contestant:
    """`vllm serve` with a slot for each adapter, up to MAX_SLOTS. All adapters fit the host."""
    port = free_port()
    lora = [
        "--enable-lora", "--max-loras", str(min(len(adapters), MAX_SLOTS)),
        "--max-cpu-loras", str(len(adapters)), "--max-lora-rank", str(rank),
        "--lora-modules", *(f"{name}={folder}" for name, folder in adapters.items()),
    ]  # fmt: skip
    command = [
        str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model),
        "--served-model-name", BASE, "--host", "127.0.0.1", "--port", str(port),
        "--dtype", "bfloat16", "--max-model-len", "4096", "--max-num-seqs", str(batch),
        *(lora if adapters else []),
    ]  # fmt: skip
    batches = HttpBatches(port=port, body_of=partial(openai_body, base=BASE))
    return _start("vLLM", command, scratch, batches)


def start_gpu_sglang(
    python: Path, model: Path, adapters: dict[str, Path], scratch: Path, batch: int
) -> Contestant:
    """SGLang's server. The adapter of a request is its `lora_path`. It has never run here."""
    port = free_port()
    lora = [
        "--enable-lora", "--max-loras-per-batch", str(min(len(adapters), MAX_SLOTS)),
        "--lora-paths", *(f"{name}={folder}" for name, folder in adapters.items()),
    ]  # fmt: skip
    command = [
        str(python), "-m", "sglang.launch_server", "--model-path", str(model),
        "--served-model-name", BASE, "--host", "127.0.0.1", "--port", str(port),
        "--dtype", "bfloat16", "--context-length", "4096", "--max-running-requests", str(batch),
        *(lora if adapters else []),
    ]  # fmt: skip

    def build_body(ask: Ask) -> dict[str, Any]:
        return openai_body(ask, BASE) | {"model": BASE, "lora_path": ask.adapter}

    return _start("SGLang", command, scratch, HttpBatches(port=port, body_of=build_body))


def _start(name: str, command: list[str], scratch: Path, batches: HttpBatches) -> Contestant:
    variables = {**os.environ, "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
    log = scratch / f"{name}.log"
    return start_server(
        Launch(
            name=name,
            command=command,
            env=variables,
            log=log,
            health_path="/health",
            batches=batches,
        )
    )
