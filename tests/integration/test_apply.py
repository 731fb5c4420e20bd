"""`hostelry apply` and `export` on a platform with a tiny model, adapters and an echo."""

import json
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from benchmarks.models import tiny_model
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.platform import CLI, Platform, until
from tests.models import random_adapter

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]

DOCUMENT = """
set: shop
models:
  echo: {{Image: "echo:1"}}
endpoints:
  chat:
    InstanceType: ml.g5.xlarge
    Components:
      tiny:
        Image: djl-inference:0.27.0
        Environment: {{OPTION_MODEL_ID: ./model, OPTION_ENABLE_LORA: true}}
        MinMemoryRequiredInMb: 512
        Adapters: {{{adapters}}}
        Scaling: {{MinCapacity: 1, MaxCapacity: 2, TargetValue: {target}}}
  echo: {{ModelName: echo, InstanceType: ml.m5.large, InitialInstanceCount: {count}}}
alarms:
  {alarm}:
    Namespace: AWS/SageMaker
    MetricName: Invocations
    Dimensions: {{EndpointName: echo, VariantName: AllTraffic}}
    Statistic: Sum
    Period: 60
    EvaluationPeriods: 1
    Threshold: 1000
    ComparisonOperator: GreaterThanThreshold
"""
FIRST = DOCUMENT.format(adapters="es: ./es", target=100, count=1, alarm="busy")
LATER = DOCUMENT.format(adapters="fr: ./fr", target=50, count=2, alarm="quiet")


@dataclass(frozen=True)
class AppliedShop:
    """A platform, and the folder of the documents."""

    platform: Platform
    folder: Path

    def write(self, text: str) -> str:
        path = self.folder / "shop.yaml"
        path.write_text(text)
        return str(path)

    def apply(self, text: str, *flags: str, code: int = 0) -> str:
        return self.platform.cli("apply", "-f", self.write(text), *flags, code=code).stdout

    def killed(self, text: str, *flags: str, after: str) -> None:
        """Kill an apply once its progress has a line that begins with `after`."""
        command = [*CLI, "apply", "--home", str(self.platform.home.root), "-f", self.write(text)]
        with subprocess.Popen(
            [*command, *flags], env=self.platform.environment, stderr=subprocess.PIPE, text=True
        ) as running:
            assert running.stderr is not None
            assert any(line.startswith(after) for line in running.stderr)
            running.send_signal(signal.SIGKILL)

    def completion(self, component: str) -> dict[str, Any]:
        body = {"inputs": "hi", "parameters": {"max_new_tokens": 2}}
        answer = self.platform.boto3("sagemaker-runtime").invoke_endpoint(
            EndpointName="chat",
            InferenceComponentName=component,
            ContentType="application/json",
            Body=json.dumps(body),
        )
        found: dict[str, Any] = json.loads(answer["Body"].read())
        return found


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppliedShop]:
    folder = tmp_path_factory.mktemp("apply")
    model = tiny_model(folder / "model")
    for number, name in enumerate(("es", "fr")):
        random_adapter(folder / name, model, rank=4, seed=number)
    home = folder / "home"
    home.mkdir(mode=0o700)
    (home / "images.toml").write_text(ECHO_IMAGE)
    with Platform(home, "--pace", "40") as platform:
        yield AppliedShop(platform, folder)


def test_a_document_from_nothing_to_changed_exported_and_pruned(shop: AppliedShop) -> None:
    sagemaker = shop.platform.boto3("sagemaker")
    assert "8 to create" in shop.apply(FIRST, "--diff", code=3)
    assert sagemaker.list_models()["Models"] == []

    shop.killed(FIRST, after="created endpoint echo")
    shop.apply(FIRST)
    assert "generated_text" in shop.completion("es")
    assert shop.apply(FIRST) == "Nothing to change: 8 resources are as desired.\n"

    refused = shop.platform.cli("apply", "-f", shop.write(LATER), "--prune", code=1)
    assert "this deletes or replaces component es: give --yes to do it" in refused.stderr
    shop.killed(LATER, "--prune", "--yes", after="deleted component es")
    shop.apply(LATER, "--prune", "--yes")
    assert "generated_text" in shop.completion("fr")
    components = sagemaker.list_inference_components()["InferenceComponents"]
    assert {it["InferenceComponentName"] for it in components} == {"tiny", "fr"}
    [variant] = sagemaker.describe_endpoint(EndpointName="echo")["ProductionVariants"]
    assert variant["DesiredInstanceCount"] == 2
    [policy] = shop.platform.boto3("application-autoscaling").describe_scaling_policies(
        ServiceNamespace="sagemaker"
    )["ScalingPolicies"]
    assert policy["TargetTrackingScalingPolicyConfiguration"]["TargetValue"] == 50

    exported = shop.platform.cli("export").stdout
    assert shop.apply(exported, "--diff", "--prune") == (
        "Nothing to change: 8 resources are as desired.\n"
    )
    shop.apply("set: shop\nmodels: {}", "--prune", "--yes")
    assert sagemaker.list_endpoints()["Endpoints"] == []
    assert sagemaker.list_models()["Models"] == []
    assert sagemaker.list_endpoint_configs()["EndpointConfigs"] == []
    until(lambda: "endpoints" not in shop.platform.cli("export").stdout, "the export is empty")
    path = shop.write(exported)
    with ThreadPoolExecutor(2) as two:  # at once: a step done by the other one has not failed
        applied = [two.submit(shop.platform.cli, "apply", "-f", path) for _ in range(2)]
    assert [it.result().returncode for it in applied] == [0, 0]
    assert shop.platform.cli("export").stdout == exported


def test_a_failure_has_its_reason_and_the_next_apply_mends_it(shop: AppliedShop) -> None:
    text = "endpoints: {bad: {ModelName: bad, InstanceType: ml.m5.large}}\nmodels: {bad: %s}"
    broken = text % '{Image: "echo:1", ModelDataUrl: s3://absent/model.tar.gz}'
    failed = shop.platform.cli("apply", "-f", shop.write(broken), code=1)
    assert "endpoint bad is Failed" in failed.stderr
    assert "s3://absent/model.tar.gz" in failed.stderr
    assert "-/+ endpoint bad" in shop.apply(broken, "--diff", code=3)
    shop.apply(text % '{Image: "echo:1"}', "--yes")
    sagemaker = shop.platform.boto3("sagemaker")
    assert sagemaker.describe_endpoint(EndpointName="bad")["EndpointStatus"] == "InService"
