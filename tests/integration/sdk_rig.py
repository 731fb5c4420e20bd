"""Runs programs of the SageMaker SDKs on one platform, several at once, with their models.

The SDKs look at a deployment every 30 seconds. With `SHORT_WAITS` they look every 2 seconds.
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
# With these variables the unmodified SDKs sleep for 2 s at most.
SHORT_WAITS = {"PYTHONPATH": str(PROGRAMS / "short_waits")}
AT_ONCE = 5
TIME_LIMIT_S = 600
REVISION = "0" * 40
# Two models by the ids that programs use.
MODELS = {"acme/one": 1, "acme/two": 2}
REQUEST = {"inputs": "What are falcons?", "parameters": {"max_new_tokens": 12, "do_sample": False}}


def write_models(folder: Path) -> Mapping[str, Path]:
    """Random models with different answers, by id. `folder`/hf is a hub's cache that has them."""
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
    """The operator's variables by which model servers find the models of `write_models`."""
    return {"HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1"}


def image_rules(python: str = sys.executable) -> str:
    """An images.toml: framework images run `inference_server.py` with `python`. Also `echo:*`."""
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
    """Put each model at s3://BUCKET/ID/, and create the bucket that all programs use."""
    s3 = platform.boto3("s3", s3={"addressing_style": "path"})
    s3.create_bucket(Bucket=bucket)
    make_common_bucket(platform)
    for model_id, folder in models.items():
        for file in folder.iterdir():
            s3.put_object(Bucket=bucket, Key=f"{model_id}/{file.name}", Body=file.read_bytes())


def make_common_bucket(platform: Platform) -> None:
    """Create the programs' bucket, because programs that create it at the same time fail."""
    s3, keys = platform.boto3("s3"), platform.credentials
    with contextlib.suppress(s3.exceptions.BucketAlreadyOwnedByYou):
        s3.create_bucket(Bucket=f"sagemaker-{keys.region}-{keys.account_id}")


def direct_answer(platform: Platform, name: str, uri: str) -> str:
    """Deploy the model at `uri` over boto3, and return its answer to REQUEST."""
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
    """The text of the tokens in a stream of JSON lines or events."""
    lines = "".join(f"{piece}\n" for piece in pieces).splitlines()
    found = [json.loads(line.removeprefix("data:")) for line in lines if line.strip()]
    return "".join(line["token"]["text"] for line in found)


def what_is_left(platform: Platform) -> list[str]:
    """The names of remaining endpoints, configurations, components and models."""
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
    """Runs programs under `hostelry exec` by one interpreter. Each prints JSON at its end."""

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
        """Run `program` of `sdk_programs` as soon as fewer than the maximum run."""
        self._started[name] = self._pool.submit(self._run, program, arguments)

    def output(self, name: str) -> dict[str, Any]:
        """The program's last line. If it failed, fails with its whole output."""
        return self._started[name].result()

    def finish(self) -> None:
        """Wait until all programs have ended, successfully or not."""
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
