"""A platform with runtimes, and framework models that tests deploy over boto3."""

import fcntl
import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from tests.integration.platform import CLI, Platform, clean_environment, until

from hostelry.base.runtimes import VARIABLE

ROLE = "arn:aws:iam::111122223333:role/HostelryExecutionRole"
INSTALL_S = 300


def runtimes_of_tests() -> Path:
    """The folder of runtimes: HOSTELRY_RUNTIMES_DIR, or a folder that is kept between runs."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get(VARIABLE) or cache / "hostelry" / "test-runtimes")


def runtimes_with(*names: str) -> Path:
    """The folder with these runtimes. The first call installs them."""
    folder = runtimes_of_tests()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in names:
            done = subprocess.run(
                [*CLI, "runtimes", "install", name],
                env={**clean_environment(), VARIABLE: str(folder)},
                capture_output=True,
                text=True,
                timeout=INSTALL_S,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
    return folder


def packed(**files: bytes) -> bytes:
    """A model.tar.gz."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


def files_of(folder: Path) -> dict[str, bytes]:
    """The files in the folder, by their relative paths."""
    found = sorted(it for it in folder.rglob("*") if it.is_file())
    return {str(it.relative_to(folder)): it.read_bytes() for it in found}


class Deployer:
    """Puts archives into the existing bucket `models`, and deploys them."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self._sagemaker = platform.boto3("sagemaker")
        self._s3 = platform.boto3("s3")
        self._runtime = platform.boto3("sagemaker-runtime")

    def put(self, name: str, **files: bytes) -> None:
        """Put an archive at s3://models/NAME.tar.gz."""
        self._s3.put_object(Bucket="models", Key=f"{name}.tar.gz", Body=packed(**files))

    def begin(self, name: str, archive: str, image: str, **environment: str) -> None:
        """Create the endpoint of a model."""
        self._sagemaker.create_model(
            ModelName=name,
            ExecutionRoleArn=ROLE,
            PrimaryContainer={
                "Image": image,
                "ModelDataUrl": f"s3://models/{archive}.tar.gz",
                "Environment": environment,
            },
        )
        variant = {
            "VariantName": "AllTraffic",
            "ModelName": name,
            "InstanceType": "ml.m5.large",
            "InitialInstanceCount": 1,
        }
        self._sagemaker.create_endpoint_config(
            EndpointConfigName=name, ProductionVariants=[variant]
        )
        self._sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)

    def settled(self, name: str, within_s: float = 90.0) -> dict[str, Any]:
        """The endpoint, once it is InService or Failed."""

        def found() -> dict[str, Any] | None:
            it: dict[str, Any] = self.platform.looker().describe_endpoint(EndpointName=name)
            return it if it["EndpointStatus"] in ("InService", "Failed") else None

        described: dict[str, Any] = until(found, f"{name} is InService or Failed", within_s)
        return described

    def deployed(self, name: str, archive: str, image: str, **environment: str) -> dict[str, Any]:
        """Create a model's endpoint, and wait until it is InService or Failed."""
        self.begin(name, archive, image, **environment)
        return self.settled(name)

    def invoke(self, name: str, kind: str, body: bytes, accept: str = "application/json") -> bytes:
        """The body of the answer."""
        answer = self._runtime.invoke_endpoint(
            EndpointName=name, ContentType=kind, Body=body, Accept=accept
        )
        text: bytes = answer["Body"].read()
        return text

    def delete(self, name: str) -> None:
        """Delete the endpoint."""
        self._sagemaker.delete_endpoint(EndpointName=name)
