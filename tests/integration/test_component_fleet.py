"""A fleet under traffic: rolled, rolled back, scaled, emptied and woken, and no request fails."""

import io
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.platform import Platform, until

from hostelry.home.home import Home

pytestmark = pytest.mark.integration

ROLE = "arn:aws:iam::111122223333:role/HostelryExecutionRole"
PATIENCE_S = 60.0
# A minute of AWS's patience is a second.
PACE = "60"


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    home = Home(tmp_path / "home")
    home.root.mkdir()
    home.images.write_text(ECHO_IMAGE)
    with Platform(home.root, "--pace", PACE) as started:
        yield started


class Fleet:
    """An endpoint that is scaled by its copies, from 0 to `most` instances of 2 CPUs."""

    def __init__(self, platform: Platform, most: int = 4) -> None:
        self.sagemaker = platform.boto3("sagemaker")
        bounds = {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": most}
        self.sagemaker.create_endpoint_config(
            EndpointConfigName="c",
            ExecutionRoleArn=ROLE,
            ProductionVariants=[
                {
                    "VariantName": "AllTraffic",
                    "InstanceType": "ml.m5.large",
                    "InitialInstanceCount": 1,
                    "ManagedInstanceScaling": bounds,
                }
            ],
        )
        self.sagemaker.create_endpoint(EndpointName="ep", EndpointConfigName="c")
        self.until_status("ep")

    def until_status(self, name: str, wanted: str = "InService") -> dict[str, Any]:
        def there() -> dict[str, Any] | None:
            found = self.endpoint() if name == "ep" else self.component(name)
            status = found["EndpointStatus" if name == "ep" else "InferenceComponentStatus"]
            assert status != "Failed", found["FailureReason"]
            return found if status == wanted else None

        found: dict[str, Any] = until(there, f"{name} is {wanted}", PATIENCE_S)
        return found

    def endpoint(self) -> dict[str, Any]:
        found: dict[str, Any] = self.sagemaker.describe_endpoint(EndpointName="ep")
        return found

    def component(self, name: str = "base") -> dict[str, Any]:
        found: dict[str, Any] = self.sagemaker.describe_inference_component(
            InferenceComponentName=name
        )
        return found

    def instances(self) -> int:
        return int(self.endpoint()["ProductionVariants"][0]["CurrentInstanceCount"])

    def scale(self, copies: int) -> dict[str, Any]:
        self.sagemaker.update_inference_component_runtime_config(
            InferenceComponentName="base", DesiredRuntimeConfig={"CopyCount": copies}
        )
        return self.until_status("base")

    def roll(self, mode: str) -> dict[str, Any]:
        self.sagemaker.update_inference_component(
            InferenceComponentName="base",
            Specification=specification(mode),
            DeploymentConfig={
                "RollingUpdatePolicy": {
                    "MaximumBatchSize": {"Type": "COPY_COUNT", "Value": 1},
                    "WaitIntervalInSeconds": 30,
                }
            },
        )
        return self.until_status("base")


def specification(mode: str = "ok") -> dict[str, Any]:
    return {
        "Container": {"Image": "echo:1", "Environment": {"ECHO_MODE": mode}},
        "ComputeResourceRequirements": {
            "MinMemoryRequiredInMb": 1024,
            "NumberOfCpuCoresRequired": 1,
        },
    }


class Traffic:
    """Clients of some components. Each sends as fast as it is answered."""

    def __init__(self, platform: Platform, *names: str) -> None:
        self.num_answered = 0
        self.failures: list[str] = []
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(platform.boto3("sagemaker-runtime"), name))
            for name in names
        ]

    def __enter__(self) -> "Traffic":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)

    def _ask(self, runtime: Any, name: str) -> None:
        while not self._over.wait(0.02):
            try:
                answer = runtime.invoke_endpoint(
                    EndpointName="ep", InferenceComponentName=name, Body=b'{"a": 1}'
                )
                answer["Body"].read()
            except (BotoCoreError, ClientError) as error:
                self.failures.append(f"{name}: {error}")
            else:
                self.num_answered += 1


def put_adapter(platform: Platform, key: str) -> str:
    """Put an archive that the echo server accepts as an adapter, and return its URI."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        member = tarfile.TarInfo("adapter_config.json")
        member.size = 2
        archive.addfile(member, io.BytesIO(b"{}"))
    s3 = platform.boto3("s3")
    s3.put_object(Bucket="models", Key=key, Body=content.getvalue())
    return f"s3://models/{key}"


def test_no_request_fails_while_copies_adapters_and_instances_change(platform: Platform) -> None:
    platform.boto3("s3").create_bucket(Bucket="models")
    fleet = Fleet(platform)
    fleet.sagemaker.create_inference_component(
        InferenceComponentName="base",
        EndpointName="ep",
        VariantName="AllTraffic",
        Specification=specification(),
        RuntimeConfig={"CopyCount": 2},
    )
    fleet.until_status("base")
    adapter = {"BaseInferenceComponentName": "base"}
    fleet.sagemaker.create_inference_component(
        InferenceComponentName="spanish",
        EndpointName="ep",
        Specification={**adapter, "Container": {"ArtifactUrl": put_adapter(platform, "1.tar.gz")}},
    )
    fleet.until_status("spanish")
    with Traffic(platform, "base", "base", "spanish", "spanish") as traffic:
        assert "FailureReason" not in fleet.roll("once")
        fleet.sagemaker.update_inference_component(
            InferenceComponentName="spanish",
            Specification={"Container": {"ArtifactUrl": put_adapter(platform, "2.tar.gz")}},
        )
        fleet.until_status("spanish")
        rolled_back = fleet.roll("exit")
        assert "does not want to start" in rolled_back["FailureReason"]
        fleet.scale(4)
        assert fleet.instances() == 2
        fleet.scale(1)
    assert traffic.failures == []
    assert traffic.num_answered > 100


def test_a_fleet_without_copies_has_no_instances_and_comes_back(platform: Platform) -> None:
    fleet = Fleet(platform)
    fleet.sagemaker.create_inference_component(
        InferenceComponentName="base",
        EndpointName="ep",
        VariantName="AllTraffic",
        Specification=specification(),
        RuntimeConfig={"CopyCount": 3},
    )
    fleet.until_status("base")
    assert fleet.instances() == 2
    assert fleet.scale(0)["RuntimeConfig"]["CurrentCopyCount"] == 0
    until(lambda: fleet.instances() == 0, "all instances are released", PATIENCE_S)
    fleet.until_status("ep")
    assert fleet.component()["InferenceComponentStatus"] == "InService"
    runtime = platform.boto3("sagemaker-runtime", retries={"total_max_attempts": 1})
    with pytest.raises(ClientError, match="no capacity"):
        runtime.invoke_endpoint(EndpointName="ep", InferenceComponentName="base", Body=b"{}")
    assert fleet.scale(1)["RuntimeConfig"]["CurrentCopyCount"] == 1
    # At once, also where the newest routes have not reached the worker that takes the call.
    answer = runtime.invoke_endpoint(EndpointName="ep", InferenceComponentName="base", Body=b"{}")
    assert answer["Body"].read() == b"{}"
    fleet.until_status("ep")
    assert fleet.instances() == 1
