"""ListMetrics, and refusals of GetMetricData and GetMetricStatistics."""

from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.domain.metric import Metric, Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.series.store import MemoryMetrics

DAY_S = 86_400


@pytest.fixture
def now(clock: ManualClock) -> float:
    return clock.now()


def stat(statistic: str = "Sum", period_s: int = 60) -> dict[str, Any]:
    metric = {"Namespace": "Mine", "MetricName": "Load"}
    return {"Metric": metric, "Period": period_s, "Stat": statistic}


@cases(
    "queries, params, code, text",
    case("no query", [], {}, "ValidationException", "1 to 500"),
    case(
        "501 queries",
        [{"Id": f"a{it}", "MetricStat": stat()} for it in range(501)],
        {},
        "ValidationException",
        "501",
    ),
    case("an id twice", [{"Id": "a", "MetricStat": stat()}] * 2, {}, "ValidationError", "same id"),
    case("an id", [{"Id": "A", "MetricStat": stat()}], {}, "ValidationError", "lower-case"),
    case(
        "a metric and an expression",
        [{"Id": "a", "MetricStat": stat(), "Expression": "1"}],
        {},
        "ValidationError",
        "either",
    ),
    case(
        "no statistic",
        [{"Id": "a", "MetricStat": stat(statistic="Mean")}],
        {},
        "ValidationError",
        "Mean",
    ),
    case(
        "a period of seven seconds",
        [{"Id": "a", "MetricStat": stat(period_s=7)}],
        {},
        "InvalidParameterValue",
        "multiple of 60",
    ),
    case(
        "a period of more than a day",
        [{"Id": "a", "MetricStat": stat(period_s=86460)}],
        {},
        "InvalidParameterValue",
        "86400",
    ),
    case(
        "no namespace",
        [{"Id": "a", "MetricStat": {**stat(), "Metric": {"MetricName": "m"}}}],
        {},
        "MissingParameter",
        "Namespace",
    ),
    case(
        "another account",
        [{"Id": "a", "MetricStat": stat(), "AccountId": "999999999999"}],
        {},
        "InvalidParameterValue",
        "own account",
    ),
    case(
        "an expression without a series",
        [{"Id": "a", "Expression": "1/0"}],
        {},
        "ValidationError",
        "Error in expression 'a'",
    ),
    case(
        "an end before the start",
        [{"Id": "a", "MetricStat": stat()}],
        {"EndTime": 1.0},
        "ValidationException",
        "StartTime must be less",
    ),
    case(
        "too many datapoints a page",
        [{"Id": "a", "MetricStat": stat()}],
        {"MaxDatapoints": 100_801},
        "InvalidParameterValue",
        "100800",
    ),
    case(
        "a year of seconds to fill",
        [{"Id": "a", "MetricStat": stat(period_s=1)}, {"Id": "b", "Expression": "FILL(a, 0)"}],
        {"EndTime": 1_700_000_000.0 + 365 * DAY_S},
        "ValidationError",
        "can be filled",
    ),
)
def test_what_get_metric_data_refuses(
    api: Api, queries: list[dict[str, Any]], params: dict[str, Any], code: str, text: str
) -> None:
    given = {"StartTime": 1_700_000_000.0, "EndTime": 1_700_003_600.0, **params}
    with pytest.raises(ServiceError) as refused:
        api.call("GetMetricData", "cloudwatch", MetricDataQueries=queries, **given)
    assert refused.value.code == code
    assert text in refused.value.message


