"""Ray nodes of a drill or a test: processes on addresses of loopback, ended by their ids.

`ray stop` would end every Ray of the machine.
"""

import importlib.util
import json
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL

from hostelry.base.errors import TerminalError
from hostelry.base.ports import free_port
from hostelry.base.proc import processes
from hostelry.fleet.host.processes import identify, send
from hostelry_lab.cluster.small_cluster import clean_environment, end, end_all, names
from hostelry_lab.observer import wait_for

RAY = (sys.executable, "-m", "ray.scripts.scripts", "start", "--block")
RAY_DRILL_MISSING = "Ray is not installed: pip install 'hostelry[ray]'"
STARTED = "Ray runtime started"
START_S = 120.0
END_S = 10.0
# A dead node is detected in about three seconds, see docs/cluster.md.
HEALTH = {
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
}


def ray_missing() -> str | None:
    """Why a Ray cluster cannot run here, or None if it can."""
    return None if importlib.util.find_spec("ray") is not None else RAY_DRILL_MISSING


class RayNodes:
    """Nodes by address, of which the first is the head. All their files are in `folder`.

    `environment` has the variables by which a process reaches the cluster.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hr-"))  # short, since it has sockets
        self.address = f"{_loopback()}:{free_port()}"
        others = clean_environment().items()
        self.environment: Mapping[str, str] = {
            **{name: it for name, it in others if not name.startswith("RAY_")},
            **HEALTH,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}

    def add(self, resources: Mapping[str, float], *more: str) -> str:
        """Start a node with `more` options of `ray start`, wait until it runs, and return its IP.

        Raises TerminalError if it does not start.
        """
        is_head = not self._nodes
        node = self.head if is_head else _loopback()
        temporary, log = self.folder / node, self.folder / f"{node}.log"
        temporary.mkdir()  # has the node homes of its instances
        where = [f"--address={self.address}"]
        if is_head:
            where = ["--head", f"--port={self.address.rpartition(':')[2]}"]
            where += ["--include-dashboard=false", f"--dashboard-port={free_port()}"]
            where += [f"--temp-dir={self.folder}/t"]
        options = ["--num-cpus=0", "--object-store-memory=80000000", "--include-log-monitor=false"]
        options += ["--min-worker-port=0", "--max-worker-port=0"]
        options += [f"--resources={json.dumps(dict(resources))}"]
        with log.open("wb") as output:
            self._nodes[node] = process = subprocess.Popen(
                [*RAY, f"--node-ip-address={node}", *options, *where, *more],
                env={**self.environment, "TMPDIR": str(temporary)},
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

        def has_settled() -> bool | None:
            is_started = STARTED in log.read_text(errors="replace")
            return True if is_started or process.poll() is not None else None

        if wait_for(has_settled, START_S) is None or process.poll() is not None:
            text = log.read_text(errors="replace")[-800:]
            raise TerminalError(f"a Ray node does not start:\n{text}")
        return node

    @property
    def head(self) -> str:
        """The address of the head."""
        return self.address.rpartition(":")[0]

    def processes(self, node: str) -> set[int]:
        """Pids of the node: Ray's own session, agents, copies and watchdogs."""
        folder, session = f"{self.folder / node}/".encode(), self._nodes[node].pid
        return {it.pid for it in processes() if it.session == session or names(it.pid, folder)}

    def nodes_of(self, pids: Collection[int]) -> set[str]:
        """The nodes on which one of these processes runs."""
        return {it for it in self._nodes if not self.processes(it).isdisjoint(pids)}

    def kill(self, node: str) -> None:
        """Kill everything that runs on the node, as if its machine lost power.

        Raises TerminalError if a process is left.
        """

        def is_dead() -> bool | None:
            found = [it for it in map(identify, self.processes(node)) if it is not None]
            send(found, SIGKILL)
            return None if found else True

        dead = wait_for(is_dead, END_S)
        end(self._nodes.pop(node))
        if dead is None:
            raise TerminalError(f"processes of the Ray node {node} do not end by kill -9")

    def close(self) -> None:
        """Kill all nodes, and remove their processes and files."""
        for node in reversed(list(self._nodes)):
            with suppress(TerminalError):
                self.kill(node)
        end_all(str(self.folder).encode())
        shutil.rmtree(self.folder, ignore_errors=True)


def _loopback() -> str:
    """An address of this machine's loopback that no other node has: Ray knows nodes by it."""
    while True:
        ip = "127." + ".".join(str(2 + secrets.randbelow(250)) for _ in range(3))
        with socket.socket() as probe, suppress(OSError):
            probe.bind((ip, 0))
            return ip
