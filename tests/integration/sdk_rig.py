"""Programs of the SageMaker SDKs, several at once on one platform, and the models they deploy.

The SDKs look at a deployment every 30 seconds; `SHORT_WAITS` lets them look every 2 seconds.
"""

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.platform import CLI, Platform, until
from tests.models import tiny_llama
from tests.unit.containers.lmi.tiny import write_tokenizer

PROGRAMS = Path(__file__).parent / "sdk_programs"
SERVER = Path(__file__).parent / "servers" / "inference_server.py"
# The environment in which the SDKs, as they are, sleep for 2 s at most.
SHORT_WAITS = {"PYTHONPATH": str(PROGRAMS / "short_waits")}
AT_ONCE = 5
TIME_LIMIT_S = 600
REVISION = "0" * 40
# Two models: by id, as a program names them.
MODELS = {"acme/one": 1, "acme/two": 2}
REQUEST = {"inputs": "What are falcons?", "parameters": {"max_new_tokens": 12, "do_sample": False}}


def write_models(folder: Path) -> Mapping[str, Path]:
    """Random models whose answers differ, by id, and a hub's cache in `folder`/hf that has them."""
    found = {}
    for model_id, seed in MODELS.items():
        made = folder / model_id
        made.mkdir(parents=True)
        tiny_llama(made, seed=seed, vocab_size=262, dtype="bfloat16")
        write_tokenizer(made)
        cached = folder / "hf" / "hub" / f"models--{model_id.replace('/', '--')}"
        shutil.copytree(made, cached / "snapshots" / REVISION)
        (cached / "refs").mkdir()
        (cached / "refs" / "main").write_text(REVISION)
        found[model_id] = made
    return found


def hub_variables(folder: Path) -> dict[str, str]:
    """The operator's variables with which model servers find the models of `write_models`."""
    return {"HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1"}


def image_rules(python: str = sys.executable) -> str:
    """images.toml: images of frameworks run `inference_server.py` by `python`; and `echo:*`."""
    rule = """
[[image]]
pattern = "{pattern}"
command = ["{python}", "{server}"]
[image.probe]
content_type = "application/json"
body = "[[0, 0, 0]]"
"""
    patterns = ("*/pytorch-inference:*", "*/sagemaker-scikit-learn:*")
    rules = [rule.format(pattern=it, python=python, server=SERVER) for it in patterns]
    return "".join([*rules, ECHO_IMAGE])


def upload(platform: Platform, bucket: str, models: Mapping[str, Path]) -> None:
    """Put each model at s3://BUCKET/ID/, and make the bucket that all programs would make."""
    s3 = platform.boto3("s3", s3={"addressing_style": "path"})
    s3.create_bucket(Bucket=bucket)
    make_common_bucket(platform)
    for model_id, folder in models.items():
        for file in folder.iterdir():
            s3.put_object(Bucket=bucket, Key=f"{model_id}/{file.name}", Body=file.read_bytes())


def make_common_bucket(platform: Platform) -> None:
    """Make the bucket of all programs: those that make it at the same moment fail."""
    s3, keys = platform.boto3("s3"), platform.credentials
    with contextlib.suppress(s3.exceptions.BucketAlreadyOwnedByYou):
        s3.create_bucket(Bucket=f"sagemaker-{keys.region}-{keys.account_id}")


def direct_answer(platform: Platform, name: str, uri: str) -> str:
    """The text that the model at `uri` answers to REQUEST, deployed, called, deleted by boto3."""
    sagemaker, runtime = platform.boto3("sagemaker"), platform.boto3("sagemaker-runtime")
    source = {"S3Uri": uri, "S3DataType": "S3Prefix", "CompressionType": "None"}
    sagemaker.create_model(
        ModelName=name,
        ExecutionRoleArn=platform.credentials.role_arn,
        PrimaryContainer={"Image": "djl-lmi:1", "ModelDataSource": {"S3DataSource": source}},
    )
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": name,
        "InstanceType": "ml.g5.xlarge",
        "InitialInstanceCount": 1,
    }
    sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    until(lambda: status_of(platform, name) != "Creating", f"{name} is deployed", 120)
    answer = runtime.invoke_endpoint(
        EndpointName=name, ContentType="application/json", Body=json.dumps(REQUEST)
    )
    sagemaker.delete_endpoint(EndpointName=name)
    sagemaker.delete_endpoint_config(EndpointConfigName=name)
    sagemaker.delete_model(ModelName=name)
    text: str = json.loads(answer["Body"].read())["generated_text"]
    return text


def status_of(platform: Platform, endpoint: str) -> str:
    """The endpoint's status."""
    status: str = platform.looker().describe_endpoint(EndpointName=endpoint)["EndpointStatus"]
    return status


def streamed_text(pieces: list[str]) -> str:
    """The text of a stream's tokens, in lines of JSON or as events."""
    lines = "".join(f"{piece}\n" for piece in pieces).splitlines()
    found = [json.loads(line.removeprefix("data:")) for line in lines if line.strip()]
    return "".join(line["token"]["text"] for line in found)


def what_is_left(platform: Platform) -> list[str]:
    """Names of endpoints, configurations, components and models."""
    sagemaker = platform.boto3("sagemaker")
    endpoints = sagemaker.list_endpoints()["Endpoints"]
    configs = sagemaker.list_endpoint_configs()["EndpointConfigs"]
    components = sagemaker.list_inference_components()["InferenceComponents"]
    models = sagemaker.list_models()["Models"]
    return [
        *(it["EndpointName"] for it in endpoints),
        *(it["EndpointConfigName"] for it in configs),
        *(it["InferenceComponentName"] for it in components),
        *(it["ModelName"] for it in models),
    ]


class Programs:
    """Programs started under `hostelry exec` by one interpreter; each prints JSON as it ends."""

    def __init__(
        self, platform: Platform, python: Path, time_limit_s: float = TIME_LIMIT_S
    ) -> None:
        self._platform, self._python, self._time_limit_s = platform, python, time_limit_s
        make_common_bucket(platform)
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._started: dict[str, Future[dict[str, Any]]] = {}

    def __enter__(self) -> "Programs":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def start(self, name: str, program: str, *arguments: str) -> None:
        """Run `program` of `sdk_programs` when a place is free."""
        self._started[name] = self._pool.submit(self._run, program, arguments)

    def output(self, name: str) -> dict[str, Any]:
        """What the program printed last; fails with all it printed where it failed."""
        return self._started[name].result()

    def finish(self) -> None:
        """Wait until each has ended, well or not."""
        for started in self._started.values():
            started.exception()

    def _run(self, program: str, arguments: tuple[str, ...]) -> dict[str, Any]:
        command = [str(self._python), "-W", "ignore", str(PROGRAMS / program), *arguments]
        done = subprocess.run(
            [*CLI, "exec", "--home", str(self._platform.home.root), "--", *command],
            env={**self._platform.environment, **SHORT_WAITS},
            capture_output=True,
            text=True,
            timeout=self._time_limit_s,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        output: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return output
