"""Starting a server process and waiting until it answers."""

import contextlib
import http.client
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.completions import HttpBatches
from benchmarks.peers.contestant import Contestant, log_tail
from benchmarks.peers.process_tree import stop

READY_TIMEOUT_S = 300.0
POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a server is started. It is ready once `health_path` answers 200."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    log: Path
    health_path: str
    batches: HttpBatches


def start_server(launch: Launch) -> Contestant:
    """A server that is ready. Raises RuntimeError with the end of its log if it fails."""
    started_s = time.monotonic()
    with launch.log.open("wb") as sink:
        process = subprocess.Popen(
            list(launch.command),
            env=dict(launch.env),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            process_group=0,  # an interrupt ends the rounds, not the engines
        )
    port = launch.batches.port
    while not _healthy(port, launch.health_path):
        waited_s = time.monotonic() - started_s
        if process.poll() is not None or waited_s > READY_TIMEOUT_S:
            stop(process)
            raise RuntimeError(
                f"{launch.name} was not ready after {waited_s:.0f} s:\n{log_tail(launch.log)}"
            )
        time.sleep(POLL_S)
    return Contestant(launch.name, process, launch.batches, time.monotonic() - started_s)


def _healthy(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", path)
        return connection.getresponse().status == 200
    return False
