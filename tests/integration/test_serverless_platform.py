"""Serverless endpoints on a whole platform: environments of a real scikit-learn model."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.integration.platform import Platform, until
from tests.integration.sdk_rig import SHORT_WAITS
from tests.integration.served_models import (
    IMAGE,
    ROLE,
    SECRETS,
    Served,
    packed,
    sklearn_runtimes,
)
from tests.integration.virtual_environments import virtual_environment

from hostelry.base.clock import SystemClock
from hostelry.base.runtimes import VARIABLE, runtime_python

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
SDK_PROGRAM = Path(__file__).parent / "sdk_programs" / "sdk2_serverless.py"
NAME, MOST, IDLE_S = "fn", 3, 8.0
# A row is [seconds to take, MB to allocate]. The answer is the id of the answering process.
CODE = """
import os, time
def model_fn(model_dir):
    return "ready"
def predict_fn(data, model):
    seconds, megabytes = data[0]
    kept = b"1" * (int(megabytes) << 20)
    time.sleep(float(seconds))
    return [os.getpid()]
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    runtimes = sklearn_runtimes()
    environment = {VARIABLE: str(runtimes), "HOSTELRY_CUSTOM_CODE": "trusted", **SECRETS}
    home = tmp_path_factory.mktemp("home") / "home"
    flags = ("--serverless-idle-s", str(IDLE_S), "--gateway-workers", "2")
    with Platform(home, *flags, environment=environment) as platform:
        python = runtime_python(runtimes, "sklearn-1.2")
        served = Served(platform, tmp_path_factory.mktemp("trained"), python)
        archive = packed(**{"code/inference.py": CODE.encode()})
        served.s3.put_object(Bucket="models", Key="fn.tar.gz", Body=archive)
        create(served, NAME, "fn", MaxConcurrency=MOST)
        yield served


def create(served: Served, name: str, archive: str, **config: int) -> dict[str, Any]:
    """A serverless endpoint, once it is InService or Failed."""
    client = served.sagemaker
    container = {"Image": IMAGE, "ModelDataUrl": f"s3://models/{archive}.tar.gz"}
    client.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    serverless = {"MemorySizeInMB": 1024, "MaxConcurrency": 1, **config}
    variant = {"VariantName": "AllTraffic", "ModelName": name, "ServerlessConfig": serverless}
    client.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    return settled(served, name)


def settled(served: Served, name: str) -> dict[str, Any]:
    def ended() -> dict[str, Any] | None:
        found: dict[str, Any] = served.platform.looker().describe_endpoint(EndpointName=name)
        return found if found["EndpointStatus"] in ("InService", "Failed") else None

    found: dict[str, Any] = until(ended, f"{name} is InService or Failed", 90)
    return found


def num_environments(served: Served, name: str = NAME) -> int:
    """The environments in the routes."""
    routes = json.loads(served.platform.home.routes.read_text())
    (found,) = [it for it in routes["endpoints"] if it["name"] == name]
    return len(found["variants"][0]["copies"])


def asked(served: Served, seconds: float = 0.0, megabytes: int = 0, name: str = NAME) -> int | str:
    """The process that answered, or the code of the error."""
    body = json.dumps([[seconds, megabytes]]).encode()
    try:
        return int(json.loads(served.invoke(name, "application/json", body))[0])
    except ClientError as error:
        return str(error.response["Error"]["Code"])


def at_once(served: Served, count: int, seconds: float = 0.5) -> list[int | str]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda _: asked(served, seconds), range(count)))


def test_each_environment_has_one_request_and_no_more_than_max_concurrency_are_taken(
    served: Served,
) -> None:
    answers = at_once(served, MOST + 2, 1.5)
    assert answers.count("ThrottlingException") == 2
    answered = [it for it in answers if isinstance(it, int)]
    assert len(answered) == MOST

    def each_has_one() -> bool:
        at_once(served, MOST, 1.0)  # one that started late leaves the others idle, and they end
        return num_environments(served) == MOST

    until(each_has_one, "an environment for each request", 60)
    assert len(set(at_once(served, MOST))) == MOST, "each request has an environment of its own"


def test_idle_environments_end_and_the_next_request_starts_one(served: Served) -> None:
    asked(served)
    until(lambda: num_environments(served) == 0, "idle environments end", 6 * IDLE_S)
    assert isinstance(asked(served), int)
    until(lambda: num_environments(served) == 1, "the environment is in the routes on disk")
    described = settled(served, NAME)
    (variant,) = described["ProductionVariants"]
    assert described["EndpointStatus"] == "InService"
    assert variant["CurrentServerlessConfig"]["MaxConcurrency"] == MOST


def test_requests_from_zero_outlive_the_kill_of_control_and_of_the_environment(
    served: Served,
) -> None:
    until(lambda: num_environments(served) == 0, "idle environments end", 6 * IDLE_S)
    pid = served.platform.kill("control")
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(asked, served) for _ in range(2)]
        served.platform.back("control", pid)
        assert all(isinstance(it.result(), int) for it in waiting)
    environment = asked(served)
    assert isinstance(environment, int)
    killer = threading.Timer(0.5, os.kill, (environment, signal.SIGKILL))
    killer.start()
    assert asked(served, 3.0) in ("ModelError", *range(1, 1 << 22))
    killer.join()
    assert isinstance(asked(served), int), "another environment answers"


