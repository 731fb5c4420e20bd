"""llama.cpp's own server, compiled for this processor, on bf16 weights."""

import os
from functools import partial
from pathlib import Path

from benchmarks.peers.completions import Body, HttpBatches, openai_body
from benchmarks.peers.contestant import Ask, Contestant
from benchmarks.peers.gguf_files import adapter_gguf, model_gguf
from benchmarks.peers.installed import llama_binaries
from benchmarks.peers.served import Launch, start_server
from hostelry.base.ports import free_port

NAME = "llama.cpp"
NUM_SLOTS = 16
TOKENS_PER_SLOT = 1024


def start_llama(
    model: Path, adapters: dict[str, Path], scratch: Path, num_threads: int
) -> Contestant:
    """The server with every adapter loaded. Raises PeerMissingError."""
    binaries = llama_binaries()
    port = free_port()
    converted = [
        adapter_gguf(folder, model, scratch / f"{name}.gguf") for name, folder in adapters.items()
    ]
    command = [
        str(binaries / "llama-server"),
        "-m", str(model_gguf(binaries)),
        "--host", "127.0.0.1", "--port", str(port),
        "-t", str(num_threads),
        "-np", str(NUM_SLOTS),
        "-c", str(NUM_SLOTS * TOKENS_PER_SLOT),
        *(part for file in converted for part in ("--lora", str(file))),
    ]  # fmt: skip
    return start_server(
        Launch(
            name=NAME,
            command=command,
            env={**os.environ, "LD_LIBRARY_PATH": str(binaries)},
            log=scratch / "llama.cpp.log",
            health_path="/health",
            batches=HttpBatches(port=port, body_of=partial(body_of, names=list(adapters))),
        )
    )


def body_of(ask: Ask, names: list[str]) -> Body:
    """The request. It names every adapter, since an unnamed adapter keeps its scale of 1."""
    scales = [{"id": it, "scale": float(name == ask.adapter)} for it, name in enumerate(names)]
    return openai_body(ask, "base") | {"model": "base", "lora": scales, "cache_prompt": False}
