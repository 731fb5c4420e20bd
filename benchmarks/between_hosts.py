"""Cost of a copy on another host: an echo copy on loopback, and behind a node proxy, in one run.

``python -m benchmarks.between_hosts [--setting tiny|short]``. Both hosts are this machine, so the
figures show the cost of the node proxy and of TLS at both ends, without a network.
"""

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.gateway_load import run_load, signed_request
from benchmarks.load import Load
from benchmarks.record import print_table, write_result
from benchmarks.stack import (
    Stack,
    cpu_s,
    routes_of,
    running_echo,
    running_workers,
    stopped_after,
)
from hostelry.base.clock import SystemClock, monotonic_s
from hostelry.base.files import write_whole
from hostelry.base.peers import PeerRole
from hostelry.base.ports import free_port
from hostelry.base.tls import TlsFolder
from hostelry.cluster.host_files import HostFiles
from hostelry.domain.routes import CopyRoute
from hostelry.fleet.records import CopyRecord, InstanceFolder
from hostelry.home.home import Home, UpConfig, new_credentials, save_config, save_credentials

READY_S = 20.0
SETTINGS = {"tiny": (0.3, 1), "short": (4.0, 3)}  # seconds of a measurement, rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A gateway with its copy on loopback, another with the same copy behind a node proxy."""

    local: Stack
    remote: Stack
    proxy_pid: int


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="short")
    setting = parser.parse_args().setting
    seconds, rounds = SETTINGS[setting]
    with running_pair() as pair:
        rows = [measure_pair(pair, it, seconds, rounds) for it in (1, 32)]
    print_table("A copy behind a node proxy over one on loopback, 1 KB bodies", rows)
    write_result("between_hosts", setting, 0, {"rows": rows})


@contextlib.contextmanager
def running_pair() -> Iterator[Pair]:
    """Both gateways, with one echo model server."""
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        echo = stack.enter_context(running_echo())
        credentials = new_credentials("111122223333", "us-west-2")
        stacks = []
        proxy_pid = 0
        for name in ("local", "remote"):
            home = Home(root / name)
            home.make()
            save_credentials(home, credentials)
            config = UpConfig(gateway_port=free_port(), control_port=free_port())
            save_config(home, config)
            address = f"http://127.0.0.1:{echo.port}"
            if name == "remote":
                HostFiles(TlsFolder(home.tls), "one").make(
                    PeerRole.CONTROL, "first", SystemClock().now()
                )
                copy = InstanceFolder(home.instances / "i-1").copy("c-echo")
                copy.root.mkdir(parents=True)
                copy.save(CopyRecord(spec_digest="", port=echo.port))
                proxy_pid, port = stack.enter_context(running_proxy(home))
                address = f"https://c-echo@127.0.0.1:{port}"
            routes = routes_of(credentials, (CopyRoute(id="c-echo", address=address),), {})
            write_whole(home.routes, msgspec.json.encode(routes))
            workers = stack.enter_context(running_workers(home, config))
            made = Stack(
                credentials=credentials,
                gateway_port=config.gateway_port,
                echo_port=echo.port,
                echo_pid=echo.pid,
                gateway_pids=tuple(worker.pid for worker in workers),
            )
            stacks.append(made)
        yield Pair(local=stacks[0], remote=stacks[1], proxy_pid=proxy_pid)


@contextlib.contextmanager
def running_proxy(home: Home) -> Iterator[tuple[int, int]]:
    """A node proxy's pid and port."""
    port_file = home.root / "port"
    command = [sys.executable, "-m", "hostelry.services.node_proxy", "--home", str(home.root)]
    command += ["--host", "127.0.0.1", "--port", "0", "--port-file", str(port_file)]
    command += ["--instance-id", "i-1"]
    with stopped_after(subprocess.Popen(command, stderr=subprocess.DEVNULL)) as process:
        give_up_at_s = monotonic_s() + READY_S
        while not port_file.exists():
            if process.poll() is not None or monotonic_s() > give_up_at_s:
                raise RuntimeError("the node proxy did not start")
            time.sleep(0.02)
        yield process.pid, int(port_file.read_text())


def measure_pair(pair: Pair, num_connections: int, seconds: float, rounds: int) -> dict[str, Any]:
    """A row: medians of alternating rounds."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, stack in (("local", pair.local), ("remote", pair.remote)):
            load = Load(
                port=stack.gateway_port,
                requests=[signed_request(stack, "invocations", b"x" * 1024, {})],
                num_connections=num_connections,
                duration_s=seconds,
                warm_up_s=min(0.5, seconds),
                streams=False,
            )
            before = (stack.gateway_cpu_s, cpu_s(pair.proxy_pid))
            result = run_load(load)
            total = max(1, result.total)
            for key, value in (
                ("p50 ms", result.p50_ms),
                ("per s", result.per_s),
                ("gateway cpu us", (stack.gateway_cpu_s - before[0]) / total * 1e6),
                ("proxy cpu us", (cpu_s(pair.proxy_pid) - before[1]) / total * 1e6),
                ("errors", result.errors),
            ):
                found.setdefault(f"{name} {key}", []).append(value)
    row = {key: statistics.median(values) for key, values in found.items()}
    ratio = row["remote p50 ms"] / row["local p50 ms"] if row["local p50 ms"] else 0.0
    row["errors"] = row.pop("local errors") + row.pop("remote errors")
    row.pop("local proxy cpu us")
    return {"connections": num_connections, "p50 ratio": ratio} | row


if __name__ == "__main__":
    main()
