"""Two whole platforms of one account as cells: an endpoint moves under traffic, a cell dies."""

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.guardrail_rig import ROLE, Traffic
from tests.integration.platform import CLI, Platform, clean_environment, client_session, until
from tests.integration.served_models import packed

from hostelry.base.ports import free_port

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


class Routed(Platform):
    """The cells blue and green, seen through their router. The keys are those in blue's home."""

    def __init__(self, cells: dict[str, Platform], file: Path, port: int) -> None:
        super().__init__(cells["blue"].home.root)
        self.cells, self.file, self.url = cells, file, f"http://127.0.0.1:{port}"

    def boto3(self, service: str, **options: Any) -> Any:
        """A client of the router."""
        return client_session().create_client(
            service,
            region_name=self.credentials.region,
            endpoint_url=self.url,
            aws_access_key_id=self.credentials.access_key_id,
            aws_secret_access_key=self.credentials.secret_access_key,
            config=Config(**{"proxies": {}, "read_timeout": 60, **options}),
        )

    def cells_of(self, endpoint: str) -> list[str]:
        """The cells that have the endpoint."""
        found = {
            name: cell.boto3("sagemaker").list_endpoints()["Endpoints"]
            for name, cell in self.cells.items()
        }
        return [
            name for name, rows in found.items() if endpoint in {it["EndpointName"] for it in rows}
        ]


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routed]:
    root = tmp_path_factory.mktemp("cells")
    file, port = root / "cells.toml", free_port()
    with ExitStack() as running:
        cells: dict[str, Platform] = {}
        for name in ("blue", "green"):
            home = root / name
            home.mkdir(mode=0o700)
            (home / "images.toml").write_text(ECHO_IMAGE)
            if cells:
                shutil.copy2(cells["blue"].home.credentials, home / "credentials.json")
            cells[name] = running.enter_context(Platform(home))
            added = command(file, "add", name, "--home", str(home))
            assert added.returncode == 0, added.stderr
        router = subprocess.Popen(
            [*CLI, "cells", "router", "--file", str(file), "--port", str(port)],
            env=clean_environment(),
        )
        running.callback(router.wait, 30)
        running.callback(router.send_signal, signal.SIGTERM)
        found = Routed(cells, file, port)
        sts = found.boto3("sts", retries={"total_max_attempts": 1}, connect_timeout=1)
        until(lambda: answers(sts), "the router routes")
        yield found


def answers(sts: Any) -> bool:
    try:
        return bool(sts.get_caller_identity()["Account"])
    except Exception:  # noqa: BLE001 - it is not there yet
        return False


@pytest.mark.thorough
def test_an_endpoint_moves_under_traffic_and_outlives_its_old_cell(routed: Routed) -> None:
    sagemaker, s3 = routed.boto3("sagemaker"), routed.cells["blue"].boto3("s3")
    s3.create_bucket(Bucket="shop")
    s3.put_object(Bucket="shop", Key="models/m.tar.gz", Body=packed(weights=b"of the shop"))
    variant = {"VariantName": "AllTraffic", "InstanceType": "ml.m5.large"}
    sagemaker.create_endpoint_config(
        EndpointConfigName="shop",
        ExecutionRoleArn=ROLE,
        ProductionVariants=[{**variant, "InitialInstanceCount": 1}],
    )
    sagemaker.create_endpoint(EndpointName="shop", EndpointConfigName="shop")
    sagemaker.create_inference_component(
        InferenceComponentName="base",
        EndpointName="shop",
        VariantName="AllTraffic",
        Specification={
            "Container": {
                "Image": "echo:1",
                "ArtifactUrl": "s3://shop/models/m.tar.gz",
                "Environment": {"ECHO_VERSION": "v1"},
            },
            "ComputeResourceRequirements": {
                "MinMemoryRequiredInMb": 128,
                "NumberOfCpuCoresRequired": 0.5,
            },
        },
        RuntimeConfig={"CopyCount": 1},
    )
    sagemaker.get_waiter("endpoint_in_service").wait(
        EndpointName="shop", WaiterConfig={"Delay": 1, "MaxAttempts": 90}
    )

    def status() -> bool:
        found = sagemaker.describe_inference_component(InferenceComponentName="base")
        return bool(found["InferenceComponentStatus"] == "InService")

    until(status, "the component serves", 60)
    assert routed.cells_of("shop") == ["blue"]
    blue, green = routed.cells["blue"], routed.cells["green"]
    move = ("--to", "green", "--from-home", str(blue.home.root), "--to-home", str(green.home.root))
    with Traffic(routed, "shop", pause_s=0.2, InferenceComponentName="base") as traffic:
        moved = command(routed.file, "move", "shop", *move)
        assert moved.returncode == 0, moved.stderr
        assert "copied s3://shop/models/m.tar.gz" in moved.stderr
        assert not traffic.failed()
        assert sum(traffic.seen().values()) > 20
    assert routed.cells_of("shop") == ["green"]
    assert status(), "a call that names the component alone goes to its new cell"
    again = command(routed.file, "move", "shop", *move)
    assert "shop is in cell green already" in again.stdout
    rows = json.loads(command(routed.file, "ls", "--json").stdout)["cells"]
    assert {it["name"]: it["state"] for it in rows} == {"blue": "answers", "green": "answers"}
    blue.down()
    with Traffic(routed, "shop", pause_s=0.2, InferenceComponentName="base") as traffic:
        until(lambda: sum(traffic.seen().values()) > 20, "requests go on")
    assert not traffic.failed(), "the dead cell is none of their business"
    with pytest.raises(ClientError, match="its cell cannot be reached"):
        routed.boto3("sagemaker", retries={"total_max_attempts": 1}).list_endpoints()
    assert command(routed.file, "ls").returncode == 1
    blue.start()
    assert routed.boto3("sagemaker").list_endpoints()["Endpoints"] == []


def test_a_table_that_is_damaged_changes_nothing(routed: Routed) -> None:
    whole = routed.file.read_text()
    routed.file.write_text("[cells")
    refused = command(routed.file, "ls")
    assert (refused.returncode, "is no TOML file" in refused.stderr) == (1, True)
    for _ in range(3):
        assert answers(routed.boto3("sts"))
    routed.file.write_text(whole)


def command(file: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """`hostelry cells ...` on the table."""
    return subprocess.run(
        [*CLI, "cells", *arguments, "--file", str(file)],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
