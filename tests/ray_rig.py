"""A Ray cluster of its own for a test: nodes as processes on loopback addresses, ended by pid."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from hostelry.base.clock import monotonic_s
from hostelry.base.ports import free_port

STARTED = "Ray runtime started"
PATIENCE_S = 120.0
# A dead node is known in about three seconds, see docs/cluster.md.
HEALTH = {
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
}


@dataclass
class RayCluster:
    """Nodes by address; the first is the head."""

    address: str
    folder: Path
    environment: Mapping[str, str]
    nodes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def add(self, resources: Mapping[str, float], *options: str) -> str:
        """Start a node, and wait until it runs; its address."""
        ip = self.address.rpartition(":")[0] if not self.nodes else _loopback()
        log = self.folder / f"{ip}.log"
        where = [f"--address={self.address}"]
        if not self.nodes:
            port = self.address.rpartition(":")[2]
            where = ["--head", f"--port={port}", "--include-dashboard=false"]
            where += [f"--dashboard-port={free_port()}", f"--temp-dir={self.folder}/t"]
        temporary = self.folder / ip  # the node homes of the node's instances are in it
        temporary.mkdir()
        with log.open("wb") as output:
            self.nodes[ip] = subprocess.Popen(
                [
                    str(Path(sys.executable).with_name("ray")),
                    "start",
                    "--block",
                    f"--node-ip-address={ip}",
                    "--num-cpus=0",
                    "--object-store-memory=80000000",
                    "--include-log-monitor=false",
                    "--min-worker-port=0",
                    "--max-worker-port=0",
                    f"--resources={msgspec.json.encode(dict(resources)).decode()}",
                    *where,
                    *options,
                ],
                env=dict(self.environment) | {"TMPDIR": str(temporary)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = monotonic_s() + PATIENCE_S
        while STARTED not in (text := log.read_text(errors="replace")):
            assert self.nodes[ip].poll() is None, text
            assert monotonic_s() < deadline, text
            time.sleep(0.05)
        return ip

    def processes(self, ip: str) -> list[int]:
        """Processes of the node: of Ray's own session, and agents, copies and watchdogs."""
        folder, session = f"{self.folder / ip}/".encode(), self.nodes[ip].pid
        found = []
        for path in Path("/proc").iterdir():
            with suppress(OSError):
                if path.name.isdecimal() and (
                    os.getsid(int(path.name)) == session
                    or folder in (path / "cmdline").read_bytes()
                    or folder in (path / "environ").read_bytes()
                ):
                    found.append(int(path.name))
        return found

    def running(self, ip: str, module: str) -> list[int]:
        """Processes of the node that run `module`."""
        found = []
        for pid in self.processes(ip):
            with suppress(OSError):
                if module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    found.append(pid)
        return found

    def kill(self, ip: str) -> None:
        """Kill the node, as a machine that loses power: everything that runs on it."""
        for pid in self.processes(ip):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.nodes.pop(ip).wait()


@contextmanager
def ray_cluster(resources: Mapping[str, float], *options: str) -> Iterator[RayCluster]:
    """A head with `resources`, and a token of its own; the process's environment can reach it."""
    folder = Path(tempfile.mkdtemp(prefix="hr-"))  # short: Ray has sockets in it
    settings = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        **HEALTH,
    }
    cluster = RayCluster(
        address=f"{_loopback()}:{free_port()}",
        folder=folder,
        environment=dict(os.environ) | settings,
    )
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
            patch.setenv(name, settings[name])
        try:
            cluster.add(resources, *options)
            yield cluster
        finally:
            for ip in reversed(list(cluster.nodes)):
                cluster.kill(ip)
            shutil.rmtree(folder, ignore_errors=True)


def _loopback() -> str:
    """An address of this machine's loopback that no other node has: Ray knows nodes by it."""
    while True:
        ip = "127." + ".".join(str(2 + secrets.randbelow(250)) for _ in range(3))
        with socket.socket() as probe, suppress(OSError):
            probe.bind((ip, 0))
            return ip
