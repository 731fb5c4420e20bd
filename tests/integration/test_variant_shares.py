"""Shares of three variants over two gateway workers, and after a change of weights."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.platform import Platform, until
from tests.integration.served_models import ROLE

pytestmark = [pytest.mark.integration, pytest.mark.timeout(200)]
WEIGHTS = {"first": 5.0, "second": 3.0, "third": 2.0}
NUM_THREADS = 8


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = tmp_path_factory.mktemp("home") / "home"
    home.mkdir()
    (home / "images.toml").write_text(ECHO_IMAGE)
    with Platform(home, "--gateway-workers", "2") as running:
        deploy(running, "e", WEIGHTS, "ok")
        yield running


def deploy(platform: Platform, name: str, weights: dict[str, float], last_mode: str) -> None:
    """Create an endpoint of echo models in service. The last variant has `last_mode`."""
    sagemaker, variants = platform.boto3("sagemaker"), []
    for variant, weight in weights.items():
        mode = last_mode if variant == list(weights)[-1] else "ok"
        container = {"Image": "echo:1", "Environment": {"ECHO_MODE": mode}}
        model = f"{name}-{variant}"
        sagemaker.create_model(ModelName=model, ExecutionRoleArn=ROLE, PrimaryContainer=container)
        variants.append(
            {
                "VariantName": variant,
                "ModelName": model,
                "InstanceType": "ml.m5.large",
                "InitialInstanceCount": 1,
                "InitialVariantWeight": weight,
            }
        )
    sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=variants)
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    waiter = sagemaker.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 90})


class Callers:
    """Threads with a connection each. They count which variant served each request."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._local = threading.local()

    def served(self, count: int, endpoint: str = "e", **more: Any) -> Counter[str]:
        """The variants that answered `count` requests, and the codes of errors."""
        asked = {"EndpointName": endpoint, **more}
        with ThreadPoolExecutor(NUM_THREADS) as pool:
            return Counter(pool.map(lambda _: self._ask(asked), range(count)))

    def _ask(self, asked: dict[str, Any]) -> str:
        client = getattr(self._local, "client", None)
        if client is None:
            client = self._local.client = self._platform.boto3(
                "sagemaker-runtime", retries={"total_max_attempts": 1}
            )
        try:
            answer = client.invoke_endpoint(ContentType="application/json", Body=b"{}", **asked)
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        name: str = answer["InvokedProductionVariant"]
        return name


def shares_are(found: Counter[str], weights: dict[str, float], within: float) -> None:
    total, num = sum(weights.values()), sum(found.values())
    for name, weight in weights.items():
        assert found[name] / num == pytest.approx(weight / total, abs=within), found


def test_shares_follow_the_weights_and_their_changes(platform: Platform) -> None:
    callers, sagemaker = Callers(platform), platform.boto3("sagemaker")
    shares_are(callers.served(1_000), WEIGHTS, 0.01)
    # The time of an echo says nothing, because other tests run.
    same = platform.cli(
        "compare", "e", "first", "second", "--latency", "50", "--errors", "0.05", "--wait", "9"
    )
    assert same.stdout.startswith("second against first: no worse"), same.stdout
    changed = {"first": 1.0, "second": 0.0, "third": 1.0}
    sagemaker.update_endpoint_weights_and_capacities(
        EndpointName="e",
        DesiredWeightsAndCapacities=[
            {"VariantName": name, "DesiredWeight": weight} for name, weight in changed.items()
        ],
    )
    time.sleep(1.0)  # the promise is a second after the change at most
    shares_are(callers.served(500), changed, 0.01)
    assert callers.served(10, TargetVariant="second") == {"second": 10}
    until(
        lambda: sagemaker.describe_endpoint(EndpointName="e")["EndpointStatus"] == "InService",
        "the endpoint is in service again",
    )
    found = sagemaker.describe_endpoint(EndpointName="e")["ProductionVariants"]
    assert {it["VariantName"]: it["CurrentWeight"] for it in found} == changed


def test_a_variant_that_fails_is_called_worse_after_a_few_requests(platform: Platform) -> None:
    deploy(platform, "ab", {"good": 9.0, "broken": 1.0}, "fail")
    found = Callers(platform).served(300, "ab")
    assert sum(found.values()) == 300
    assert abs(found["ModelError"] - 30) <= 6, found
    asked = ("compare", "ab", "good", "broken", "--wait", "20")
    worse = platform.cli(*asked, "--latency", "50", code=1)
    assert worse.stdout.startswith("broken against good: worse"), worse.stdout
    assert "100.00 % [" in worse.stdout
    unknown = platform.cli("compare", "ab", "good", "gone", code=1)
    assert "'gone' is not of endpoint 'ab'; it has broken, good." in unknown.stderr
