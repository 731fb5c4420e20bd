"""Gateways on two hosts, which are two homes here, before one control that a test can script."""

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import boto3
import httpx
import msgspec
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from tests.integration.gateway_rig import (
    SCOPE,
    WAIT_S,
    EchoProcess,
    FakeControl,
    GatewayRig,
    model_endpoint,
    snapshot_of,
    until,
)
from tests.integration.platform import clean_environment
from tests.integration.test_gateway_sessions import NEW, SessionProcess

from hostelry.base.clock import SystemClock
from hostelry.base.json import decode
from hostelry.base.ports import free_port
from hostelry.dataplane.shared.count_table import CountTable
from hostelry.domain.load import LoadReport
from hostelry.home.home import Home, load_config, save_config, save_credentials
from hostelry.metrics.sagemaker.load_aggregator import LoadAggregator

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
COMMAND = (sys.executable, "-m", "hostelry.cli.main")
DRAIN_S = 5.0  # in which a busy machine serves a few requests


class LeadingControl(FakeControl):
    """A control that leads, knows the hosts with gateways, and adds up their load."""

    def __init__(self, rig: GatewayRig) -> None:
        self.url = rig.config.control_url
        self.hosts: dict[str, str] = {}
        self.aggregator = LoadAggregator(0.0)
        self._connections: set[socket.socket] = set()
        super().__init__(rig)

    def kill(self) -> None:
        """Stop as a killed process does: at once, with every connection."""
        self.stop()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def give_routes(self, handler: BaseHTTPRequestHandler) -> None:
        self._connections.add(handler.connection)
        if handler.path == "/internal/leader":
            led = {"leader": self.url, "epoch": 1, "controls": [self.url]}
            self._send(handler, 200, msgspec.json.encode(led))
        else:
            super().give_routes(handler)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self._connections.add(handler.connection)
        if handler.path not in ("/internal/gateway-hosts", "/internal/load"):
            super().answer(handler)
            return
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        if handler.path == "/internal/load":
            self.aggregator.take(decode(body, LoadReport), SystemClock().now())
            self._send(handler, 204, b"")
            return
        host = json.loads(body)
        self.hosts[host["host_id"]] = host["address"]
        known = [{"host_id": key, "address": self.hosts[key]} for key in sorted(self.hosts)]
        self._send(handler, 200, msgspec.json.encode({"hosts": known}))


class GatewayHostProcess:
    """`hostelry gateway` with a separate home."""

    def __init__(self, root: Path, rig: GatewayRig, name: str) -> None:
        self.home = Home(root / name)
        self.home.make()
        save_credentials(self.home, rig.credentials)
        controls = (rig.config.control_url,)
        save_config(self.home, replace(rig.config, controls=controls, host_id=name))
        self.port = free_port()
        self.clients: list[Any] = []
        self._keys = rig.credentials

    def cli(self, *arguments: str) -> str:
        done = subprocess.run(
            [*COMMAND, *arguments, "--home", str(self.home.root)],
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self) -> None:
        self.cli(
            *("gateway", "--detach", "--port", str(self.port), "--gateway-workers", "2"),
            *("--drain-s", str(DRAIN_S)),
        )

    def health(self) -> int:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
                return int(answer.status)
        except HTTPError as error:
            with error:
                return error.code

    def client(self, service: str = "sagemaker-runtime") -> Any:
        made = boto3.client(
            service,
            endpoint_url=f"http://127.0.0.1:{self.port}",
            region_name=SCOPE.region,
            aws_access_key_id=self._keys.access_key_id,
            aws_secret_access_key=self._keys.secret_access_key,
            config=Config(
                retries={"total_max_attempts": 1}, read_timeout=WAIT_S, max_pool_connections=32
            ),
        )
        self.clients.append(made)
        return made


class Cluster:
    """One control, two hosts, echo copies and copies with sessions."""

    def __init__(self, root: Path) -> None:
        self.rig = GatewayRig(root)
        self.control = LeadingControl(self.rig)
        self.echoes = [EchoProcess(str(number)) for number in range(4)]
        self.talks = [SessionProcess(f"t-{number}") for number in range(2)]
        self.publish("1")
        self.one, self.two = (GatewayHostProcess(root, self.rig, it) for it in ("h-1", "h-2"))
        with ThreadPoolExecutor() as starting:
            list(starting.map(lambda it: it.start(), (self.one, self.two)))

    def publish(self, version: str) -> None:
        self.control.publish(
            snapshot_of(
                version,
                model_endpoint("echo", *(it.route for it in self.echoes)),
                model_endpoint("talks", *(it.route for it in self.talks)),
            )
        )

    def stop(self) -> None:
        for host in (self.one, self.two):
            host.cli("down")
            for client in host.clients:
                client.close()
        self.control.kill()
        for echo in self.echoes:
            echo.kill()
        for talk in self.talks:
            talk.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("hosts"))
    try:
        yield made
    finally:
        made.stop()


def asleep(client: Any, sleep_ms: int) -> bytes:
    answer = client.invoke_endpoint(
        EndpointName="echo", Body=b"hello", CustomAttributes=f"sleep_ms={sleep_ms}"
    )
    return bytes(answer["Body"].read())


