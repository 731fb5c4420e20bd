"""CloudWatch's data operations through boto3's own client, in each dialect that it may speak."""

import copy
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import botocore.session
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ClientError
from botocore.loaders import Loader

from hostelry.base.clock import ManualClock

DIALECTS = {
    "query": "application/x-www-form-urlencoded; charset=utf-8",
    "json": "application/x-amz-json-1.0",
    "smithy-rpc-v2-cbor": "application/cbor",
}
MINUTE = 1_700_000_040.0
DIMENSIONS = [{"Name": "EndpointName", "Value": "e"}, {"Name": "VariantName", "Value": "v"}]


class OneDialect(Loader):  # type: ignore[misc] # botocore has no types
    """botocore's models, restricted to one of CloudWatch's protocols."""

    dialect = ""

    def load_service_model(self, service: str, kind: str, api_version: Any = None) -> Any:
        model = super().load_service_model(service, kind, api_version)
        if service == "cloudwatch" and kind == "service-2":
            model = copy.deepcopy(model)
            model["metadata"] |= {"protocols": [self.dialect], "protocol": self.dialect}
        return model


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(MINUTE + 45)


@pytest.fixture(params=DIALECTS)
def cloudwatch(request: Any, answer: Callable[..., AWSResponse]) -> Iterator[Any]:
    spoken: set[str] = set()

    def listen(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        content_type = request.headers["Content-Type"]
        spoken.add(content_type.decode() if isinstance(content_type, bytes) else content_type)
        return answer(request)

    loader = OneDialect()
    loader.dialect = request.param
    session = botocore.session.Session()
    session.register_component("data_loader", loader)
    client = session.create_client(
        "cloudwatch",
        region_name="us-west-2",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
    )
    client.meta.events.register("before-send", listen)
    yield client
    assert spoken == {DIALECTS[request.param]}


def instant(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def put(client: Any) -> None:
    client.put_metric_data(
        Namespace="Mine/Team",
        MetricData=[
            {
                "MetricName": "Latency",
                "Dimensions": DIMENSIONS,
                "Timestamp": instant(MINUTE - 60),
                "Values": [10.0, 20.0, 30.0],
                "Counts": [1.0, 2.0, 1.0],
                "Unit": "Milliseconds",
            },
            {
                "MetricName": "Latency",
                "Dimensions": DIMENSIONS,
                "StatisticValues": {"SampleCount": 2, "Sum": 9, "Minimum": 4, "Maximum": 5},
                "Unit": "Milliseconds",
            },
            {"MetricName": "Calls", "Dimensions": DIMENSIONS, "Value": 7, "StorageResolution": 1},
        ],
    )


def metric(name: str) -> dict[str, Any]:
    return {"Namespace": "Mine/Team", "MetricName": name, "Dimensions": DIMENSIONS}


def test_statistics_of_a_metric(cloudwatch: Any) -> None:
    put(cloudwatch)
    asked = {
        **metric("Latency"),
        "StartTime": instant(MINUTE - 60),
        "EndTime": instant(MINUTE + 60),
        "Period": 60,
    }
    simple = cloudwatch.get_metric_statistics(**asked, Statistics=["Sum", "Maximum"])
    assert simple["Label"] == "Latency"
    assert simple["Datapoints"] == [
        {"Timestamp": instant(MINUTE - 60), "Sum": 80.0, "Maximum": 30.0, "Unit": "Milliseconds"},
        {"Timestamp": instant(MINUTE), "Sum": 9.0, "Maximum": 5.0, "Unit": "Milliseconds"},
    ]
    extended = cloudwatch.get_metric_statistics(**asked, ExtendedStatistics=["p100"])
    assert extended["Datapoints"] == [
        {
            "Timestamp": instant(MINUTE - 60),
            "ExtendedStatistics": {"p100": 30.0},
            "Unit": "Milliseconds",
        }
    ]


def test_queries_with_math_and_pages(cloudwatch: Any) -> None:
    put(cloudwatch)
    stat = {"Metric": metric("Latency"), "Period": 60, "Stat": "Average"}
    pages = cloudwatch.get_paginator("get_metric_data").paginate(
        MetricDataQueries=[
            {"Id": "m1", "MetricStat": stat, "ReturnData": False},
            {"Id": "e1", "Expression": "m1 / 10", "Label": "Scaled"},
        ],
        StartTime=instant(MINUTE - 60),
        EndTime=instant(MINUTE + 60),
        ScanBy="TimestampAscending",
        PaginationConfig={"PageSize": 1},
    )
    found = [it for page in pages for it in page["MetricDataResults"]]
    assert [it["StatusCode"] for it in found] == ["PartialData", "Complete"]
    assert [(it["Id"], it["Label"], it["Timestamps"], it["Values"]) for it in found] == [
        ("e1", "Scaled", [instant(MINUTE - 60)], [2.0]),
        ("e1", "Scaled", [instant(MINUTE)], [0.45]),
    ]


def test_metrics_are_listed_with_their_dimensions(cloudwatch: Any) -> None:
    put(cloudwatch)
    pages = cloudwatch.get_paginator("list_metrics").paginate(
        Namespace="Mine/Team", Dimensions=[{"Name": "VariantName"}], RecentlyActive="PT3H"
    )
    found = [it for page in pages for it in page["Metrics"]]
    assert found == [metric("Calls"), metric("Latency")]


# Source: CloudWatch's common errors, and the codes that clients of the query protocol know.
def test_refusals_have_the_codes_that_clients_know(cloudwatch: Any) -> None:
    put(cloudwatch)
    datum = {"MetricName": "m", "Value": 1.0, "StorageResolution": 7}
    with pytest.raises(ClientError) as refused:
        cloudwatch.put_metric_data(Namespace="n", MetricData=[datum])
    assert refused.value.response["Error"]["Code"] == "InvalidParameterValue"
    with pytest.raises(ClientError) as refused:
        cloudwatch.put_metric_data(Namespace="n", MetricData=[{"MetricName": "m"}])
    assert refused.value.response["Error"]["Code"] == "MissingParameter"
    with pytest.raises(ClientError) as refused:
        cloudwatch.get_metric_statistics(
            Namespace="n",
            MetricName="m",
            StartTime=instant(MINUTE),
            EndTime=instant(MINUTE - 60),
            Period=60,
            Statistics=["Sum"],
        )
    assert refused.value.response["Error"]["Code"] == "InvalidParameterCombination"
    with pytest.raises(ClientError) as refused:
        cloudwatch.list_metrics(NextToken="x")
    assert refused.value.response["Error"]["Code"] == "InvalidNextToken"
    with pytest.raises(ClientError) as refused:
        cloudwatch.get_metric_data(
            MetricDataQueries=[{"Id": "e", "Expression": "nobody + 1"}],
            StartTime=instant(MINUTE),
            EndTime=instant(MINUTE + 60),
        )
    assert refused.value.response["Error"]["Code"] == "ValidationError"


def test_messages_of_a_result_and_of_the_call(cloudwatch: Any) -> None:
    put(cloudwatch)
    for first in range(0, 501, 250):
        data = [{"MetricName": f"Many{it}", "Value": 1.0} for it in range(first, first + 250)]
        cloudwatch.put_metric_data(Namespace="Many", MetricData=data)
    stat = {"Metric": metric("Latency"), "Period": 60, "Stat": "Average"}
    found = cloudwatch.get_metric_data(
        MetricDataQueries=[
            {"Id": "m1", "MetricStat": stat},
            {"Id": "e1", "Expression": "m1 / 0"},
            {"Id": "e2", "Expression": "SUM(SEARCH('{Many}', 'Sum', 60))"},
        ],
        StartTime=instant(MINUTE - 60),
        EndTime=instant(MINUTE + 60),
    )
    plain, divided, added = found["MetricDataResults"]
    assert (plain["StatusCode"], plain.get("Messages", [])) == ("Complete", [])
    assert (divided["StatusCode"], divided["Values"]) == ("Complete", [])
    assert [it["Code"] for it in divided["Messages"]] == ["ArithmeticError"]
    assert (added["Values"], added["StatusCode"]) == ([500.0], "Complete")
    (message,) = found["Messages"]
    assert message["Code"] == "MaxMetricsExceeded"
    assert "e2 finds more than 500" in message["Value"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_no_number_is_refused_at_the_edge(cloudwatch: Any, value: float) -> None:
    with pytest.raises(ClientError) as refused:
        cloudwatch.put_metric_data(Namespace="n", MetricData=[{"MetricName": "m", "Value": value}])
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert cloudwatch.list_metrics()["Metrics"] == []
