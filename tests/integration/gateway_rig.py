"""A real gateway process with real echo model servers, and a control that tests script."""

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import boto3
import msgspec
from benchmarks.stack import stopped_after, wait_for_gateway
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials as SigningCredentials

from hostelry.base.clock import monotonic_s
from hostelry.base.files import write_whole
from hostelry.base.ports import free_port
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import (
    ComponentRoute,
    CopyRoute,
    EndpointRoute,
    RouteSnapshot,
    VariantRoute,
)
from hostelry.domain.scope import Scope
from hostelry.home.home import Home, UpConfig, new_credentials, save_config, save_credentials
from hostelry.principals.table import PolicyRow, PrincipalRow, PrincipalTable, principal_key

WAIT_S = 60.0
SCOPE = Scope("111122223333", "us-west-2")


class EchoProcess:
    """An echo model server. It keeps its `port` when it is killed and started again."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = free_port()
        self.process = self._start()

    @property
    def route(self) -> CopyRoute:
        return CopyRoute(id=f"c-{self.name}", address=f"http://127.0.0.1:{self.port}")

    def asked(self, path: str) -> int:
        """The server's answer about itself at `path`."""
        with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
            return int(answer.read())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def restart(self) -> None:
        self.process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "benchmarks.echo_model", "--port", str(self.port)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready")
        return process


class GatewayRig:
    """A home, and its present gateway process."""

    def __init__(self, root: Path, **config: Any) -> None:
        self.home = Home(root / "home")
        self.home.make()
        self.credentials = new_credentials(SCOPE.account, SCOPE.region)
        save_credentials(self.home, self.credentials)
        self.config = UpConfig(gateway_port=free_port(), control_port=free_port(), **config)
        save_config(self.home, self.config)
        self.log = root / "gateway.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._clients: list[Any] = []

    def publish(self, snapshot: RouteSnapshot) -> None:
        """Write routes to disk, as an earlier gateway does."""
        write_whole(self.home.routes, msgspec.json.encode(snapshot))

    def publish_role(self, name: str) -> None:
        """Write a role that may do everything to disk, as an earlier gateway does."""
        account = self.credentials.account_id
        statement = {"Effect": "Allow", "Action": "*", "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": statement})
        role = PrincipalRow(
            account=account,
            name=name,
            id="AROATEST",
            arn=f"arn:aws:iam::{account}:role/{name}",
            policies=("all",),
        )
        table = PrincipalTable(
            version="1",
            roles={principal_key(account, name): role},
            policies={"all": PolicyRow(id="all", type="role", document=document)},
        )
        write_whole(self.home.principals, msgspec.json.encode(table))

    def start(self) -> None:
        command = [sys.executable, "-m", "hostelry.services.gateway", "--home", str(self.home.root)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stderr=log)
        wait_for_gateway(self.config.gateway_url, self.process)

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Send a signal, wait for the end, and return the exit code."""
        assert self.process is not None
        os.kill(self.process.pid, number)
        return self.process.wait(WAIT_S)

    def client(self, service: str = "sagemaker-runtime", **changes: Any) -> Any:
        """A boto3 client without retries."""
        given = {
            "endpoint_url": self.config.gateway_url,
            "region_name": SCOPE.region,
            "aws_access_key_id": self.credentials.access_key_id,
            "aws_secret_access_key": self.credentials.secret_access_key,
            "config": Config(retries={"total_max_attempts": 1}, read_timeout=WAIT_S),
        }
        made = boto3.client(service, **(given | changes))
        self._clients.append(made)
        return made

    def close_clients(self) -> None:
        for made in self._clients:
            made.close()

    def signed(
        self,
        path: str,
        body: bytes,
        headers: dict[str, str] | None = None,
        service: str = "sagemaker",
    ) -> bytes:
        """The bytes of a signed POST, for a raw socket."""
        host = f"127.0.0.1:{self.config.gateway_port}"
        request = AWSRequest("POST", f"http://{host}{path}", headers or {}, body)
        keys = self.credentials
        signer = SigningCredentials(keys.access_key_id, keys.secret_access_key)
        SigV4Auth(signer, service, SCOPE.region).add_auth(request)
        lines = [f"{name}: {value}" for name, value in request.headers.items()]
        head = [f"POST {path} HTTP/1.1", f"Host: {host}", *lines, f"Content-Length: {len(body)}"]
        return "\r\n".join([*head, "", ""]).encode() + body

    @contextlib.contextmanager
    def connected(self, *pieces: bytes) -> Iterator[socket.socket]:
        """A raw connection, after these pieces were sent over it."""
        address = ("127.0.0.1", self.config.gateway_port)
        with socket.create_connection(address, timeout=WAIT_S) as connection:
            for piece in pieces:
                connection.sendall(piece)
            yield connection

    def ask(self, *pieces: bytes) -> bytes:
        """Send raw bytes, and return the answer until the gateway closes the connection."""
        with self.connected(*pieces) as connection:
            received = b""
            while piece := connection.recv(65536):
                received += piece
            return received


@contextlib.contextmanager
def running_gateway(
    root: Path, snapshot: RouteSnapshot, role: str = "", **config: Any
) -> Iterator[GatewayRig]:
    """A gateway with routes, and with a role if given, on disk. It is stopped after the block."""
    rig = GatewayRig(root, **config)
    rig.publish(snapshot)
    if role:
        rig.publish_role(role)
    rig.start()
    try:
        yield rig
    finally:
        rig.close_clients()
        assert rig.process is not None
        with stopped_after(rig.process):
            pass


class FakeControl:
    """Control's HTTP. Publishes a given snapshot, records calls and answers them."""

    def __init__(self, rig: GatewayRig) -> None:
        self.calls: queue.Queue[tuple[str, dict[str, str], bytes]] = queue.Queue()
        self.snapshot: RouteSnapshot | None = None
        self._changed = threading.Condition()
        self._key = rig.credentials.internal_key
        control = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                control.give_routes(self)

            def do_POST(self) -> None:
                control.answer(self)

            def log_message(self, *arguments: object) -> None:
                """Log nothing."""

        address = ("127.0.0.1", rig.config.control_port)
        self._server = ThreadingHTTPServer(address, Handler, bind_and_activate=False)
        self._server.daemon_threads = True
        self._server.allow_reuse_address = True
        self._server.server_bind()
        self._server.server_activate()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def publish(self, snapshot: RouteSnapshot) -> None:
        with self._changed:
            self.snapshot = snapshot
            self._changed.notify_all()

    def give_routes(self, handler: BaseHTTPRequestHandler) -> None:
        if handler.headers["X-Hostelry-Key"] != self._key:
            self._send(handler, 403, b"")
            return
        have = handler.path.partition("have=")[2]
        with self._changed:
            self._changed.wait_for(lambda: self.snapshot and self.snapshot.version != have, 5)
            snapshot = self.snapshot
        if snapshot is None or snapshot.version == have:
            self._send(handler, 304, b"")
        else:
            self._send(handler, 200, msgspec.json.encode(snapshot))

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        if handler.path.startswith("/internal/"):  # loads and wakes may come at any time
            self._send(handler, 204, b"")
            return
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.calls.put((f"{handler.command} {handler.path}", headers, body))
        self._send(handler, 200, b'{"Endpoints": []}')

    def stop(self) -> None:
        with self._changed:
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @staticmethod
    def _send(handler: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
        with contextlib.suppress(OSError):
            handler.send_response(status)
            handler.send_header("Content-Type", "application/x-amz-json-1.1")
            if status not in (204, 304):
                handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)


