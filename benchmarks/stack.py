"""What a measurement of the door needs: a home, echo model servers, and a real gateway process."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import CopyRoute, EndpointRoute, RouteSnapshot, VariantRoute
from hostelry.domain.scope import Scope
from hostelry.server.home import (
    Credentials,
    Home,
    UpConfig,
    new_credentials,
    save_config,
    save_credentials,
    write_private,
)

ENDPOINT_NAME = "echo"
READY_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Running processes: an echo model server and a gateway whose endpoint ``echo`` leads to it."""

    credentials: Credentials
    door_port: int
    echo_port: int
    gateway_pid: int

    @property
    def gateway_cpu_s(self) -> float:
        """Processor time that the gateway has used; unlike latency, it bears a busy machine."""
        fields = Path(f"/proc/{self.gateway_pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running_stack() -> Iterator[Stack]:
    """Start both and stop them afterwards; the gateway has its routes from its file."""
    with tempfile.TemporaryDirectory() as folder, running_echo() as echo_port:
        home = Home(Path(folder) / "home")
        home.make()
        credentials = new_credentials("111122223333", "us-west-2")
        save_credentials(home, credentials)
        config = UpConfig(door_port=free_port(), control_port=free_port())
        save_config(home, config)
        copies = (CopyRoute(id="c-echo", address=f"http://127.0.0.1:{echo_port}"),)
        write_private(home.routes, msgspec.json.encode(one_endpoint(credentials, copies)))
        command = [sys.executable, "-m", "hostelry.server.gateway", "--home", str(home.root)]
        with stopped_after(subprocess.Popen(command, stderr=subprocess.DEVNULL)) as gateway:
            wait_for_door(config.door_url, gateway)
            yield Stack(
                credentials=credentials,
                door_port=config.door_port,
                echo_port=echo_port,
                gateway_pid=gateway.pid,
            )


@contextlib.contextmanager
def running_echo() -> Iterator[int]:
    """An echo model server; gives its port."""
    command = [sys.executable, "-m", "benchmarks.echo_model"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with stopped_after(process):
        assert process.stdout is not None  # it was asked for
        with process.stdout:
            yield int(process.stdout.readline().split()[1])


@contextlib.contextmanager
def stopped_after(
    process: subprocess.Popen[str] | subprocess.Popen[bytes],
) -> Iterator[subprocess.Popen[str] | subprocess.Popen[bytes]]:
    """Terminate `process` at the end, kill it if it does not heed."""
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def one_endpoint(credentials: Credentials, copies: tuple[CopyRoute, ...]) -> RouteSnapshot:
    """Routes with the model endpoint ``echo`` on `copies`."""
    variant = VariantRoute(
        name="AllTraffic",
        weight=1.0,
        routing=RoutingStrategy.LEAST_OUTSTANDING_REQUESTS,
        copies=copies,
    )
    endpoint = EndpointRoute(
        scope=Scope(credentials.account_id, credentials.region),
        name=ENDPOINT_NAME,
        takes_components=False,
        variants=(variant,),
    )
    return RouteSnapshot(version="1", endpoints=(endpoint,))


def free_port() -> int:
    """A loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_door(url: str, process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Return once the door answers; raises RuntimeError where it does not come up."""
    give_up_at_s = monotonic_s() + READY_TIMEOUT_S
    while process.poll() is None and monotonic_s() < give_up_at_s:
        with contextlib.suppress(OSError), urlopen(f"{url}/ping", timeout=1):
            return
    raise RuntimeError(f"the gateway did not answer at {url} within {READY_TIMEOUT_S:g} s")