def test_requests_of_both_hosts_spread_as_if_they_were_one(cluster: Cluster) -> None:
    until(lambda: len(cluster.control.hosts) == 2, "both hosts report themselves")
    clients = [cluster.one.client(), cluster.two.client()]
    began = int(SystemClock().now())
    with ThreadPoolExecutor(16) as callers, contextlib.ExitStack() as opened:
        tables = [
            opened.enter_context(
                contextlib.closing(CountTable(host.home.counts, 2, has_others=True))
            )
            for host in (cluster.one, cluster.two)
        ]
        until(lambda: all(it.share for it in tables), "each host knows the other")
        asking = []
        for number in range(8):  # two for each copy, from both hosts in turn
            asking.append(callers.submit(asleep, clients[number % 2], 9000))
            both_count = partial(lambda num: [it.total for it in tables] == [num] * 2, number + 1)
            until(both_count, "both hosts count it")
        assert [it.asked("/asleep") for it in cluster.echoes] == [2, 2, 2, 2]
        assert [it.result() for it in asking] == [b"hello"] * 8

    def most_at_once() -> float:
        aggregator = cluster.control.aggregator
        aggregator.tick(SystemClock().now())
        loads = [
            load
            for key in aggregator.keys()  # noqa: SIM118 - it is not a mapping
            if key.endpoint_name == "echo"
            for load in aggregator.recent(key, began)
        ]
        return max((it.in_flight_mean for it in loads), default=0.0)

    until(lambda: most_at_once() > 7.5, "control sees the requests of both hosts together")
    assert most_at_once() <= 8.0


def test_a_session_that_one_host_opened_is_served_by_both(cluster: Cluster) -> None:
    one, two = cluster.one.client(), cluster.two.client()
    for _ in range(8):
        opened = one.invoke_endpoint(
            EndpointName="talks", SessionId="NEW_SESSION", Body=json.dumps(NEW)
        )
        opened["Body"].read()
        session_id = opened["NewSessionId"].partition(";")[0]
        pids = set()
        for client in (two, one, two):
            answer = client.invoke_endpoint(
                EndpointName="talks", SessionId=session_id, Body=b'{"said": 1}'
            )
            pids.add(json.loads(answer["Body"].read())["pid"])
        assert len(pids) == 1
    closed = two.invoke_endpoint(
        EndpointName="talks", SessionId=session_id, Body=json.dumps({"requestType": "CLOSE"})
    )
    closed["Body"].read()

    def refusal() -> str:
        with pytest.raises(ClientError) as failure:
            one.invoke_endpoint(EndpointName="talks", SessionId=session_id, Body=b'{"said": 1}')
        return str(failure.value.response["Error"]["Code"])

    until(lambda: refusal() == "ValidationError", "the other host knows that it is closed")


def test_control_calls_go_to_the_leader_and_both_hosts_serve_without_it(cluster: Cluster) -> None:
    assert cluster.two.client("sagemaker").list_endpoints()["Endpoints"] == []
    call, headers, _ = cluster.control.calls.get(timeout=WAIT_S)
    assert (call, headers["x-hostelry-account"]) == ("POST /", SCOPE.account)
    link = load_config(cluster.two.home).control_url
    body = b"x" * 5_000_000
    key = {"X-Hostelry-Key": cluster.rig.credentials.internal_key}
    assert httpx.post(f"{link}/large", content=body, headers=key, timeout=WAIT_S).status_code == 200
    assert httpx.post(f"{link}/large", content=b"x", timeout=WAIT_S).status_code == 403
    assert cluster.control.calls.get(timeout=WAIT_S)[2] == body
    cluster.control.kill()
    with pytest.raises(ClientError, match="no leader") as away:
        cluster.two.client("sagemaker").list_endpoints()
    assert away.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
    victim = cluster.echoes[0]
    victim.kill()
    for host in (cluster.one, cluster.two):
        assert host.health() == 200
        assert {asleep(host.client(), 0) for _ in range(8)} == {b"hello"}
    victim.restart()
    cluster.control = LeadingControl(cluster.rig)
    cluster.publish("2")
    admin = cluster.two.client("sagemaker")

    def is_answered() -> bool:
        with contextlib.suppress(ClientError):
            return not admin.list_endpoints()["Endpoints"]
        return False

    until(is_answered, "the control that is back answers")
    until(lambda: len(cluster.control.hosts) == 2, "both hosts report themselves again")


def test_a_gateway_that_leaves_fails_no_request(cluster: Cluster) -> None:
    """The load balancer is this test: it asks /health, and sends where the answer is 200."""
    client = cluster.two.client()
    down = threading.Thread(target=lambda: cluster.two.cli("down"))
    with ThreadPoolExecutor(8) as callers:
        long = callers.submit(asleep, client, 7000)  # longer than the drain
        until(lambda: sum(it.asked("/asleep") for it in cluster.echoes) == 1, "it runs")
        down.start()
        while cluster.two.health() == 200:
            assert asleep(client, 0) == b"hello"
        for _ in range(4):  # a load balancer that is late
            assert asleep(client, 1) == b"hello"
        assert long.result() == b"hello"
    down.join()
    assert cluster.one.health() == 200
    assert asleep(cluster.one.client(), 0) == b"hello"
    cluster.two.start()
    assert cluster.two.health() == 200
    assert load_config(cluster.two.home).host_id == "h-2"
