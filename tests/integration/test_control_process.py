"""A real control process with real agents, called as the door calls it, killed and restarted."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from hostelry.fleet.local import LocalFleet
from hostelry.server.home import (
    Credentials,
    Home,
    UpConfig,
    new_credentials,
    save_config,
    save_credentials,
)

pytestmark = pytest.mark.integration

WAIT_S = 60.0
ROLE = "arn:aws:iam::111122223333:role/HostelryExecutionRole"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ControlUnderTest:
    """One home folder, and the control process that lives in it now."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root / "home")
        self.home.make()
        self.credentials: Credentials = new_credentials("111122223333", "us-west-2")
        self.port = free_port()
        self.log = root / "control.log"
        save_credentials(self.home, self.credentials)
        save_config(self.home, UpConfig(control_port=self.port))
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        return {
            "X-Hostelry-Key": self.credentials.internal_key,
            "X-Hostelry-Account": "111122223333",
            "X-Hostelry-Region": "us-west-2",
        }

    def start(self) -> None:
        command = [sys.executable, "-m", "hostelry.server.control", "--home", str(self.home.root)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.until(lambda: self.health().get("ready"), "control is ready")

    def health(self) -> dict[str, Any]:
        try:
            answer = httpx.get(f"{self.url}/internal/health", headers=self.headers, timeout=5)
        except httpx.TransportError:
            return {}
        found: dict[str, Any] = answer.json()
        return found

    def kill(self, number: int = signal.SIGKILL) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(20)

    def client(self, service: str = "sagemaker") -> Any:
        client = boto3.client(
            service,
            endpoint_url=self.url,
            region_name="us-west-2",
            aws_access_key_id=self.credentials.access_key_id,
            aws_secret_access_key=self.credentials.secret_access_key,
            config=Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=30),
        )

        def add_identity(request: Any, **_: object) -> None:
            for name, value in self.headers.items():
                request.headers[name] = value

        client.meta.events.register("before-sign", add_identity)
        return client

    def state(self) -> dict[str, Any]:
        answer = httpx.get(f"{self.url}/internal/state", headers=self.headers, timeout=10)
        found: dict[str, Any] = answer.json()
        return found

    def agents(self) -> dict[str, int]:
        """The pid of each instance's agent."""
        found: dict[str, int] = {}
        for record in self.home.instances.glob("*/agent.json"):
            found[record.parent.name] = json.loads(record.read_bytes())["process"]["pid"]
        return found

    def until(self, holds: Callable[[], Any], what: str) -> None:
        deadline = time.perf_counter() + WAIT_S
        while time.perf_counter() < deadline:
            if holds():
                return
            time.sleep(0.1)
        log = self.log.read_text()[-3000:] if self.log.exists() else ""
        raise AssertionError(f"within {WAIT_S:g} s it did not happen that {what}\n{log}")

    def stop_everything(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
        fleet = LocalFleet(self.home.instances, ["false"], self.credentials.internal_key)

        async def terminate() -> None:
            for folder in list(self.home.instances.iterdir()):
                await fleet.terminate(folder.name)

        asyncio.run(terminate())


@pytest.fixture
def control(tmp_path: Path) -> Iterator[ControlUnderTest]:
    under_test = ControlUnderTest(tmp_path)
    try:
        under_test.start()
        yield under_test
    finally:
        under_test.stop_everything()


def create_endpoint(sagemaker: Any, name: str) -> None:
    sagemaker.create_endpoint_config(
        EndpointConfigName=name,
        ExecutionRoleArn=ROLE,
        ProductionVariants=[
            {"VariantName": "AllTraffic", "InstanceType": "ml.m5.large", "InitialInstanceCount": 1}
        ],
    )
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)