@cases(
    "params, code, text",
    case("no statistic", {}, "InvalidParameterCombination", "At least one"),
    case(
        "both kinds of statistics",
        {"Statistics": ["Sum"], "ExtendedStatistics": ["p9"]},
        "InvalidParameterCombination",
        "not both",
    ),
    case(
        "a percentile over 100", {"ExtendedStatistics": ["p101"]}, "InvalidParameterValue", "p101"
    ),
    case(
        "a period of 61 seconds",
        {"Statistics": ["Sum"], "Period": 61},
        "InvalidParameterValue",
        "multiple of 60",
    ),
    case(
        "an end at the start",
        {"Statistics": ["Sum"], "EndTime": 1_700_000_000.0},
        "InvalidParameterCombination",
        "StartTime must be less",
    ),
    case(
        "1441 datapoints",
        {"Statistics": ["Sum"], "EndTime": 1_700_000_000.0 + 1441 * 60},
        "InvalidParameterCombination",
        "You have requested up to 1441 datapoints, which exceeds the limit of 1440.",
    ),
)
def test_what_get_metric_statistics_refuses(
    api: Api, params: dict[str, Any], code: str, text: str
) -> None:
    given = {
        "Namespace": "Mine",
        "MetricName": "Load",
        "StartTime": 1_700_000_000.0,
        "EndTime": 1_700_003_600.0,
        "Period": 60,
        **params,
    }
    with pytest.raises(ServiceError) as refused:
        api.call("GetMetricStatistics", "cloudwatch", **given)
    assert refused.value.code == code
    assert text in refused.value.message


@pytest.fixture
def several(metrics: MemoryMetrics, scope: Scope, now: float) -> None:
    for name, dimensions, age_s in (
        ("Load", {"a": "1"}, 0),
        ("Load", {"a": "2", "b": "1"}, 4 * 3600),
        ("Errors", {}, 15 * DAY_S),
        ("Errors", {"a": "1"}, 13 * DAY_S),
    ):
        metric = Metric.of("Mine", name, dimensions)
        metrics.record(scope, [Sample(metric=metric, at=now - age_s, values=(1.0,))])


@cases(
    "params, found",
    case("of two weeks", {}, ["Errors a=1", "Load a=1", "Load a=2 b=1"]),
    case("of three hours", {"RecentlyActive": "PT3H"}, ["Load a=1"]),
    case("of a name", {"MetricName": "Load"}, ["Load a=1", "Load a=2 b=1"]),
    case("of a namespace without any", {"Namespace": "Your"}, []),
    case("of a=1", {"Dimensions": [{"Name": "a", "Value": "1"}]}, ["Errors a=1", "Load a=1"]),
    case("with a dimension b", {"Dimensions": [{"Name": "b"}]}, ["Load a=2 b=1"]),
)
def test_metrics_are_listed(
    api: Api, several: None, params: dict[str, Any], found: list[str]
) -> None:
    answer = api.call("ListMetrics", "cloudwatch", **params)
    shown = [
        " ".join((metric["MetricName"], *("=".join(d.values()) for d in metric["Dimensions"])))
        for metric in answer["Metrics"]
    ]
    assert shown == found


def test_more_than_500_metrics_come_in_pages(api: Api) -> None:
    names = [f"m{number:04}" for number in range(1000)]
    dimensions = [{"Name": "Endpoint", "Value": "e"}]
    data = [{"MetricName": it, "Value": 1.0, "Dimensions": dimensions} for it in names]
    for given in (data, [{"MetricName": "m0499", "Value": 1.0}]):
        api.call("PutMetricData", "cloudwatch", Namespace="Mine", MetricData=given)
    first = api.call("ListMetrics", "cloudwatch", IncludeLinkedAccounts=True)
    assert len(first["Metrics"]) == len(first["OwningAccounts"]) == 500
    asked = {"IncludeLinkedAccounts": True, "NextToken": first["NextToken"]}
    second = api.call("ListMetrics", "cloudwatch", **asked)
    asked["NextToken"] = second["NextToken"]
    last = api.call("ListMetrics", "cloudwatch", **asked)
    listed = [it["MetricName"] for page in (first, second, last) for it in page["Metrics"]]
    assert listed == sorted([*names, "m0499"])
    assert "NextToken" not in last
