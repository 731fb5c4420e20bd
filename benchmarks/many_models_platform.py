"""A real platform with customers' models in S3, and multi-model endpoints on it."""

import contextlib
import json
import subprocess
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SigningCredentials
from tests.integration.platform import CLI, Platform, clean_environment
from tests.integration.predictive_rig import PredictiveServer, launched

from benchmarks.live_component import wait_until_settled
from benchmarks.peers.model_shelf import BODY, JSON, Answered, Connections, timed_answer
from hostelry.base.runtimes import VARIABLE, find_installed, runtime_python
from hostelry.cli.environment import client_variables
from hostelry.containers.predictive.model_table import measure_memory

TRAIN = Path(__file__).parent / "peers" / "programs" / "train_models.py"
IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
ROLE = "arn:aws:iam::111122223333:role/HostelryExecutionRole"
RUNTIME, ASKED_RUNTIME = "sklearn-1.2", "sklearn:1.2"
INSTANCE_TYPE = "ml.c8g.medium"  # 2 GiB, of which nine tenths are for models
BUCKET, PREFIX = "customers", "models"
UPLOADERS, TRAINERS = 4, 2
READY_S = 90.0


def target_of(number: int) -> str:
    """The TargetModel of a customer."""
    return f"customer-{number:04}.tar.gz"


def runtime_in(folder: Path) -> Path:
    """The interpreter of the scikit-learn runtime in `folder`, which is installed if necessary."""
    if find_installed(folder, RUNTIME) is None:
        subprocess.run(
            [*CLI, "runtimes", "install", ASKED_RUNTIME],
            env={**clean_environment(), VARIABLE: str(folder)},
            stdout=subprocess.DEVNULL,
            check=True,
        )
    return runtime_python(folder, RUNTIME)


def train_archives(
    python: Path, folder: Path, num_models: int, scale: float, seed: int
) -> dict[str, Any]:
    """Train models into archives in `folder`, unless they exist. Returns their predictions."""
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / f"done-{num_models}-{scale:g}-{seed}"
    if not done.exists():
        train(python, folder, num_models, scale, seed)
        done.touch()
    parts = [json.loads(file.read_text()) for file in folder.glob("answers-*.json")]
    return {name: answer for part in parts for name, answer in part.items()}


def train(python: Path, folder: Path, num_models: int, scale: float, seed: int) -> None:
    """Train models into archives, and write their predictions into files of answers."""
    commands = [
        [str(it) for it in (python, TRAIN, folder, seed, scale, part, TRAINERS, num_models)]
        for part in range(TRAINERS)
    ]
    running = [subprocess.Popen(command, env=clean_environment()) for command in commands]
    codes = [process.wait() for process in running]
    if any(codes):
        raise RuntimeError("the models were not trained; the cause is above")


@contextlib.contextmanager
def running_platform(scratch: Path, runtimes: Path) -> Iterator[Platform]:
    """A platform at its defaults, which may run the code in pickles."""
    environment = {VARIABLE: str(runtimes), "HOSTELRY_CUSTOM_CODE": "trusted"}
    with Platform(scratch / "home", environment=environment) as platform:
        yield platform


def upload(platform: Platform, folder: Path, targets: Sequence[str]) -> None:
    """Put the archives into the bucket, which deploys them."""
    s3 = platform.boto3("s3", s3={"addressing_style": "path"}, max_pool_connections=UPLOADERS)
    s3.create_bucket(Bucket=BUCKET)

    def put(target: str) -> None:
        with (folder / target).open("rb") as body:
            s3.put_object(Bucket=BUCKET, Key=f"{PREFIX}/{target}", Body=body)

    with ThreadPoolExecutor(UPLOADERS) as pool:
        list(pool.map(put, targets))


def client_environment(platform: Platform) -> dict[str, str]:
    """The variables by which an AWS client finds the platform."""
    return client_variables(platform.config, platform.credentials)


class Endpoint:
    """A multi-model endpoint of one copy."""

    name = "hostelry"

    def __init__(self, platform: Platform, endpoint: str, before: Collection[int]) -> None:
        self._platform = platform
        self._endpoint = endpoint
        self._before = {*before}
        self._connections = Connections(platform.port)
        keys = platform.credentials
        signing = SigningCredentials(keys.access_key_id, keys.secret_access_key)
        self._signer = SigV4Auth(signing, "sagemaker", keys.region)

    def call(self, target: str) -> Answered:
        """Send one request, which is signed before its time starts."""
        path = f"/endpoints/{self._endpoint}/invocations"
        request = AWSRequest(
            "POST",
            f"http://127.0.0.1:{self._platform.port}{path}",
            {"Content-Type": JSON, "X-Amzn-SageMaker-Target-Model": target},
            BODY,
        )
        self._signer.add_auth(request)
        headers = {name: str(value) for name, value in request.headers.items()}
        content, took_s = timed_answer(self._connections, path, BODY, headers)
        return Answered(predicted=msgspec.json.decode(content)[0], took_s=took_s)

    @property
    def memory_bytes(self) -> int:
        """PSS of all processes for its models: the copy, and the interpreters that forked it."""
        agents = self._platform.home.instances.glob("*/agent.json")
        own = {json.loads(it.read_bytes())["process"]["pid"] for it in agents}
        return measure_memory({*self._platform.processes()} - self._before - own)

    def account(self) -> dict[str, Any]:
        """The copy's models, as `hostelry explain` shows them."""
        shown = self._platform.cli("explain", "--endpoint", self._endpoint, "--json").stdout
        (models,) = json.loads(shown)["models"].values()
        found: dict[str, Any] = models
        return found


@contextlib.contextmanager
def running_endpoint(platform: Platform, name: str) -> Iterator[Endpoint]:
    """An endpoint for all models of the bucket, in service. It is deleted afterwards."""
    before = platform.processes()
    client = platform.boto3("sagemaker")
    client.create_model(
        ModelName=name,
        ExecutionRoleArn=ROLE,
        PrimaryContainer={
            "Image": IMAGE,
            "Mode": "MultiModel",
            "ModelDataUrl": f"s3://{BUCKET}/{PREFIX}/",
        },
    )
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": name,
        "InstanceType": INSTANCE_TYPE,
        "InitialInstanceCount": 1,
    }
    client.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    wait_until_settled(lambda: client.describe_endpoint(EndpointName=name)["EndpointStatus"])
    try:
        yield Endpoint(platform, name, before)
    finally:
        client.delete_endpoint(EndpointName=name)
        until_gone(client, name)


def until_gone(client: Any, name: str) -> None:
    """Wait until the endpoint is deleted."""
    give_up_at_s = time.perf_counter() + READY_S
    while any(it["EndpointName"] == name for it in client.list_endpoints()["Endpoints"]):
        if time.perf_counter() > give_up_at_s:
            raise RuntimeError(f"endpoint {name} was not deleted within {READY_S:g} s")
        time.sleep(0.2)


@contextlib.contextmanager
def running_server(scratch: Path, python: Path) -> Iterator[PredictiveServer]:
    """The program of a multi-model copy, alone, ready for orders."""
    flags = ("--framework", "sklearn", "--multi-model", "--python", str(python))
    with launched(scratch, scratch / "server.log", *flags) as server:
        give_up_at_s = time.perf_counter() + READY_S
        while server.status() != 200:
            if server.process.poll() is not None or time.perf_counter() > give_up_at_s:
                raise RuntimeError((scratch / "server.log").read_text(errors="replace"))
            time.sleep(0.05)
        yield server
