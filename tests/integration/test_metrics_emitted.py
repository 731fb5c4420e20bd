"""Measurements of real requests on a real platform: CloudWatch, Prometheus, and costs."""

import csv
import json
import re
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.platform import Platform, until

from hostelry.base.clock import SystemClock
from hostelry.cli.dashboards.tables import ROWS, RULES
from hostelry.home.home import Home

pytestmark = pytest.mark.integration

ROLE = "arn:aws:iam::111122223333:role/HostelryExecutionRole"
NUM_AT_ONCE = 3
LASTS_S = 2.0
METRIC = re.compile(r"\b(?:hostelry|vllm)[_:]\w+")
# At /metrics/copies, of model servers that this platform has none of.
OF_COPIES = ("vllm:", "hostelry_llm_", "hostelry_model_re", "hostelry_model_q", "hostelry_copy_")


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A platform with the component `base` on one instance."""
    home = Home(tmp_path_factory.mktemp("platform") / "home")
    home.root.mkdir()
    home.images.write_text(ECHO_IMAGE)
    with Platform(home.root, "--gateway-workers", "2") as started:
        create_endpoint(started)
        create_component(started, "base", cpus=1)
        yield started


def create_endpoint(platform: Platform) -> None:
    sagemaker = platform.boto3("sagemaker")
    sagemaker.create_endpoint_config(
        EndpointConfigName="c",
        ExecutionRoleArn=ROLE,
        MetricsConfig={"EnableEnhancedMetrics": True, "MetricPublishFrequencyInSeconds": 10},
        ProductionVariants=[
            {"VariantName": "all", "InstanceType": "ml.m5.large", "InitialInstanceCount": 1}
        ],
    )
    sagemaker.create_endpoint(EndpointName="ep", EndpointConfigName="c")


def create_component(platform: Platform, name: str, cpus: float) -> None:
    sagemaker = platform.boto3("sagemaker")
    sagemaker.create_inference_component(
        InferenceComponentName=name,
        EndpointName="ep",
        VariantName="all",
        Specification={
            "Container": {"Image": "echo:1"},
            "ComputeResourceRequirements": {
                "MinMemoryRequiredInMb": 256,
                "NumberOfCpuCoresRequired": cpus,
            },
        },
        RuntimeConfig={"CopyCount": 1},
    )

    def is_there() -> bool:
        found = sagemaker.describe_inference_component(InferenceComponentName=name)
        return bool(found["InferenceComponentStatus"] == "InService")

    until(is_there, "the component is in service", 60)


def invoke(platform: Platform, body: bytes, name: str = "base") -> None:
    platform.boto3("sagemaker-runtime").invoke_endpoint(
        EndpointName="ep", InferenceComponentName=name, Body=body
    )


def stream(platform: Platform, body: bytes) -> None:
    answer = platform.boto3("sagemaker-runtime").invoke_endpoint_with_response_stream(
        EndpointName="ep", InferenceComponentName="base", Body=body
    )
    assert b"".join(it["PayloadPart"]["Bytes"] for it in answer["Body"]).endswith(b"end\n")


def at_once(platform: Platform) -> None:
    """Three requests and a stream, all under way together for about two seconds."""
    calls = [(invoke, b"sleep %g" % LASTS_S)] * NUM_AT_ONCE + [(stream, b"drip %g" % LASTS_S)]
    threads = [threading.Thread(target=call, args=(platform, body)) for call, body in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)


def values(platform: Platform, name: str, period_s: int, statistic: str) -> list[float]:
    """The metric's values of the last minutes, oldest first."""
    now = SystemClock().now()
    metric = {
        "Namespace": "AWS/SageMaker",
        "MetricName": name,
        "Dimensions": [{"Name": "InferenceComponentName", "Value": "base"}],
    }
    query = {
        "Id": "m",
        "MetricStat": {"Metric": metric, "Period": period_s, "Stat": statistic},
    }
    found: dict[str, Any] = platform.boto3("cloudwatch").get_metric_data(
        MetricDataQueries=[query],
        StartTime=now - 300,
        EndTime=now + 60,
        ScanBy="TimestampAscending",
    )
    return list(found["MetricDataResults"][0]["Values"])


def of_containers(platform: Platform, namespace: str, name: str, statistic: str) -> list[float]:
    """The sum over the search for the metric of each container. Source: api.md 6.1."""
    names = f"{namespace},EndpointName,VariantName,InstanceId,ContainerId,InferenceComponentName"
    search = f"""SEARCH('{{{names}}} MetricName="{name}" EndpointName="ep"', '{statistic}', 10)"""
    now = SystemClock().now()
    found: dict[str, Any] = platform.boto3("cloudwatch").get_metric_data(
        MetricDataQueries=[{"Id": "m", "Expression": search}], StartTime=now - 300, EndTime=now + 60
    )
    return [value for it in found["MetricDataResults"] for value in it["Values"]]


def metrics_page(platform: Platform) -> str:
    """The gateway's page for Prometheus."""
    request = urllib.request.Request(f"{platform.config.gateway_url}/metrics")
    request.add_header("Authorization", f"Bearer {platform.credentials.openai_api_key}")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(answer.read().decode())


def panel_metrics() -> set[str]:
    """The metrics that dashboards and alert rules name."""
    panels = [text for row in ROWS for panel in row.panels for text, _ in panel.queries]
    texts = [*panels, *(it.expression for it in RULES)]
    return {name for text in texts for name in METRIC.findall(text)}


