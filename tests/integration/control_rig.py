"""A home with a real control process and real agents. Tests call control as the gateway does."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import httpx
from botocore.config import Config
from botocore.exceptions import ClientError
from tests.integration.agent_rig import IMAGES

from hostelry.base.ports import free_port
from hostelry.fleet.local.fleet import LocalFleet
from hostelry.fleet.records import instance_folders
from hostelry.home.home import (
    Credentials,
    Home,
    UpConfig,
    new_credentials,
    save_config,
    save_credentials,
)

WAIT_S = 60.0
ROLE = "arn:aws:iam::111122223333:role/HostelryExecutionRole"


class ControlUnderTest:
    """A home folder, and its present control process."""

    def __init__(
        self, root: Path, s3_endpoint: str | None = None, store_url: str | None = None
    ) -> None:
        self.home = Home(root / "home")
        self.home.make()
        self.credentials: Credentials = new_credentials(
            "111122223333", "us-west-2", "AKIATEST", "secret-of-the-test"
        )
        self.port = free_port()
        self.log = root / "control.log"
        save_credentials(self.home, self.credentials)
        save_config(self.home, self._config(s3_endpoint, store_url))
        self.home.images.write_text(IMAGES)
        self.process: subprocess.Popen[bytes] | None = None
        self._clients: list[Any] = []

    def _config(self, s3_endpoint: str | None, store_url: str | None) -> UpConfig:
        return UpConfig(control_port=self.port, s3_endpoint=s3_endpoint, store_url=store_url)

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

    @property
    def command(self) -> list[str]:
        module = ["-m", "hostelry.control.main"]
        return [sys.executable, *module, "--home", str(self.home.root)]

    def begin(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def start(self) -> None:
        self.begin()
        self.until(lambda: self.health().get("ready"), "control is ready")

    def _get(self, path: str, timeout_s: float) -> httpx.Response:
        url = f"{self.url}/internal/{path}"
        return httpx.get(url, headers=self.headers, timeout=timeout_s, verify=False)

    def health(self) -> dict[str, Any]:
        try:
            answer = self._get("health", 5)
        except httpx.TransportError:
            return {}
        found: dict[str, Any] = answer.json()
        return found

    def kill(self, number: int = signal.SIGKILL) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(20)

    def client(self, service: str = "sagemaker") -> Any:
        """A client that calls control as the gateway does."""
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
        self._clients.append(client)
        return client

    def state(self) -> dict[str, Any]:
        answer = self._get("state", 10)
        found: dict[str, Any] = answer.json()
        return found

    def agents(self) -> dict[str, int]:
        """The pid of the agent of each instance."""
        found: dict[str, int] = {}
        for folder in instance_folders(self.home.instances):
            record = folder.load_agent()
            if record is not None:
                found[folder.root.name] = record.process.pid
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
        for client in self._clients:
            client.close()
        if self.process is not None and self.process.poll() is None:
            self.kill()
        fleet = LocalFleet(self.home.instances, ["false"], self.credentials.internal_key)

        async def terminate() -> None:
            for folder in instance_folders(self.home.instances):
                await fleet.terminate(folder.root.name)

        asyncio.run(terminate())


def create_endpoint(sagemaker: Any, name: str) -> None:
    create_config(sagemaker, name)
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)


def create_config(sagemaker: Any, name: str, instance_type: str = "ml.m5.large") -> None:
    sagemaker.create_endpoint_config(
        EndpointConfigName=name,
        ExecutionRoleArn=ROLE,
        ProductionVariants=[
            {"VariantName": "AllTraffic", "InstanceType": instance_type, "InitialInstanceCount": 1}
        ],
    )


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
