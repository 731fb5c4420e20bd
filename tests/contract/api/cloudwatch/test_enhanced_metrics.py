"""Enhanced metrics and the metrics of a new fleet, as boto3 programs request them.

Sources: api.md 6.1 (the search in the AWS sample for accelerators in use, and EndpointConfigName)
and its section on deployment guardrails.
"""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.metrics.sagemaker.census_sample import HOSTS, census
from tests.unit.metrics.sagemaker.load_sample import CHAT, load

from hostelry.base.clock import ManualClock
from hostelry.domain.copy import GpuUse
from hostelry.domain.metric import MetricsConfig
from hostelry.domain.scope import Scope
from hostelry.metrics.sagemaker.census import Census
from hostelry.metrics.sagemaker.publication import Publication
from hostelry.metrics.sagemaker.utilization import utilization
from hostelry.metrics.series.store import MemoryMetrics

Client = Callable[[str], Any]
M0 = 1_700_000_040
GPU_SEARCH = (
    "SEARCH('{/aws/sagemaker/InferenceComponents,EndpointName,VariantName,InstanceId,ContainerId,"
    "InferenceComponentName,%s} MetricName=\"GPUUtilizationNormalized\" %s', 'SampleCount', 10)"
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(M0 + 62.0)


def place() -> Census:
    """Two copies with an accelerator each, on one instance, with metrics every ten seconds."""
    found = census()
    gpus = [GpuUse(device=it, busy_percent=50.0, memory_percent=20.0) for it in "01"]
    copies = tuple(
        replace(it, gpus=(gpu,)) for it, gpu in zip(found.variants[HOSTS].copies, gpus, strict=True)
    )
    metrics = MetricsConfig(is_enhanced=True, period_s=10)
    hosts = replace(found.variants[HOSTS], metrics=metrics, copies=copies)
    chat = replace(found.components[CHAT], copies=copies)
    return replace(found, variants={HOSTS: hosts}, components={CHAT: chat})


@pytest.fixture
def cloudwatch(client: Client, metrics: MemoryMetrics, scope: Scope) -> Any:
    """boto3's, after a minute of two requests a second, of which the first copy took one."""
    publication, there = Publication(), place()
    by_copy = {"c-0": 1, "c-1": 1}
    for second in range(M0, M0 + 60):
        busy = load(second, arrivals=2, finished=2, errors_5xx=1, arrivals_by_copy=by_copy)
        reported = [it for _, it in publication.take(second, [busy], there)]
        if second % 10 == 9:
            reported += [it for _, it in utilization(second - 9, there, {"c-0": 0.5, "c-1": 0.5})]
        metrics.record(scope, reported)
    return client("cloudwatch")


def asked(cloudwatch: Any, *expressions: str) -> list[list[float]]:
    queries = [{"Id": f"e{at}", "Expression": it} for at, it in enumerate(expressions)]
    found = cloudwatch.get_metric_data(
        MetricDataQueries=queries, StartTime=M0, EndTime=M0 + 60, ScanBy="TimestampAscending"
    )
    return [it["Values"] for it in found["MetricDataResults"]]


@pytest.mark.parametrize("name", ["GpuId", "AcceleratorId"])
@pytest.mark.parametrize("of", ['EndpointName="ep"', 'InferenceComponentName="chat"'])
def test_the_samples_search_counts_the_accelerators_in_use(
    cloudwatch: Any, name: str, of: str
) -> None:
    *each, in_use = asked(cloudwatch, GPU_SEARCH % (name, of), "SUM(e0)")
    assert each == [[1.0] * 6] * 2
    assert in_use == [2.0] * 6


def test_the_samples_cost_adds_up_over_periods(cloudwatch: Any) -> None:
    search = GPU_SEARCH % ("GpuId", 'InferenceComponentName="chat"')
    found = asked(cloudwatch, search, "SUM(e0)", "e1 * 7.2 / 4 / 360", "RUNNING_SUM(e2)")
    assert found[-1] == pytest.approx([0.01 * it for it in range(1, 7)])


def test_the_number_of_instances_is_how_many_reported_their_use(cloudwatch: Any) -> None:
    metric = {
        "Namespace": "/aws/sagemaker/Endpoints",
        "MetricName": "CPUUtilizationNormalized",
        "Dimensions": [
            {"Name": "EndpointName", "Value": "ep"},
            {"Name": "VariantName", "Value": "all"},
        ],
    }
    stat = {"Metric": metric, "Period": 10, "Stat": "SampleCount"}
    found = cloudwatch.get_metric_data(
        MetricDataQueries=[{"Id": "m2", "MetricStat": stat}], StartTime=M0, EndTime=M0 + 60
    )
    assert found["MetricDataResults"][0]["Values"] == [1.0] * 6


def test_the_containers_of_a_component_are_found_by_listing_and_add_up_to_it(
    cloudwatch: Any,
) -> None:
    listed = cloudwatch.list_metrics(
        Namespace="AWS/SageMaker",
        MetricName="Invocations",
        Dimensions=[{"Name": "InferenceComponentName", "Value": "chat"}],
    )["Metrics"]
    sums: dict[str, float] = {}
    for metric in listed:
        found = cloudwatch.get_metric_statistics(
            Namespace="AWS/SageMaker",
            MetricName="Invocations",
            Dimensions=metric["Dimensions"],
            StartTime=M0,
            EndTime=M0 + 60,
            Period=60,
            Statistics=["Sum"],
        )["Datapoints"]
        names = {it["Name"]: it["Value"] for it in metric["Dimensions"]}
        sums[names.get("ContainerId", "all")] = sum(it["Sum"] for it in found)
    assert sums == {"c-0": 60.0, "c-1": 60.0, "all": 120.0}


def test_an_alarm_on_the_new_fleet_sees_the_requests_of_all_its_components(
    cloudwatch: Any,
) -> None:
    search = (
        "SEARCH('{AWS/SageMaker,EndpointConfigName,EndpointName,VariantName}"
        " MetricName=\"Invocation5XXErrors\"', 'Average', 60)"
    )
    assert asked(cloudwatch, search) == [[0.5]]