def scraped(platform: Platform, name: str) -> dict[str, float]:
    """The component's samples of that name, by kind of error or an empty word."""
    families = text_string_to_metric_families(metrics_page(platform))
    return {
        sample.labels.get("kind", ""): sample.value
        for family in families
        for sample in family.samples
        if sample.name == name and sample.labels.get("component") == "base"
    }


def test_requests_and_a_stream_are_seen_in_cloudwatch_and_by_prometheus(platform: Platform) -> None:
    at_once(platform)
    total = NUM_AT_ONCE + 1

    until(lambda: sum(values(platform, "Invocations", 60, "Sum")) == total, "each is counted")
    until(lambda: sum(values(platform, "ModelLatency", 60, "SampleCount")) == total, "ended")
    assert sum(values(platform, "InvocationsPerCopy", 60, "Sum")) == total
    assert sum(values(platform, "FirstChunkLatency", 60, "SampleCount")) == 1
    assert sum(values(platform, "Invocation5XXErrors", 60, "Sum")) == 0
    slowest_us = max(values(platform, "ModelLatency", 60, "Maximum"))
    assert LASTS_S * 1e6 * 0.99 < slowest_us < LASTS_S * 1e6 * 3

    def ended() -> float:
        return sum(of_containers(platform, "AWS/SageMaker", "ModelLatency", "SampleCount"))

    until(lambda: ended() == total, "each ended on its copy")
    assert sum(of_containers(platform, "AWS/SageMaker", "Invocations", "Sum")) == total
    used = "/aws/sagemaker/InferenceComponents"
    until(
        lambda: any(of_containers(platform, used, "MemoryUtilizationNormalized", "Average")),
        "the copy's memory is told",
        30,
    )

    def concurrency() -> list[float]:
        return values(platform, "ConcurrentRequestsPerCopy", 10, "Maximum")

    until(
        lambda: concurrency() and concurrency()[-1] == 0.0 < max(concurrency()), "zeros after", 25
    )
    assert max(concurrency()) == total

    assert scraped(platform, "hostelry_requests_total") == {"": total}
    assert scraped(platform, "hostelry_in_flight") == {"": 0.0}
    assert set(scraped(platform, "hostelry_request_errors_total").values()) == {0.0}
    assert scraped(platform, "hostelry_copies") == {"": 1.0}
    page = metrics_page(platform)
    own = {it for it in panel_metrics() if f"# TYPE {it.removesuffix('_bucket')} " in page}
    assert own == {it for it in panel_metrics() if not it.startswith(OF_COPIES)}
    top = json.loads(platform.cli("top", "--json").stdout)
    (served,) = top["served"]
    assert (served["name"], served["copies"], served["p99_ms"] > LASTS_S * 990) == ("base", 1, True)
    assert all(it["cpu_percent"] is not None for it in top["processes"])


PRICES = """
currency = "EUR"
[instances."ml.m5.large"]
price_per_hour = 3600
[transfer]
price_per_gb_in = 0
price_per_gb_out = 0
[[budgets]]
name = "all"
amount = 0
period = "month"
"""


def costs(platform: Platform) -> dict[str, Any]:
    """The costs of the last hours, by component."""
    found: dict[str, Any] = json.loads(
        platform.cli("cost", "--last", "2h", "--by", "component", "--json").stdout
    )
    return found


def count_calls(found: dict[str, Any]) -> dict[str, float]:
    return {it["name"]: it["calls"] for it in found["rows"] if it["calls"]}


def test_costs_reconcile_and_outlive_the_kill_of_control(platform: Platform) -> None:
    shown = platform.cli("cost")
    assert "prices.toml" in shown.stderr
    platform.home.prices.write_text(PRICES)
    create_component(platform, "small", cpus=0.5)
    before = count_calls(costs(platform)).get("base", 0)
    for name in ("base", "small", "small"):
        invoke(platform, b"x", name)
    counted = {"base": before + 1, "small": 2}
    until(lambda: count_calls(costs(platform)) == counted, "every call is counted", 30)
    pid = platform.kill("control")
    invoke(platform, b"x", "small")
    platform.back("control", pid)
    counted["small"] += 1
    until(lambda: count_calls(costs(platform)) == counted, "every call is counted once", 30)
    found = costs(platform)
    amounts = {it["name"]: it["amount"] for it in found["rows"]}
    (idle,) = found["idle"]
    instance_s = found["total"]["amount"]  # at one euro per second
    parts = amounts["base"] + amounts["small"] + idle["amount"]
    assert parts == pytest.approx(instance_s, rel=0.005)
    assert amounts["base"] == pytest.approx(instance_s / 2, rel=0.02), "it reserves 1 of 2 CPUs"
    assert idle["reason"] == "not reserved by any copy"
    assert found["missing_prices"] == ["storage.price_per_gb_month"]
    assert found["budgets"][0]["is_over"] is True
    steps = {(it["endpoint"], it["operation"]): it["steps"] for it in found["steps"]}
    assert steps["ep", "CreateInferenceComponent"] >= 2
    assert steps["", "CreateEndpointConfig"] >= 1
    assert instance_s == pytest.approx(found["recorded_s"], abs=15), (
        "the instance ran nearly all the time"
    )
    focus = platform.home.root.parent / "focus.csv"
    platform.cli("cost", "--focus", str(focus), "--csv", str(focus.with_name("rows.csv")))
    with focus.open() as file:
        rows = list(csv.DictReader(file))
    billed = sum(float(it["BilledCost"]) for it in rows if it["SkuId"] == "ml.m5.large")
    assert billed == pytest.approx(instance_s, abs=15)
