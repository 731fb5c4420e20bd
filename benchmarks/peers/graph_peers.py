"""Compositions of an echo model by other projects, started as their manuals say."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks.gateway_load import JSON
from benchmarks.peers import process_tree
from benchmarks.peers.composed import Composed, Compositions
from benchmarks.peers.gateway_peers import PEERS, PROGRAMS, wait_until_it_echoes
from benchmarks.peers.installed import gateway_environment
from benchmarks.peers.triton_ensembles import running_triton
from hostelry.base.ports import free_port
from hostelry.loadtest.requests import message


@contextlib.contextmanager
def running_ray(asked: Compositions) -> Iterator[Composed]:
    """Deployments on Ray Serve. Raises PeerMissingError, or RuntimeError if it does not start."""
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


# Each function starts its compositions and ends them. It may raise PeerMissingError.
GRAPH_PEERS: dict[str, Callable[[Compositions], AbstractContextManager[Composed]]] = {
    "ray-serve": running_ray,
    "triton": running_triton,
}
