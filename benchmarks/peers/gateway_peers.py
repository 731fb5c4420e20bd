"""Ray Serve, LitServe and BentoML with an echo model, each started as its manual says."""

import contextlib
import http.client
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from benchmarks.peers import process_tree
from benchmarks.peers.contestant import log_tail
from benchmarks.peers.installed import gateway_environment

PROGRAMS = Path(__file__).parent / "echoes"
READY_TIMEOUT_S = 90.0
POLL_S = 0.05
QUESTION = {"data": [1.0, 2.0, 3.0, 4.0]}
BODY = msgspec.json.encode(QUESTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server that answers at `path` on `port`, and the processes that work for it."""

    port: int
    path: str
    pids: Sequence[int]

    @property
    def cpu_s(self) -> float:
        """Processor time of all its processes so far."""
        return sum(process_tree.cpu_s(pid) for pid in self.pids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """How a peer is started. `command` gets the peer's environment, a port and the workers."""

    name: str
    path: str
    command: Callable[[Path, int, int], list[str]]
    env: Mapping[str, str] = field(default_factory=dict)


def ray_command(environment: Path, port: int, workers: int) -> list[str]:
    """The command of a script that starts Ray and deploys the model."""
    return [str(environment / "bin/python"), str(PROGRAMS / "ray_echo.py"), str(port), str(workers)]


def litserve_command(environment: Path, port: int, workers: int) -> list[str]:
    """The command of a script that starts as many API servers as workers."""
    program = PROGRAMS / "litserve_echo.py"
    return [str(environment / "bin/python"), str(program), str(port), str(workers)]


def bentoml_command(environment: Path, port: int, workers: int) -> list[str]:
    """BentoML's own command line. The service itself has the number of workers."""
    del workers
    serve = [str(environment / "bin/bentoml"), "serve", "bentoml_echo:Echo"]
    listen = ["--host", "127.0.0.1", "--port", str(port)]
    return [*serve, *listen, "--working-dir", str(PROGRAMS)]


PEERS = {
    "ray-serve": Peer(
        name="ray-serve", path="/", command=ray_command, env={"RAY_USAGE_STATS_ENABLED": "0"}
    ),
    "litserve": Peer(name="litserve", path="/predict", command=litserve_command),
    "bentoml": Peer(
        name="bentoml", path="/echo", command=bentoml_command, env={"BENTOML_DO_NOT_TRACK": "True"}
    ),
}


@contextlib.contextmanager
def running_peer(name: str, port: int, workers: int) -> Iterator[Served]:
    """The peer with an echo model, ready. All its processes are ended afterwards.

    Raises PeerMissingError, or RuntimeError with the end of its log if it does not start.
    """
    peer = PEERS[name]
    environment = gateway_environment(name)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                peer.command(environment, port, workers),
                env={
                    **os.environ,
                    "PATH": f"{environment / 'bin'}:{os.environ.get('PATH', '')}",
                    "ECHO_WORKERS": str(workers),
                    **peer.env,
                },
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                process_group=0,
            )
        try:
            wait_until_it_echoes(process, port, peer.path, log)
            yield Served(port=port, path=peer.path, pids=(process.pid,))
        finally:
            process_tree.stop(process)


def wait_until_it_echoes(
    process: "subprocess.Popen[bytes]", port: int, path: str, log: Path
) -> None:
    """Return once the server echoes the question. Raises RuntimeError if it never does."""
    give_up_at_s = time.monotonic() + READY_TIMEOUT_S
    while echoed(port, path) != QUESTION:
        if process.poll() is not None or time.monotonic() > give_up_at_s:
            raise RuntimeError(f"port {port} did not echo:\n{log_tail(log)}")
        time.sleep(POLL_S)


def echoed(port: int, path: str) -> object:
    """The server's answer to the question, or None without an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(connection):
        try:
            connection.request("POST", path, BODY, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return msgspec.json.decode(answer.read()) if answer.status == 200 else None
        except (OSError, http.client.HTTPException, msgspec.DecodeError):
            return None