def endpoint_status(sagemaker: Any, name: str) -> str | None:
    try:
        found: str = sagemaker.describe_endpoint(EndpointName=name)["EndpointStatus"]
    except ClientError as error:
        if "Could not find" in str(error):
            return None
        raise
    return found


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_an_endpoint_lives_through_the_death_of_control_and_of_its_agent(
    control: ControlUnderTest,
) -> None:
    sagemaker = control.client()
    create_endpoint(sagemaker, "first")
    control.until(lambda: endpoint_status(sagemaker, "first") == "InService", "first serves")
    agents = control.agents()
    assert len(agents) == 1

    control.kill()
    control.start()
    assert endpoint_status(sagemaker, "first") == "InService"
    assert control.agents() == agents, "agents are adopted, not started again"

    ((instance_id, pid),) = agents.items()
    os.kill(pid, signal.SIGKILL)
    control.until(lambda: control.agents().get(instance_id) not in (None, pid), "the agent is back")
    assert endpoint_status(sagemaker, "first") == "InService"
    assert set(control.agents()) == {instance_id}

    assert control.kill(signal.SIGTERM) == 0
    assert is_running(control.agents()[instance_id]), "agents outlive control"
    control.start()
    pids = list(control.agents().values())
    sagemaker.delete_endpoint(EndpointName="first")
    control.until(lambda: endpoint_status(sagemaker, "first") is None, "first is gone")
    assert not any(is_running(it) for it in pids)
    assert control.state()["endpoints"] == []


def test_nothing_acknowledged_is_lost_by_killing_control_in_the_middle(
    control: ControlUnderTest,
) -> None:
    sagemaker = control.client()
    acknowledged: list[str] = []
    for number in range(60):
        name = f"config-{number}"
        try:
            sagemaker.create_endpoint_config(
                EndpointConfigName=name,
                ExecutionRoleArn=ROLE,
                ProductionVariants=[
                    {
                        "VariantName": "AllTraffic",
                        "InstanceType": "ml.m5.large",
                        "InitialInstanceCount": 1,
                    }
                ],
            )
            acknowledged.append(name)
            if number == 20:
                create_endpoint(sagemaker, "in-the-middle")
            if number == 30:
                assert control.process is not None
                control.process.kill()
        except BotoCoreError:
            continue  # not acknowledged
    assert 30 <= len(acknowledged) < 60
    assert control.process is not None
    control.process.wait(20)
    control.start()
    for name in acknowledged:
        assert sagemaker.describe_endpoint_config(EndpointConfigName=name)
    control.until(
        lambda: endpoint_status(sagemaker, "in-the-middle") == "InService", "the endpoint serves"
    )
    assert len(control.agents()) == 1


def test_what_careless_and_hostile_callers_are_answered(control: ControlUnderTest) -> None:
    http = httpx.Client(base_url=control.url, timeout=30)
    key = control.credentials.internal_key
    for headers in ({}, {"X-Hostelry-Key": "x"}, {"X-Hostelry-Key": key[:-1]}):
        for method, path in [
            ("POST", "/"),
            ("GET", "/internal/state"),
            ("GET", "/internal/routes"),
        ]:
            refused = http.request(method, path, headers=headers)
            assert refused.status_code == 403
            assert key not in refused.text

    nameless = http.post("/", headers={"X-Hostelry-Key": key})
    assert nameless.status_code == 403

    target = {
        "X-Amz-Target": "SageMaker.CreateEndpoint",
        "Content-Type": "application/x-amz-json-1.1",
    }
    own = {**control.headers, **target, "X-Hostelry-Request-Id": "rid-1"}
    for body in [b"", b"{", b"[]", b"\xff\xfe", b'{"EndpointName": 1}', b"{" * 100_000]:
        answer = http.post("/", headers=own, content=body)
        assert answer.status_code == 400, body[:20]
        assert answer.headers["x-amzn-requestid"] == "rid-1"
        assert answer.json()["__type"]

    unknown = http.post(
        "/", headers={**own, "X-Amz-Target": "SageMaker.ListClusters"}, content=b"{}"
    )
    assert unknown.status_code in (400, 404, 501)
    assert "ListClusters" in unknown.text

    with pytest.raises(ClientError, match="Could not find"):
        control.client().describe_endpoint(EndpointName="nowhere")
    assert control.client("sts").get_caller_identity()["Account"] == "111122223333"

    assert control.health()["status"] == "ok"
    routes = http.get("/internal/routes", headers=control.headers)
    assert routes.status_code == 200
    assert routes.json()["endpoints"] == []
    again = http.get("/internal/routes", params={"have": "older"}, headers=control.headers)
    assert again.json() == routes.json()
