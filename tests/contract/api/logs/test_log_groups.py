from collections.abc import Callable
from typing import Any

import pytest

from hostelry.base.errors import ServiceError

ARN = "arn:aws:logs:us-west-2:123456789012:log-group:"
Call = Callable[..., dict[str, Any]]


@pytest.fixture
def logs(call: Call) -> Call:
    return lambda operation, **params: call(operation, "logs", **params)


def names_of(answer: dict[str, Any]) -> list[str]:
    return [it["logGroupName"] for it in answer["logGroups"]]


def test_a_group_lives_from_its_creation_to_its_deletion(logs: Call) -> None:
    logs("CreateLogGroup", logGroupName="/app/a", tags={"team": "x"}, kmsKeyId="k")
    logs("PutRetentionPolicy", logGroupName="/app/a", retentionInDays=30)
    assert logs("DescribeLogGroups")["logGroups"] == [
        {
            "logGroupName": "/app/a",
            "creationTime": 1_700_000_000_000,
            "metricFilterCount": 0,
            "arn": f"{ARN}/app/a:*",
            "logGroupArn": f"{ARN}/app/a",
            "storedBytes": 0,
            "logGroupClass": "STANDARD",
            "deletionProtectionEnabled": False,
            "retentionInDays": 30,
            "kmsKeyId": "k",
        }
    ]
    logs("DeleteRetentionPolicy", logGroupName="/app/a")
    assert "retentionInDays" not in logs("DescribeLogGroups")["logGroups"][0]
    logs("DeleteLogGroup", logGroupName="/app/a")
    assert logs("DescribeLogGroups") == {"logGroups": []}
    logs("CreateLogGroup", logGroupName="/app/a")
    assert logs("ListTagsForResource", resourceArn=f"{ARN}/app/a") == {"tags": {}}


@pytest.mark.parametrize(
    ("params", "found"),
    [
        pytest.param({}, ["/app/a", "/app/b", "/sys"], id="all by name"),
        pytest.param({"logGroupNamePrefix": "/app"}, ["/app/a", "/app/b"], id="a prefix"),
        pytest.param({"logGroupNamePattern": "s"}, ["/sys"], id="a part"),
        pytest.param({"logGroupNamePattern": "S"}, [], id="a part in another case"),
        pytest.param({"logGroupIdentifiers": ["/sys"]}, ["/sys"], id="an identifier"),
        pytest.param({"logGroupIdentifiers": [f"{ARN}/sys"]}, ["/sys"], id="an ARN"),
        pytest.param({"accountIdentifiers": ["999999999999"]}, [], id="another account"),
        pytest.param({"logGroupClass": "INFREQUENT_ACCESS"}, [], id="another class"),
    ],
)
def test_groups_are_found(logs: Call, params: dict[str, Any], found: list[str]) -> None:
    for name in ("/sys", "/app/b", "/app/a"):
        logs("CreateLogGroup", logGroupName=name)
    assert names_of(logs("DescribeLogGroups", **params)) == found


def test_groups_come_in_pages(logs: Call) -> None:
    for number in range(5):
        logs("CreateLogGroup", logGroupName=f"g{number}")
    seen: list[str] = []
    token: dict[str, str] = {}
    while True:
        page = logs("DescribeLogGroups", limit=2, **token)
        seen += names_of(page)
        if "nextToken" not in page:
            break
        token = {"nextToken": page["nextToken"]}
    assert seen == [f"g{number}" for number in range(5)]


def test_tags_by_arn_and_by_name(logs: Call) -> None:
    logs("CreateLogGroup", logGroupName="g", tags={"a": "1"})
    logs("TagResource", resourceArn=f"{ARN}g", tags={"b": "2"})
    logs("TagLogGroup", logGroupName="g", tags={"c": "3"})
    logs("UntagResource", resourceArn=f"{ARN}g", tagKeys=["a", "none"])
    assert logs("ListTagsForResource", resourceArn=f"{ARN}g") == {"tags": {"b": "2", "c": "3"}}
    logs("UntagLogGroup", logGroupName="g", tags=["c"])
    assert logs("ListTagsLogGroup", logGroupName="g") == {"tags": {"b": "2"}}


def test_streams_by_name_and_by_their_last_event(logs: Call) -> None:
    logs("CreateLogGroup", logGroupName="g")
    for number, name in enumerate(("b/1", "a/1", "a/2")):
        logs("CreateLogStream", logGroupName="g", logStreamName=name)
        event = {"timestamp": 1_700_000_000_000 + number, "message": "x"}
        logs("PutLogEvents", logGroupName="g", logStreamName=name, logEvents=[event])

    def found(**params: Any) -> list[str]:
        seen: list[str] = []
        token: dict[str, str] = {}
        while True:
            page = logs("DescribeLogStreams", logGroupName="g", limit=2, **params, **token)
            seen += [it["logStreamName"] for it in page["logStreams"]]
            if "nextToken" not in page:
                return seen
            token = {"nextToken": page["nextToken"]}

    assert found() == ["a/1", "a/2", "b/1"]
    assert found(descending=True) == ["b/1", "a/2", "a/1"]
    assert found(logStreamNamePrefix="a/") == ["a/1", "a/2"]
    assert found(orderBy="LastEventTime", descending=True) == ["a/2", "a/1", "b/1"]
    assert found(orderBy="LastEventTime") == ["b/1", "a/1", "a/2"]
    stream = logs("DescribeLogStreams", logGroupIdentifier=f"{ARN}g")["logStreams"][0]
    assert stream["arn"] == f"{ARN}g:log-stream:a/1"
    assert stream["firstEventTimestamp"] == stream["lastEventTimestamp"] == 1_700_000_000_001
    logs("DeleteLogStream", logGroupName="g", logStreamName="a/1")
    assert found() == ["a/2", "b/1"]


