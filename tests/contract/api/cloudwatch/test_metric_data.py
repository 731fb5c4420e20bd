"""CloudWatch's data operations in this process: stored values, answers and refusals."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.base.clock import ManualClock
from hostelry.base.errors import RetryableError, ServiceError
from hostelry.domain.metric import Sample
from hostelry.domain.scope import Scope

DAY_S = 86_400
DIMENSIONS = [{"Name": "Endpoint", "Value": "e"}]
DATUM = {"MetricName": "Load", "Value": 2.0}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_040.0 + 30)  # half a minute after a whole one


@pytest.fixture
def now(clock: ManualClock) -> float:
    return clock.now()


@pytest.fixture
def minute(clock: ManualClock) -> float:
    return clock.now() // 60 * 60


@pytest.fixture
def put(api: Api) -> Callable[..., None]:
    """`put(*data, namespace="Mine")`."""

    def put(*data: dict[str, Any], namespace: str = "Mine") -> None:
        given = [{**DATUM, **it} for it in data]
        for datum in given:
            if "Values" in datum or "StatisticValues" in datum:
                datum.pop("Value")
        api.call("PutMetricData", "cloudwatch", Namespace=namespace, MetricData=given)

    return put


@pytest.fixture
def refusal(api: Api) -> Callable[..., tuple[str, str]]:
    """`refusal(operation, **params)` returns the code and the text of the error."""

    def refusal(operation: str, **params: Any) -> tuple[str, str]:
        with pytest.raises(ServiceError) as caught:
            api.call(operation, "cloudwatch", **params)
        return caught.value.code, caught.value.message

    return refusal


def stat(name: str = "Load", statistic: str = "Sum", period_s: int = 60) -> dict[str, Any]:
    metric = {"Namespace": "Mine", "MetricName": name}
    return {"Metric": metric, "Period": period_s, "Stat": statistic}


def test_a_datum_without_an_instant_is_of_now(
    api: Api, put: Callable[..., None], minute: float
) -> None:
    put({"Dimensions": DIMENSIONS, "Unit": "Count"}, {"Dimensions": DIMENSIONS, "Unit": "Count"})
    answer = api.call(
        "GetMetricStatistics",
        "cloudwatch",
        Namespace="Mine",
        MetricName="Load",
        Dimensions=DIMENSIONS,
        StartTime=minute,
        EndTime=minute + 60,
        Period=60,
        Statistics=["SampleCount", "Sum", "Average", "Minimum", "Maximum"],
    )
    point = {"SampleCount": 2.0, "Sum": 4.0, "Average": 2.0, "Minimum": 2.0, "Maximum": 2.0}
    assert answer == {
        "Label": "Load",
        "Datapoints": [{"Timestamp": minute, "Unit": "Count", **point}],
    }


def test_each_unit_has_datapoints_of_its_own(
    api: Api, put: Callable[..., None], minute: float
) -> None:
    put({"Unit": "Count"}, {"Unit": "Bytes", "Value": 7.0})
    asked = {
        "Namespace": "Mine",
        "MetricName": "Load",
        "StartTime": minute,
        "EndTime": minute + 60,
        "Period": 60,
        "ExtendedStatistics": ["p50"],
    }
    both = api.call("GetMetricStatistics", "cloudwatch", **asked)["Datapoints"]
    shown = {it["Unit"]: it["ExtendedStatistics"] for it in both}
    assert shown == {"Count": {"p50": 2.0}, "Bytes": {"p50": 7.0}}
    one = api.call("GetMetricStatistics", "cloudwatch", **asked, Unit="Bytes")["Datapoints"]
    assert [it["ExtendedStatistics"] for it in one] == [{"p50": 7.0}]


# Source: PutMetricData (values and counts, StatisticValues, up to 150 values, two weeks back and
# two hours ahead).
@cases(
    "datum, expected",
    case("values count once", {"Values": [1.0, 2.0]}, (2.0, 3.0)),
    case("with counts", {"Values": [1.0, 2.0], "Counts": [3.0, 1.0]}, (4.0, 5.0)),
    case("150 values", {"Values": [1.0] * 150}, (150.0, 150.0)),
    case(
        "a summary",
        {"StatisticValues": {"SampleCount": 5, "Sum": 10, "Minimum": 1, "Maximum": 4}},
        (5.0, 10.0),
    ),
    case("high resolution", {"StorageResolution": 1}, (1.0, 2.0)),
    case("zero is a value", {"Value": 0.0}, (1.0, 0.0)),
    case("the largest value", {"Value": 2.0**360}, (1.0, 2.0**360)),
)
def test_what_is_put_is_got(
    api: Api, put: Callable[..., None], minute: float, datum: Any, expected: tuple[float, float]
) -> None:
    put(datum)
    queries = [
        {"Id": "n", "MetricStat": stat(statistic="SampleCount")},
        {"Id": "s", "MetricStat": stat()},
    ]
    answer = api.call(
        "GetMetricData",
        "cloudwatch",
        MetricDataQueries=queries,
        StartTime=minute,
        EndTime=minute + 60,
    )
    assert tuple(it["Values"][0] for it in answer["MetricDataResults"]) == expected


@pytest.mark.parametrize("after_s", [-14 * DAY_S, 0, 7200])
def test_instants_of_two_weeks_are_taken(
    api: Api, put: Callable[..., None], now: float, after_s: float
) -> None:
    put({"Timestamp": now + after_s})
    answer = api.call(
        "GetMetricStatistics",
        "cloudwatch",
        Namespace="Mine",
        MetricName="Load",
        StartTime=now + after_s - 60,
        EndTime=now + after_s + 60,
        Period=60,
        Statistics=["Sum"],
    )
    assert [it["Sum"] for it in answer["Datapoints"]] == [2.0]


def datum(**members: Any) -> dict[str, Any]:
    return {"MetricData": [{**DATUM, **members}]}


@cases(
    "params, code, text",
    case("no data", {"MetricData": []}, "MissingParameter", "MetricData"),
    case("no list", {}, "MissingParameter", "MetricData"),
    case("1001 metrics", {"MetricData": [DATUM] * 1001}, "InvalidParameterValue", "1000"),
    case(
        "nothing measured",
        {"MetricData": [{"MetricName": "m"}]},
        "MissingParameter",
        "MetricData.member.1.Value",
    ),
    case(
        "a value and values",
        datum(Values=[1.0]),
        "InvalidParameterCombination",
        "mutually exclusive",
    ),
    case("counts without values", datum(Counts=[1.0]), "InvalidParameterCombination", "Counts"),
    case(
        "151 values",
        {"MetricData": [{"MetricName": "m", "Values": [1.0] * 151}]},
        "InvalidParameterValue",
        "150",
    ),
    case(
        "no values",
        {"MetricData": [{"MetricName": "m", "Values": []}]},
        "InvalidParameterValue",
        "1 to 150",
    ),
    case(
        "more counts than values",
        {"MetricData": [{"MetricName": "m", "Values": [1.0], "Counts": [1.0, 2.0]}]},
        "InvalidParameterValue",
        "same size",
    ),
    case(
        "a negative count",
        {"MetricData": [{"MetricName": "m", "Values": [1.0], "Counts": [-1.0]}]},
        "InvalidParameterValue",
        "below 0",
    ),
    case(
        "a resolution of ten seconds",
        datum(StorageResolution=10),
        "InvalidParameterValue",
        "1 or 60",
    ),
    case("a value too large", datum(Value=1e200), "InvalidParameterValue", r"2\^360"),
    case(
        "an instant too old",
        datum(Timestamp=1_700_000_070.0 - 14 * DAY_S - 1),
        "InvalidParameterValue",
        "two weeks",
    ),
    case(
        "an instant too far ahead",
        datum(Timestamp=1_700_000_070.0 + 7201),
        "InvalidParameterValue",
        "two hours",
    ),
    case("a dimension twice", datum(Dimensions=DIMENSIONS * 2), "InvalidParameterValue", "twice"),
    case(
        "a dimension that begins with a colon",
        datum(Dimensions=[{"Name": ":x", "Value": "v"}]),
        "InvalidParameterValue",
        "':'",
    ),
    case(
        "a dimension's value that is not ASCII",
        datum(Dimensions=[{"Name": "x", "Value": "\u00e9"}]),
        "InvalidParameterValue",
        "ASCII",
    ),
    case(
        "a dimension's value of blanks",
        datum(Dimensions=[{"Name": "x", "Value": " "}]),
        "InvalidParameterValue",
        "blank",
    ),
    case("a name with a zero byte", datum(MetricName="a\0b"), "InvalidParameterValue", "printable"),
    case(
        "the platform's namespace",
        {"Namespace": "AWS/SageMaker", "MetricData": [DATUM]},
        "InvalidParameterValue",
        "AWS/",
    ),
    case(
        "a summary of nothing",
        {
            "MetricData": [
                {
                    "MetricName": "m",
                    "StatisticValues": {"SampleCount": 0, "Sum": 1, "Minimum": 1, "Maximum": 1},
                }
            ]
        },
        "InvalidParameterValue",
        "SampleCount over 0",
    ),
    case("NaN", datum(Value=float("nan")), "ValidationException", "finite"),
    case(
        "more than a mebibyte",
        {"MetricData": [{**DATUM, "Dimensions": [{"Name": "x", "Value": "v" * 1024}]}] * 1000},
        "RequestEntityTooLarge",
        "1048576",
    ),
)
def test_what_put_metric_data_refuses(
    refusal: Callable[..., tuple[str, str]], api: Api, params: dict[str, Any], code: str, text: str
) -> None:
    given = {"Namespace": "Mine", **params}
    if given.get("MetricData"):
        # The other data in the request are refused, too.
        given["MetricData"] = [DATUM, *given["MetricData"]]
        text = text.replace("member.1", "member.2")
    found = refusal("PutMetricData", **given)
    assert found[0] == code
    assert re.search(text, found[1]), found[1]
    assert api.call("ListMetrics", "cloudwatch") == {"Metrics": []}


# Source: PutMetricData, Errors: InternalServiceFault, HTTP 500.
def test_what_cannot_be_kept_is_an_internal_fault_with_the_reason(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(scope: Scope, samples: list[Sample]) -> None:
        raise RetryableError("the disk is full")

    monkeypatch.setattr(api.metrics, "record", refuse)
    with pytest.raises(ServiceError, match="the disk is full") as caught:
        api.call("PutMetricData", "cloudwatch", Namespace="Mine", MetricData=[DATUM])
    assert (caught.value.code, caught.value.http_status) == ("InternalServiceFault", 500)


@pytest.fixture
def minutes(put: Callable[..., None], minute: float) -> None:
    """Load is 1, 2, 3, 4, 5 in the last five minutes, Errors 1 in the second of them."""
    put(*({"Timestamp": minute + 60 * (it - 4), "Value": it + 1.0} for it in range(5)))
    put({"MetricName": "Errors", "Timestamp": minute - 180, "Value": 1.0})


@pytest.fixture
def ask(api: Api, minutes: None, minute: float) -> Callable[..., Any]:
    """`ask(*queries, **params)`: (id, offsets in minutes, values) of each result."""

    def ask(*queries: dict[str, Any], **params: Any) -> list[tuple[str, list[int], list[float]]]:
        given = {"StartTime": minute - 240, "EndTime": minute + 60, **params}
        answer = api.call("GetMetricData", "cloudwatch", MetricDataQueries=list(queries), **given)
        return [
            (one["Id"], [round((at - minute) / 60) for at in one["Timestamps"]], one["Values"])
            for one in answer["MetricDataResults"]
        ]

    return ask


# Source: GetMetricData, ScanBy: TimestampDescending is the default.
def test_the_newest_come_first_unless_asked_otherwise(ask: Callable[..., Any]) -> None:
    query = {"Id": "a", "MetricStat": stat()}
    assert ask(query) == [("a", [0, -1, -2, -3, -4], [5.0, 4.0, 3.0, 2.0, 1.0])]
    assert ask(query, ScanBy="TimestampAscending") == [
        ("a", [-4, -3, -2, -1, 0], [1.0, 2.0, 3.0, 4.0, 5.0])
    ]


def test_only_what_returns_data_is_in_the_answer(ask: Callable[..., Any]) -> None:
    found = ask(
        {"Id": "load", "MetricStat": stat(), "ReturnData": False},
        {"Id": "errors", "MetricStat": stat("Errors"), "ReturnData": False},
        {"Id": "share", "Expression": "100 * FILL(errors, 0) / load"},
        ScanBy="TimestampAscending",
    )
    assert found == [("share", [-4, -3, -2, -1, 0], [0.0, 50.0, 0.0, 0.0, 0.0])]


def test_a_search_gives_a_result_a_metric(ask: Callable[..., Any], api: Api) -> None:
    search = """SEARCH('{Mine} MetricName=("Load" OR "Errors")', 'Sum', 300)"""
    found = ask({"Id": "e", "Expression": search})
    assert [(id, sum(values)) for id, _, values in found] == [("e", 1.0), ("e", 15.0)]


@pytest.mark.parametrize("order", ["TimestampDescending", "TimestampAscending"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 100])
def test_pages_together_are_the_answer(
    api: Api, minutes: None, minute: float, size: int, order: str
) -> None:
    given = {
        "MetricDataQueries": [
            {"Id": "a", "MetricStat": stat()},
            {"Id": "none", "MetricStat": stat("Nobody")},
            {"Id": "b", "MetricStat": stat("Errors")},
        ],
        "StartTime": minute - 240,
        "EndTime": minute + 60,
        "ScanBy": order,
    }
    whole = api.call("GetMetricData", "cloudwatch", **given)
    assert "NextToken" not in whole
    assert {it["StatusCode"] for it in whole["MetricDataResults"]} == {"Complete"}
    pages: dict[str, list[float]] = {"none": []}
    token: dict[str, str] = {}
    states: dict[str, str] = {}
    for _ in range(9):
        page = api.call("GetMetricData", "cloudwatch", **given, MaxDatapoints=size, **token)
        assert sum(len(it["Values"]) for it in page["MetricDataResults"]) <= size
        for result in page["MetricDataResults"]:
            pages.setdefault(result["Id"], []).extend(result["Values"])
            states[result["Id"]] = result["StatusCode"]
        if "NextToken" not in page:
            break
        token = {"NextToken": page["NextToken"]}
    assert pages == {it["Id"]: it["Values"] for it in whole["MetricDataResults"]}
    assert set(states.values()) == {"Complete"}


def test_a_token_of_another_question_is_refused(
    api: Api, minutes: None, minute: float, refusal: Callable[..., tuple[str, str]]
) -> None:
    given: dict[str, Any] = {
        "MetricDataQueries": [{"Id": "a", "MetricStat": stat()}],
        "StartTime": minute - 240,
        "EndTime": minute + 60,
    }
    token = api.call("GetMetricData", "cloudwatch", **given, MaxDatapoints=1)["NextToken"]
    for bad in (token[:-4], "x", token):
        changed = {**given, "EndTime": minute + 120, "NextToken": bad}
        assert refusal("GetMetricData", **changed)[0] == "InvalidNextToken"
        assert refusal("ListMetrics", NextToken=bad)[0] == "InvalidNextToken"
