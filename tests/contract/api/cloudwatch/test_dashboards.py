"""Dashboards as programs on boto3 and Terraform's aws_cloudwatch_dashboard use them.

Sources: PutDashboard, GetDashboard, ListDashboards, DeleteDashboards and "Dashboard body structure
and syntax" in the CloudWatch API reference, and issue reports with AWS's errors about bodies.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.api.cloudwatch import dashboard
from hostelry.api.cloudwatch.dashboard import find_errors, find_warnings
from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.domain.scope import Scope

TEXT = {"type": "text", "x": 0, "y": 7, "width": 3, "height": 3, "properties": {"markdown": "Hi"}}
BODY = json.dumps({"widgets": [TEXT]})
ARN = "arn:aws:cloudwatch::123456789012:dashboard/"


@pytest.fixture
def cloudwatch(client: Callable[[str], Any]) -> Any:
    return client("cloudwatch")


def refusal(of: Callable[..., Any], **params: Any) -> Any:
    with pytest.raises(ClientError) as caught:
        of(**params)
    return caught.value.response


def metric(*metrics: Any, **properties: Any) -> dict[str, Any]:
    shown = {"metrics": list(metrics), "region": "us-west-2", **properties}
    return {"type": "metric", "properties": {k: v for k, v in shown.items() if v is not None}}


LOAD = ["AWS/SageMaker", "Invocations", "EndpointName", "e"]
GOOD = [
    TEXT,
    metric(LOAD),
    metric(LOAD, ["...", "f"], [".", "ModelLatency", ".", "."], view="timeSeries", stacked=True),
    metric([*LOAD, {"stat": "Sum", "id": "m1"}], [{"expression": "m1 * 2", "id": "e1"}]),
    metric(metrics=None, region=None, annotations={"alarms": ["arn:aws:cloudwatch:::alarm:a"]}),
    {"type": "alarm", "properties": {"alarms": ["arn:aws:cloudwatch:::alarm:a"]}},
    {"type": "log", "properties": {"query": "fields @message", "region": "us-west-2"}},
    {"type": "custom", "properties": {"endpoint": "arn:aws:lambda:us-west-2:1:function:f"}},
]


def test_apply_plan_change_and_destroy_as_terraform_does(
    cloudwatch: Any, clock: ManualClock
) -> None:
    text = json.dumps({"widgets": GOOD}, indent=2)
    put = cloudwatch.put_dashboard(DashboardName="main", DashboardBody=text)
    assert put["DashboardValidationMessages"] == []
    found = cloudwatch.get_dashboard(DashboardName="main")
    assert found["DashboardBody"] == text, "the plan is empty only where the body comes unchanged"
    assert (found["DashboardArn"], found["DashboardName"]) == (f"{ARN}main", "main")
    clock.advance(60)
    cloudwatch.put_dashboard(DashboardName="main", DashboardBody=BODY)
    (entry,) = cloudwatch.list_dashboards()["DashboardEntries"]
    assert (entry["DashboardName"], entry["DashboardArn"]) == ("main", f"{ARN}main")
    assert (entry["Size"], entry["LastModified"].timestamp()) == (len(BODY), clock.now())
    cloudwatch.delete_dashboards(DashboardNames=["main"])
    gone = refusal(cloudwatch.get_dashboard, DashboardName="main")
    assert gone["Error"]["Code"] == "ResourceNotFound"
    assert gone["Error"]["Message"] == "Dashboard main does not exist"
    assert gone["ResponseMetadata"]["HTTPStatusCode"] == 404


def test_lists_are_by_prefix_in_pages(cloudwatch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "LISTS", replace(dashboard.LISTS, page_size=2))
    for name in ("b1", "a1", "b3", "b2", "B4"):
        cloudwatch.put_dashboard(DashboardName=name, DashboardBody=BODY)
    pages = cloudwatch.get_paginator("list_dashboards").paginate(DashboardNamePrefix="b")
    names = [[it["DashboardName"] for it in page["DashboardEntries"]] for page in pages]
    assert names == [["b1", "b2"], ["b3"]]
    wrong = refusal(cloudwatch.list_dashboards, NextToken="x")
    assert wrong["Error"]["Code"] == "InvalidParameterValue"


def test_a_delete_with_an_unknown_name_deletes_none(cloudwatch: Any) -> None:
    cloudwatch.put_dashboard(DashboardName="a", DashboardBody=BODY)
    error = refusal(cloudwatch.delete_dashboards, DashboardNames=["a", "b"])["Error"]
    assert (error["Code"], error["Message"]) == ("ResourceNotFound", "Dashboard b does not exist")
    assert cloudwatch.get_dashboard(DashboardName="a")
    error = refusal(cloudwatch.delete_dashboards, DashboardNames=[])["Error"]
    assert error["Code"] == "InvalidParameterValue"


def test_a_dashboard_is_the_accounts_in_every_region(api: Api) -> None:
    put = {"DashboardName": "a", "DashboardBody": BODY}
    api.call_as(api.scope, "PutDashboard", "cloudwatch", **put)
    elsewhere, other = (
        Scope(api.scope.account, "eu-west-1"),
        Scope("210987654321", api.scope.region),
    )
    assert api.call_as(elsewhere, "GetDashboard", "cloudwatch", DashboardName="a")
    assert api.call_as(other, "ListDashboards", "cloudwatch")["DashboardEntries"] == []


def test_tags_come_and_go_with_the_dashboard(cloudwatch: Any) -> None:
    def tags() -> dict[str, str]:
        listed = cloudwatch.list_tags_for_resource(ResourceARN=f"{ARN}a")["Tags"]
        return {it["Key"]: it["Value"] for it in listed}

    team = [{"Key": "team", "Value": "x"}]
    cloudwatch.put_dashboard(DashboardName="a", DashboardBody=BODY, Tags=team)
    cloudwatch.tag_resource(ResourceARN=f"{ARN}a", Tags=[{"Key": "more", "Value": "y"}])
    assert tags() == {"team": "x", "more": "y"}
    cloudwatch.delete_dashboards(DashboardNames=["a"])
    gone = refusal(cloudwatch.list_tags_for_resource, ResourceARN=f"{ARN}a")
    assert gone["Error"]["Code"] == "ResourceNotFoundException"
    cloudwatch.put_dashboard(DashboardName="a", DashboardBody=BODY)
    assert tags() == {}


@cases(
    "widget, remarks",
    case("a metric widget without metrics", metric(metrics=None), [
            ("/widgets/0/properties", "Should have required property 'metrics'"),
            (
                "/widgets/0/properties",
                "The metric widget should have specified a region and a data source or an alarm"
                " annotation",
            ),
            ("/widgets/0/properties", "Should have required property 'annotations'"),
        ]),
    case("a metric that is no list", metric("AWS/SageMaker"), [
            ("/widgets/0/properties/metrics/0", "Should be array"),
            (
                "/widgets/0/properties/metrics/0",
                'Field "metrics" has to be an array of array of strings, with an optional'
                " metricRenderer object as last element",
            ),
        ]),
    case("dimensions as an object",
        metric(["AWS/SageMaker", "Invocations", {"EndpointName": "e"}, {"stat": "Sum"}]), [
            (
                "/widgets/0/properties/metrics/0/2",
                'Invalid metric field type, only "String" type is allowed',
            )
        ]),
    case("a dimension without a value", metric(LOAD[:3]),
        [("/widgets/0/properties/metrics/0", "Should NOT have more than 2 items")]),
    case("no alarms", {"type": "alarm", "properties": {"alarms": []}},
        [("/widgets/0/properties/alarms", "Should NOT have less than 1 items")]),
    case("no text", {"type": "text", "properties": {}},
        [("/widgets/0/properties", "Should have required property 'markdown'")]),
    case("beside the grid", {**TEXT, "x": 24, "width": 0, "height": 2.5}, [
            ("/widgets/0/x", "Should be <= 23"),
            ("/widgets/0/width", "Should be >= 1"),
            ("/widgets/0/height", "Should be integer"),
        ]),
    case("no type", {"properties": {}}, [("/widgets/0", "Should have required property 'type'")]),
    case("a widget that is no object", 7, [("/widgets/0", "Should be object")]),
)  # fmt: skip
def test_an_invalid_body_is_refused_with_each_place(
    cloudwatch: Any, widget: Any, remarks: list[tuple[str, str]]
) -> None:
    body = json.dumps({"widgets": [widget]})
    error = refusal(cloudwatch.put_dashboard, DashboardName="a", DashboardBody=body)["Error"]
    assert error["Code"] == "InvalidParameterInput"
    first, _, places = error["Message"].partition(":\n")
    assert first == f"The dashboard body is invalid, there are {len(remarks)} validation errors"
    assert [(it["dataPath"], it["message"]) for it in json.loads(places)] == remarks
    assert cloudwatch.list_dashboards()["DashboardEntries"] == []


NOT_JSON = "The field DashboardBody must be a valid JSON object"


@cases(
    "name, body, message",
    case("no JSON", "a", "{", NOT_JSON),
    case("no object", "a", "[]", NOT_JSON),
    case("a hundred thousand brackets", "a", "[" * 100_000, NOT_JSON),
    case("nested too deep", "a", '{"widgets": ' + "[" * 900 + "]" * 900 + "}",
        "nested deeper than 50"),
    case("too large", "a", f'{{"widgets": ["{"x" * 1024 * 1024}"]}}', "it has at most 1048576"),
    case("no widgets", "a", "{}", "required property 'widgets'"),
    case("widgets that are no list", "a", '{"widgets": {}}', "Should be array"),
    case("501", "a", json.dumps({"widgets": [TEXT] * 501}), "more than 500 items"),
    case("an end alone", "a", '{"widgets": [], "end": "x"}', "property 'start'"),
    case("a slash in the name", "a/b", BODY, "letters, digits, - and _"),
    case("no name", "", BODY, "1 to 255 characters"),
    case("a long name", "x" * 256, BODY, "1 to 255 characters"),
    case("other letters", "\u00e9\n", BODY, "letters, digits, - and _"),
)  # fmt: skip
def test_what_is_no_dashboard_is_refused(
    cloudwatch: Any, name: str, body: str, message: str
) -> None:
    error = refusal(cloudwatch.put_dashboard, DashboardName=name, DashboardBody=body)["Error"]
    assert error["Code"] == "InvalidParameterInput"
    assert message in error["Message"]


def test_unknown_members_are_stored_with_a_warning(cloudwatch: Any) -> None:
    body = json.dumps({"widgets": [{**TEXT, "colour": "red"}], "theme": "dark"})
    put = cloudwatch.put_dashboard(DashboardName="a", DashboardBody=body)
    assert put["DashboardValidationMessages"] == [
        {"DataPath": "/theme", "Message": "Unknown property theme, will be ignored"},
        {"DataPath": "/widgets/0/colour", "Message": "Unknown property colour, will be ignored"},
    ]
    assert cloudwatch.get_dashboard(DashboardName="a")["DashboardBody"] == body


def test_there_are_so_many_at_most(cloudwatch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "MAX_DASHBOARDS", 1)
    cloudwatch.put_dashboard(DashboardName="a", DashboardBody=BODY)
    cloudwatch.put_dashboard(DashboardName="a", DashboardBody=BODY)
    error = refusal(cloudwatch.put_dashboard, DashboardName="b", DashboardBody=BODY)["Error"]
    assert "more are not possible" in error["Message"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "x", "width", "properties", "metrics", "annotations", "alarms"]
            ),
            inner | st.sampled_from(["metric", "text", "alarm", "log"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(["widgets", "start", "end", "periodOverride"]), JSON))
def test_any_body_is_judged(body: dict[str, Any]) -> None:
    if not list(find_errors(body)):
        list(find_warnings(body))


@pytest.mark.parametrize(
    ("operation", "params", "message"),
    [
        ("PutAnomalyDetector", {}, "there is no anomaly detection here; compare with a number"),
        ("DescribeAnomalyDetectors", {}, "there is no anomaly detection"),
        ("DeleteAnomalyDetector", {}, "there is no anomaly detection"),
        ("GetMetricWidgetImage", {"MetricWidget": "{}"}, "graphs are not drawn here"),
    ],
)
def test_an_operation_that_is_not_served_has_a_reason(
    api: Api, operation: str, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(ServiceError) as caught:
        api.call(operation, "cloudwatch", **params)
    assert caught.value.code == "UnknownOperationException"
    assert f"cloudwatch:{operation}: {message}" in caught.value.message


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("ANOMALY_DETECTION_BAND(m1, 2)", "there is no anomaly detection here; compare with"),
        ("1 + INSIGHT_RULE_METRIC('r', UniqueContributors)", "no Contributor Insights"),
        ("SERVICE_QUOTA(m1)", "no service quotas"),
        ("LAMBDA('f')", "publish values by PutMetricData"),
        ("NOT_A_FUNCTION(m1)", "There is no function NOT_A_FUNCTION here"),
    ],
)
def test_functions_of_aws_that_are_not_here_are_named(
    cloudwatch: Any, expression: str, message: str
) -> None:
    stat = {"Metric": {"Namespace": "n", "MetricName": "m"}, "Period": 60, "Stat": "Sum"}
    queries = [{"Id": "m1", "MetricStat": stat}, {"Id": "e1", "Expression": expression}]
    times = {"StartTime": 1_700_000_000, "EndTime": 1_700_000_600}
    error = refusal(cloudwatch.get_metric_data, MetricDataQueries=queries, **times)["Error"]
    assert error["Code"] == "ValidationError"
    assert message in error["Message"]
    assert expression.rpartition("(")[0].split()[-1] in error["Message"]
