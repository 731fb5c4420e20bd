"""Shares of three variants over two gateway workers, and after a change of weights."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
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
        sagemaker = running.boto3("sagemaker")
        sagemaker.create_model(
            ModelName="m", ExecutionRoleArn=ROLE, PrimaryContainer={"Image": "echo:1"}
        )
        variants = [
            {
                "VariantName": name,
                "ModelName": "m",
                "InstanceType": "ml.m5.large",
                "InitialInstanceCount": 1,
                "InitialVariantWeight": weight,
            }
            for name, weight in WEIGHTS.items()
        ]
        sagemaker.create_endpoint_config(EndpointConfigName="c", ProductionVariants=variants)
        sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
        waiter = sagemaker.get_waiter("endpoint_in_service")
        waiter.wait(EndpointName="e", WaiterConfig={"Delay": 1, "MaxAttempts": 90})
        yield running


class Callers:
    """Threads with a connection each; what served each request is counted."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._local = threading.local()

    def served(self, count: int, **more: Any) -> Counter[str]:
        """The variants that answered `count` requests."""
        with ThreadPoolExecutor(NUM_THREADS) as pool:
            return Counter(pool.map(lambda _: self._ask(more), range(count)))

    def _ask(self, more: dict[str, Any]) -> str:
        client = getattr(self._local, "client", None)
        if client is None:
            client = self._local.client = self._platform.boto3("sagemaker-runtime")
        answer = client.invoke_endpoint(
            EndpointName="e", ContentType="application/json", Body=b"{}", **more
        )
        name: str = answer["InvokedProductionVariant"]
        return name


def shares_are(found: Counter[str], weights: dict[str, float], within: float) -> None:
    total, num = sum(weights.values()), sum(found.values())
    for name, weight in weights.items():
        assert found[name] / num == pytest.approx(weight / total, abs=within), found


def test_shares_follow_the_weights_and_their_changes(platform: Platform) -> None:
    callers, sagemaker = Callers(platform), platform.boto3("sagemaker")
    shares_are(callers.served(3_000), WEIGHTS, 0.01)
    changed = {"first": 1.0, "second": 0.0, "third": 1.0}
    sagemaker.update_endpoint_weights_and_capacities(
        EndpointName="e",
        DesiredWeightsAndCapacities=[
            {"VariantName": name, "DesiredWeight": weight} for name, weight in changed.items()
        ],
    )
    time.sleep(1.0)  # what is promised: a second after the change at most
    shares_are(callers.served(500), changed, 0.01)
    assert callers.served(10, TargetVariant="second") == {"second": 10}
    until(
        lambda: sagemaker.describe_endpoint(EndpointName="e")["EndpointStatus"] == "InService",
        "the endpoint is in service again",
    )
    found = sagemaker.describe_endpoint(EndpointName="e")["ProductionVariants"]
    assert {it["VariantName"]: it["CurrentWeight"] for it in found} == changed
