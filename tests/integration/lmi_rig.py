"""The LLM server as a real process over a random tiny Llama."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from tests.models import random_adapter, tiny_llama
from tests.unit.containers.lmi.tiny import write_tokenizer

from hostelry.base.clock import monotonic_s
from hostelry.base.guards import COPY_KEY_HEADER, COPY_KEY_VARIABLE
from hostelry.base.ports import free_port

START_S = 90.0
END_S = 30.0


@dataclass(frozen=True, slots=True)
class Server:
    """A running server, its address, and the key that it requires."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path
    shown: dict[str, str] = field(default_factory=dict)

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60.0, headers=self.shown, verify=False)

    def engine_pid(self) -> int:
        """The engine process, which is the server's only child."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        (pid,) = children.split()
        return int(pid)

    def status(self) -> int | None:
        """The status of /ping. None without an answer."""
        try:
            answer = httpx.get(
                f"{self.url}/ping", timeout=5.0, headers=self.shown, verify=False, trust_env=False
            )  # reading certificates would take longer than the request
        except httpx.HTTPError:
            return None
        return answer.status_code


def eventually(condition: Callable[[], bool], what: str, limit_s: float = END_S) -> None:
    """Wait until `condition` holds."""
    deadline = monotonic_s() + limit_s
    while not condition():
        assert monotonic_s() < deadline, f"not within {limit_s:g} s: {what}"
        time.sleep(0.02)


def start(folder: Path, log: Path, *flags: str, **env: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start a server process on a free port, without configuration of this process."""
    inherited = ("OPTION_", "SM_", "HF_", "SERVING_", "SAGEMAKER_", "HOSTELRY_")
    clean = {name: it for name, it in os.environ.items() if not name.startswith(inherited)}
    port = free_port()
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "hostelry.containers.lmi", *flags],
            env={
                **clean,
                "SAGEMAKER_BIND_TO_PORT": str(port),
                "HOSTELRY_MODEL_DIR": str(folder),
                "HOSTELRY_CPUS": "1",
                "OPTION_DTYPE": "fp32",
                **env,
            },
            stdout=sink,
            stderr=sink,
        )
    return process, port


@contextmanager
def serving(folder: Path, log: Path, *flags: str, **env: str) -> Iterator[Server]:
    """A ready server. After the block it is killed with its engine."""
    process, port = start(folder, log, *flags, **env)
    shown = {COPY_KEY_HEADER: env[COPY_KEY_VARIABLE]} if COPY_KEY_VARIABLE in env else {}
    server = Server(process, f"http://127.0.0.1:{port}", log, shown)
    try:
        eventually(lambda: server.status() == 200 or process.poll() is not None, "ready", START_S)
        assert process.poll() is None, log.read_text()
        yield server
    finally:
        process.kill()
        process.wait()


def engine_load(client: httpx.Client) -> dict[str, int]:
    """The engine's state in GET /models/lmi."""
    described = client.get("/models/lmi")
    assert described.status_code == 200, described.text
    load: dict[str, int] = described.json()[0]["models"][0]["engine"]
    return load


def is_idle(client: httpx.Client) -> bool:
    """Whether no request is under way, and every page is free."""
    load = engine_load(client)
    is_busy = load["runningRequests"] or load["waitingRequests"]
    return not is_busy and load["freePages"] == load["totalPages"]


def ended(server: Server) -> int:
    """The exit status, after the process has ended."""
    return server.process.wait(END_S)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def byte_model(root: Path) -> Path:
    """A random Llama that reads bytes, with two adapters in its folder and one outside."""
    folder = tiny_llama(root / "model", vocab_size=259, max_position_embeddings=8192)
    write_tokenizer(folder)
    for seed, name in enumerate(("es", "fr"), 1):
        random_adapter(folder / "adapters" / name, folder, rank=8, seed=seed)
    random_adapter(root / "outside", folder, rank=4, seed=9)
    return folder
