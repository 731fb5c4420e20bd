from collections.abc import Callable
from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.base.errors import ServiceError

ARN = "arn:aws:logs:us-west-2:123456789012:log-group:"
Call = Callable[..., dict[str, Any]]


@pytest.fixture
def logs(api: Api) -> Call:
    return lambda operation, **params: api.call(operation, "logs", **params)


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


@cases(
    "params, found",
    case("all by name", {}, ["/app/a", "/app/b", "/sys"]),
    case("a prefix", {"logGroupNamePrefix": "/app"}, ["/app/a", "/app/b"]),
    case("a part", {"logGroupNamePattern": "s"}, ["/sys"]),
    case("a part in another case", {"logGroupNamePattern": "S"}, []),
    case("an identifier", {"logGroupIdentifiers": ["/sys"]}, ["/sys"]),
    case("an ARN", {"logGroupIdentifiers": [f"{ARN}/sys"]}, ["/sys"]),
    case("another account", {"accountIdentifiers": ["999999999999"]}, []),
    case("another class", {"logGroupClass": "INFREQUENT_ACCESS"}, []),
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


@cases(
    "operation, params, refusal",
    case("delete of no group", "DeleteLogGroup", NO_GROUP, GONE),
    case("streams of no group", "DescribeLogStreams", NO_GROUP, GONE),
    case("search in no group", "FilterLogEvents", NO_GROUP, GONE),
    case("get, no group", "GetLogEvents", {**NO_GROUP, "logStreamName": "s"}, GONE),
    case("no stream", "GetLogEvents", {**GROUP, "logStreamName": "n"}, NO_STREAM),
    case("delete", "DeleteLogStream", {**GROUP, "logStreamName": "n"}, NO_STREAM),
    case("search", "FilterLogEvents", {**GROUP, "logStreamNames": ["n"]}, NO_STREAM),
    case(
        "put into no stream",
        "PutLogEvents",
        {**GROUP, "logStreamName": "n", "logEvents": EVENTS},
        NO_STREAM,
    ),
    case(
        "a group twice",
        "CreateLogGroup",
        GROUP,
        ("ResourceAlreadyExistsException", "The specified log group already exists"),
    ),
    case(
        "a stream twice",
        "CreateLogStream",
        {**GROUP, "logStreamName": "s"},
        ("ResourceAlreadyExistsException", "The specified log stream already exists"),
    ),
    case(
        "a retention that AWS does not have",
        "PutRetentionPolicy",
        {**GROUP, "retentionInDays": 2},
        ("InvalidParameterException", "must be one of 1, 3, 5, 7"),
    ),
    case(
        "another class",
        "CreateLogGroup",
        {"logGroupName": "x", "logGroupClass": "INFREQUENT_ACCESS"},
        ("InvalidParameterException", "logGroupClass INFREQUENT_ACCESS is not supported"),
    ),
    case(
        "protection",
        "CreateLogGroup",
        {"logGroupName": "x", "deletionProtectionEnabled": True},
        ("InvalidParameterException", "deletionProtectionEnabled is not supported"),
    ),
    case(
        "a reserved tag",
        "CreateLogGroup",
        {"logGroupName": "x", "tags": {"aws:x": "1"}},
        ("InvalidParameterException", "reserved"),
    ),
    case(
        "too many tags",
        "TagResource",
        {"resourceArn": f"{ARN}g", "tags": {f"k{it}": "" for it in range(50)}},
        ("TooManyTagsException", "at most 50"),
    ),
    case(
        "an ARN of another region",
        "TagResource",
        {"resourceArn": ARN.replace("us-west-2", "eu-west-1") + "g", "tags": {"a": "b"}},
        GONE,
    ),
    case(
        "a prefix in another order",
        "DescribeLogStreams",
        {**GROUP, "orderBy": "LastEventTime", "logStreamNamePrefix": "a"},
        ("InvalidParameterException", "Cannot order by LastEventTime with a logStreamName"),
    ),
    case(
        "a group twice named",
        "DescribeLogStreams",
        {**GROUP, "logGroupIdentifier": "g"},
        ("InvalidParameterException", "Exactly one"),
    ),
    case(
        "a prefix and a pattern",
        "DescribeLogGroups",
        {"logGroupNamePrefix": "a", "logGroupNamePattern": "b"},
        ("InvalidParameterException", "mutually exclusive"),
    ),
    case(
        "a token of its own",
        "DescribeLogGroups",
        {"nextToken": "x"},
        ("InvalidParameterException", "The specified nextToken is invalid."),
    ),
    case(
        "names and a prefix",
        "FilterLogEvents",
        {**GROUP, "logStreamNames": ["s"], "logStreamNamePrefix": "s"},
        ("InvalidParameterException", "mutually exclusive"),
    ),
    case(
        "an invalid pattern",
        "FilterLogEvents",
        {**GROUP, "filterPattern": "{ $.a }"},
        ("InvalidParameterException", "Invalid filter pattern"),
    ),
    case(
        "Insights",
        "StartQuery",
        {**GROUP, "startTime": 1, "endTime": 2, "queryString": "x"},
        ("UnknownOperationException", "logs:StartQuery"),
    ),
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
