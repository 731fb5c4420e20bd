"""Compositions of an echo model by others, started as their manuals say."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gateway_load import JSON, message
from benchmarks.peers import process_tree
from benchmarks.peers.gateway_peers import PEERS, PROGRAMS, wait_until_it_echoes
from benchmarks.peers.installed import gateway_environment
from hostelry.base.ports import free_port


@dataclass(frozen=True, slots=True, kw_only=True)
class Compositions:
    """What is asked of each contestant, in the names of its `Composed.requests`.

    ``call`` and ``slow call`` ask the model itself, the latter so that it waits `sleep_ms`;
    ``scatter`` asks it `branches` times at once with that wait, ``chain N`` N times in turn.
    """

    body: bytes
    sleep_ms: int
    branches: int
    chains: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """A contestant that answers: whole HTTP requests to `port`, and processes that work on them."""

    port: int
    requests: Mapping[str, bytes]
    pids: tuple[int, ...]

    @property
    def cpu_s(self) -> float:
        """Processor time of all its processes so far."""
        return sum(process_tree.cpu_s(pid) for pid in self.pids)


@contextlib.contextmanager
def running_ray(asked: Compositions) -> Iterator[Composed]:
    """Deployments on Ray Serve; raises PeerMissingError, RuntimeError where it does not start."""
    environment, port = gateway_environment("ray-serve"), free_port()
    given = [str(it) for it in (port, asked.branches, *asked.chains)]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [str(environment / "bin/python"), str(PROGRAMS / "ray_graph.py"), *given],
                env={**os.environ, **PEERS["ray-serve"].env},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                process_group=0,
            )
        try:
            wait_until_it_echoes(process, port, f"/chain-{asked.chains[0]}", log)
            yield Composed(port=port, requests=ray_requests(asked), pids=(process.pid,))
        finally:
            process_tree.stop(process)


def ray_requests(asked: Compositions) -> dict[str, bytes]:
    """Requests by name, as `Compositions` has them."""
    wait = f"?sleep_ms={asked.sleep_ms}"
    paths = {
        "call": "/echo",
        "slow call": f"/echo{wait}",
        "scatter": f"/scatter{wait}",
        **{f"chain {length}": f"/chain-{length}" for length in asked.chains},
    }
    headers = {"Host": "127.0.0.1", "Content-Type": JSON}
    return {name: message(path, headers, asked.body) for name, path in paths.items()}


# Each starts its compositions and ends them; may raise PeerMissingError.
GRAPH_PEERS: dict[str, Callable[[Compositions], AbstractContextManager[Composed]]] = {
    "ray-serve": running_ray,
}