def component(
    name: str, copies: tuple[CopyRoute, ...], adapter_id: str | None = None
) -> ComponentRoute:
    return ComponentRoute(
        name=name,
        variant_name="AllTraffic",
        routing=RoutingStrategy.LEAST_OUTSTANDING_REQUESTS,
        copies=copies,
        adapter_id=adapter_id,
        serves_llm=True,
    )


def components_endpoint(name: str, *components: ComponentRoute) -> EndpointRoute:
    return EndpointRoute(scope=SCOPE, name=name, takes_components=True, components=components)


def model_endpoint(name: str, *copies: CopyRoute) -> EndpointRoute:
    variant = VariantRoute(
        name="AllTraffic",
        weight=1.0,
        routing=RoutingStrategy.LEAST_OUTSTANDING_REQUESTS,
        copies=copies,
    )
    return EndpointRoute(scope=SCOPE, name=name, takes_components=False, variants=(variant,))


def snapshot_of(version: str, *endpoints: EndpointRoute) -> RouteSnapshot:
    return RouteSnapshot(version=version, endpoints=endpoints)


def dead_copy() -> CopyRoute:
    """The route of a copy that refuses connections."""
    return CopyRoute(id="c-dead", address=f"http://127.0.0.1:{free_port()}")


def until(holds: Any, what: str) -> None:
    """Wait until `holds()` is true. After a while fails with a message about `what`."""
    give_up_at = monotonic_s() + WAIT_S
    while not holds():
        if monotonic_s() > give_up_at:
            raise AssertionError(f"never came true: {what}")
        time.sleep(0.02)
