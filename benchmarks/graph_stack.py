"""Fixture of graphs without a platform: an echo model, a gateway, and a server for each graph."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

import msgspec

from benchmarks.stack import (
    READY_TIMEOUT_S,
    Echo,
    Stack,
    routes_of,
    running_echo,
    running_workers,
    stopped_after,
)
from hostelry.aws.temporary_keys import Session, TokenSeal
from hostelry.base.clock import SystemClock, monotonic_s
from hostelry.base.files import write_whole
from hostelry.base.ports import free_port
from hostelry.domain.routes import CopyRoute, RouteSnapshot
from hostelry.graph.document import FILE
from hostelry.home.home import (
    Credentials,
    Home,
    UpConfig,
    new_credentials,
    save_config,
    save_credentials,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphStack:
    """Running processes. `pids` has the process of each graph's server by endpoint."""

    stack: Stack
    echo: Echo
    pids: Mapping[str, int]


@contextlib.contextmanager
def running_graphs(
    documents: Mapping[str, str], num_workers: int = 1, *, reads_json: bool = False
) -> Iterator[GraphStack]:
    """Run the endpoint ``echo``, and one endpoint for each of `documents`, which may call it."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        echo = stack.enter_context(running_echo(reads_json=reads_json))
        home = Home(folder / "home")
        home.make()
        credentials = new_credentials("111122223333", "us-west-2")
        save_credentials(home, credentials)
        config = UpConfig(
            gateway_port=free_port(), control_port=free_port(), gateway_workers=num_workers
        )
        save_config(home, config)
        ports = {name: free_port() for name in documents}
        addresses = {"echo": echo.port, **ports}
        endpoints = tuple(
            endpoint
            for name, port in addresses.items()
            for endpoint in named_routes(credentials, name, port).endpoints
        )
        snapshot = RouteSnapshot(version="1", endpoints=endpoints)
        write_whole(home.routes, msgspec.json.encode(snapshot))
        workers = stack.enter_context(running_workers(home, config))
        pids = {}
        for name, text in documents.items():
            server = stack.enter_context(running_graph(folder / name, text, ports[name]))
            give_keys(ports[name], config.gateway_url, credentials)
            pids[name] = server.pid
        yield GraphStack(
            stack=Stack(
                credentials=credentials,
                gateway_port=config.gateway_port,
                echo_port=echo.port,
                echo_pid=echo.pid,
                gateway_pids=tuple(worker.pid for worker in workers),
            ),
            echo=echo,
            pids=pids,
        )


def named_routes(credentials: Credentials, name: str, port: int) -> RouteSnapshot:
    """Routes with one model endpoint of one copy."""
    copies = (CopyRoute(id=f"c-{name}", address=f"http://127.0.0.1:{port}"),)
    return routes_of(credentials, copies, {}, name)


@contextlib.contextmanager
def running_graph(folder: Path, text: str, port: int) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the server of one graph, without a copy's key."""
    folder.mkdir()
    (folder / FILE).write_text(text)
    environment = {
        **os.environ,
        "HOSTELRY_MODEL_DIR": str(folder),
        "SAGEMAKER_BIND_TO_PORT": str(port),
    }
    command = [sys.executable, "-m", "hostelry.containers.graph"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    with stopped_after(process):
        yield process


def copys_keys(gateway_url: str, credentials: Credentials) -> dict[str, str | float]:
    """Keys as an agent sends them to a graph's server."""
    session = Session(
        access_key_id="ASIABENCHMARK",
        account_id=credentials.account_id,
        expires_at=int(SystemClock().now()) + 3600,
        session_name="i-benchmark",
    )
    keys = TokenSeal(credentials.internal_key).issue(session)
    return {
        "gateway_url": gateway_url,
        "region": credentials.region,
        "access_key_id": keys.access_key_id,
        "secret_access_key": keys.secret_access_key,
        "session_token": keys.session_token,
        "expires_at": float(keys.expires_at),
    }


def give_keys(port: int, gateway_url: str, credentials: Credentials) -> None:
    """Send the server keys, as an agent does, once it listens."""
    body = copys_keys(gateway_url, credentials)
    url = f"http://127.0.0.1:{port}/credentials"
    give_up_at_s = monotonic_s() + READY_TIMEOUT_S
    while True:
        try:
            request = Request(url, msgspec.json.encode(body), method="PUT")
            with urlopen(request, timeout=5):
                return
        except OSError:
            if monotonic_s() > give_up_at_s:
                raise
            time.sleep(0.02)