GROUP = {"logGroupName": "g"}
NO_GROUP = {"logGroupName": "none"}
GONE = ("ResourceNotFoundException", "The specified log group does not exist.")
NO_STREAM = ("ResourceNotFoundException", "The specified log stream does not exist.")
EVENTS = [{"timestamp": 1_700_000_000_000, "message": "x"}]


@pytest.mark.parametrize(
    ("operation", "params", "refusal"),
    [
        pytest.param("DeleteLogGroup", NO_GROUP, GONE, id="delete of no group"),
        pytest.param("DescribeLogStreams", NO_GROUP, GONE, id="streams of no group"),
        pytest.param("FilterLogEvents", NO_GROUP, GONE, id="search in no group"),
        pytest.param("GetLogEvents", {**NO_GROUP, "logStreamName": "s"}, GONE, id="get, no group"),
        pytest.param("GetLogEvents", {**GROUP, "logStreamName": "n"}, NO_STREAM, id="no stream"),
        pytest.param("DeleteLogStream", {**GROUP, "logStreamName": "n"}, NO_STREAM, id="delete"),
        pytest.param("FilterLogEvents", {**GROUP, "logStreamNames": ["n"]}, NO_STREAM, id="search"),
        pytest.param(
            "PutLogEvents",
            {**GROUP, "logStreamName": "n", "logEvents": EVENTS},
            NO_STREAM,
            id="put into no stream",
        ),
        pytest.param(
            "CreateLogGroup",
            GROUP,
            ("ResourceAlreadyExistsException", "The specified log group already exists"),
            id="a group twice",
        ),
        pytest.param(
            "CreateLogStream",
            {**GROUP, "logStreamName": "s"},
            ("ResourceAlreadyExistsException", "The specified log stream already exists"),
            id="a stream twice",
        ),
        pytest.param(
            "PutRetentionPolicy",
            {**GROUP, "retentionInDays": 2},
            ("InvalidParameterException", "must be one of 1, 3, 5, 7"),
            id="a retention that AWS does not have",
        ),
        pytest.param(
            "CreateLogGroup",
            {"logGroupName": "x", "logGroupClass": "INFREQUENT_ACCESS"},
            ("InvalidParameterException", "logGroupClass INFREQUENT_ACCESS is not supported"),
            id="another class",
        ),
        pytest.param(
            "CreateLogGroup",
            {"logGroupName": "x", "deletionProtectionEnabled": True},
            ("InvalidParameterException", "deletionProtectionEnabled is not supported"),
            id="protection",
        ),
        pytest.param(
            "CreateLogGroup",
            {"logGroupName": "x", "tags": {"aws:x": "1"}},
            ("InvalidParameterException", "reserved"),
            id="a reserved tag",
        ),
        pytest.param(
            "TagResource",
            {"resourceArn": f"{ARN}g", "tags": {f"k{it}": "" for it in range(50)}},
            ("TooManyTagsException", "at most 50"),
            id="too many tags",
        ),
        pytest.param(
            "TagResource",
            {"resourceArn": ARN.replace("us-west-2", "eu-west-1") + "g", "tags": {"a": "b"}},
            GONE,
            id="an ARN of another region",
        ),
        pytest.param(
            "DescribeLogStreams",
            {**GROUP, "orderBy": "LastEventTime", "logStreamNamePrefix": "a"},
            ("InvalidParameterException", "Cannot order by LastEventTime with a logStreamName"),
            id="a prefix in another order",
        ),
        pytest.param(
            "DescribeLogStreams",
            {**GROUP, "logGroupIdentifier": "g"},
            ("InvalidParameterException", "Exactly one"),
            id="a group twice named",
        ),
        pytest.param(
            "DescribeLogGroups",
            {"logGroupNamePrefix": "a", "logGroupNamePattern": "b"},
            ("InvalidParameterException", "mutually exclusive"),
            id="a prefix and a pattern",
        ),
        pytest.param(
            "DescribeLogGroups",
            {"nextToken": "x"},
            ("InvalidParameterException", "The specified nextToken is invalid."),
            id="a token of its own",
        ),
        pytest.param(
            "FilterLogEvents",
            {**GROUP, "logStreamNames": ["s"], "logStreamNamePrefix": "s"},
            ("InvalidParameterException", "mutually exclusive"),
            id="names and a prefix",
        ),
        pytest.param(
            "FilterLogEvents",
            {**GROUP, "filterPattern": "{ $.a }"},
            ("InvalidParameterException", "Invalid filter pattern"),
            id="an invalid pattern",
        ),
        pytest.param(
            "StartQuery",
            {**GROUP, "startTime": 1, "endTime": 2, "queryString": "x"},
            ("UnknownOperationException", "logs:StartQuery"),
            id="Insights",
        ),
    ],
)
def test_a_refusal(
    logs: Call, operation: str, params: dict[str, Any], refusal: tuple[str, str]
) -> None:
    logs("CreateLogGroup", logGroupName="g", tags={"a": "1"})
    logs("CreateLogStream", logGroupName="g", logStreamName="s")
    with pytest.raises(ServiceError) as refused:
        logs(operation, **params)
    assert refused.value.code == refusal[0]
    assert refusal[1] in refused.value.message
