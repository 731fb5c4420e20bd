"""A platform with trained scikit-learn models in S3, and endpoints of them."""

import fcntl
import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from tests.integration.platform import CLI, Platform, clean_environment, until
from tests.integration.predictive_rig import TRAIN

from hostelry.base.runtimes import VARIABLE

ROLE = "arn:aws:iam::111122223333:role/HostelryExecutionRole"
IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
CODE = """
import os, joblib
def model_fn(model_dir):
    return joblib.load(os.path.join(model_dir, "model.joblib"))
def predict_fn(data, model):
    return [round(it, 6) for it in model.predict(data)]
"""

SECRETS = {
    "HF_TOKEN": "hf_of_the_operator",
    "HTTP_PROXY": "http://operator:password-of-the-proxy@127.0.0.1:9",
}
# Code that shows its own variables, and the variables of its server and of all copies' processes.
SPY = b"""
import glob, os
def model_fn(model_dir):
    return None
def input_fn(data, content_type):
    return data
def predict_fn(data, model):
    found = [repr(dict(os.environ))]
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                shown = file.read().decode("utf-8", "replace")
            if "HOSTELRY_COPY_FOLDER=" in shown:
                found.append(shown)
        except OSError:
            pass
    return found
"""


def packed(**files: bytes) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


def sklearn_runtimes() -> Path:
    """A folder with sklearn:1.2, which is kept between runs."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "hostelry" / "test-runtimes"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            [*CLI, "runtimes", "install", "sklearn:1.2"],
            env={**clean_environment(), VARIABLE: str(folder)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Served:
    """A platform with a trained model in S3."""

    def __init__(self, platform: Platform, folder: Path, python: Path) -> None:
        done = subprocess.run(
            [str(python), "-c", TRAIN, str(folder / "model.joblib")],
            capture_output=True,
            text=True,
            check=True,
        )
        self.expected = json.loads(done.stdout)
        self.platform = platform
        self.sagemaker = platform.boto3("sagemaker")
        self.runtime = platform.boto3(
            "sagemaker-runtime", retries={"max_attempts": 1}, max_pool_connections=32
        )
        self.s3 = platform.boto3("s3")
        model = (folder / "model.joblib").read_bytes()
        s3 = platform.boto3("s3")
        s3.create_bucket(Bucket="models")
        archives = {
            "inside": packed(**{"model.joblib": model, "code/inference.py": CODE.encode()}),
            "model": packed(**{"model.joblib": model}),
            "source": packed(**{"entry.py": CODE.encode()}),
            "spy": packed(**{"code/inference.py": SPY}),
            "broken": packed(**{"code/inference.py": b"def model_fn(d): raise ValueError('torn')"}),
        }
        for name, content in archives.items():
            s3.put_object(Bucket="models", Key=f"{name}.tar.gz", Body=content)

    def deployed(self, name: str, archive: str, image: str = IMAGE, **env: str) -> dict[str, Any]:
        """Create a model's endpoint, and wait until it is InService or Failed."""
        self.sagemaker.create_model(
            ModelName=name,
            ExecutionRoleArn=ROLE,
            PrimaryContainer={
                "Image": image,
                "ModelDataUrl": f"s3://models/{archive}.tar.gz",
                "Environment": env,
            },
        )
        return self.endpoint(name)

    def endpoint(self, name: str) -> dict[str, Any]:
        """The endpoint of the model `name`, once it is InService or Failed."""
        variant = {
            "VariantName": "AllTraffic",
            "ModelName": name,
            "InstanceType": "ml.m5.large",
            "InitialInstanceCount": 1,
        }
        self.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
        self.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)

        def settled() -> dict[str, Any] | None:
            found: dict[str, Any] = self.platform.looker().describe_endpoint(EndpointName=name)
            return found if found["EndpointStatus"] in ("InService", "Failed") else None

        found: dict[str, Any] = until(settled, f"{name} is InService or Failed", 90)
        return found

    def invoke(self, name: str, kind: str, body: bytes, **more: str) -> bytes:
        answer = self.runtime.invoke_endpoint(
            EndpointName=name, ContentType=kind, Body=body, **more
        )
        text: bytes = answer["Body"].read()
        return text

    def models(self, endpoint: str) -> dict[str, Any]:
        """The models of the endpoint's only copy, by name."""
        shown = json.loads(self.platform.cli("explain", "--endpoint", endpoint, "--json").stdout)
        (models,) = shown["models"].values()
        return {it["target"]: it for it in models["models"]}