def test_an_environment_that_takes_more_than_its_memory_ends_alone(served: Served) -> None:
    with ThreadPoolExecutor(2) as pool:
        beside = pool.submit(asked, served, 4.0)
        time.sleep(0.2)
        assert asked(served, 0.0, 2048) == "ModelError"
        assert isinstance(beside.result(), int)
    assert isinstance(asked(served), int)


def test_a_model_that_does_not_start_fails_the_endpoint_with_its_cause(served: Served) -> None:
    found = create(served, "torn", "broken")
    assert found["EndpointStatus"] == "Failed"
    assert "torn" in found["FailureReason"]
    served.sagemaker.delete_endpoint(EndpointName="torn")


def test_provisioned_environments_stay_and_an_update_to_an_instance_fails_no_request(
    served: Served,
) -> None:
    create(served, "kept", "fn", MaxConcurrency=2, ProvisionedConcurrency=1)
    asked(served, name="kept")
    until(lambda: num_environments(served) == 0, "others idle meanwhile", 6 * IDLE_S)
    assert num_environments(served, "kept") == 1
    instance = {
        "VariantName": "AllTraffic",
        "ModelName": "kept",
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    client = served.sagemaker
    client.create_endpoint_config(EndpointConfigName="moved", ProductionVariants=[instance])
    client.update_endpoint(EndpointName="kept", EndpointConfigName="moved")
    answers = []
    while (status := client.describe_endpoint(EndpointName="kept"))["EndpointStatus"] == "Updating":
        answers.append(asked(served, name="kept"))
    answers.append(asked(served, name="kept"))
    assert all(isinstance(it, int) for it in answers), answers
    (variant,) = status["ProductionVariants"]
    assert variant["CurrentInstanceCount"] == 1
    with pytest.raises(ClientError, match="serverless"):
        client.update_endpoint(EndpointName="kept", EndpointConfigName=NAME)
    client.delete_endpoint(EndpointName="kept")


def test_metrics_and_usage_count_what_was_served(served: Served) -> None:
    cloudwatch = served.platform.boto3("cloudwatch")
    dimensions = [
        {"Name": "EndpointName", "Value": NAME},
        {"Name": "VariantName", "Value": "AllTraffic"},
    ]

    def setups() -> bool:
        now = SystemClock().now()
        found = cloudwatch.get_metric_statistics(
            Namespace="AWS/SageMaker",
            MetricName="ModelSetupTime",
            Dimensions=dimensions,
            StartTime=now - 3600,
            EndTime=now + 3600,
            Period=3600,
            Statistics=["SampleCount", "Minimum"],
        )["Datapoints"]
        return bool(found) and found[0]["SampleCount"] >= 2 and found[0]["Minimum"] > 0

    until(setups, "the set-ups of environments are counted", 60)

    def used() -> dict[str, int]:
        found = served.platform.cli("usage", "--endpoint", NAME, "--json").stdout
        (endpoint,) = json.loads(found)["endpoints"]
        total: dict[str, int] = endpoint["total"]
        return total

    total = used()
    sent = json.dumps([[0.0, 0]]).encode()
    assert isinstance(asked(served), int)
    until(lambda: used()["requests"] == total["requests"] + 1, "the request is in the usage", 60)
    added = {what: value - total[what] for what, value in used().items()}
    assert added["bytes_in"] == len(sent)
    assert added["bytes_out"] >= len(str([1]))
    assert added["billed_ms"] * 1024 == added["memory_mb_ms"] > 0
    assert total["throttled"] >= 2, "those beyond MaxConcurrency, above"
    assert total["provisioned_mb_s"] == 0


@pytest.mark.thorough
def test_the_sdks_serverless_config_deploys_and_predicts(served: Served) -> None:
    python = virtual_environment("sdk2", "sagemaker<3", "awscli") / "python"
    archive, rows = "s3://models/inside.tar.gz", json.dumps(served.expected["rows"])
    command = [str(python), "-W", "ignore", str(SDK_PROGRAM), archive, IMAGE, rows]
    found = json.loads(served.platform.exec(command, SHORT_WAITS).stdout.splitlines()[-1])
    assert found["predicted"] == pytest.approx(served.expected["predicted"], abs=1e-5)
    assert found["config"] == {
        "MemorySizeInMB": 1024,
        "MaxConcurrency": 2,
        "ProvisionedConcurrency": 1,
    }


def test_an_authors_code_sees_none_of_the_operators_secrets(served: Served) -> None:
    found = served.deployed("spy", "spy", HF_HUB_DOWNLOAD_TIMEOUT="7")
    assert found["EndpointStatus"] == "InService", found
    seen = json.loads(served.invoke("spy", "application/json", b"{}"))
    assert len(seen) > 2, "its own, its zygote's and its server's"
    assert "HF_HUB_DOWNLOAD_TIMEOUT" in seen[0], "what its author gave"
    assert "http://127.0.0.1:9" in seen[0], "a proxy without its password"
    for secret in ("hf_of_the_operator", "password-of-the-proxy"):
        assert [it for it in seen if secret in it] == []
