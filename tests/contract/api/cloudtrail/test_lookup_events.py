"""LookupEvents by boto3: the caller's own management events, newest first, in pages."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import msgspec
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ClientError
from tests.cases import case, cases
from tests.contract.api.conftest import Body
from tests.unit.audit.samples import OTHER, OWNER, call_event, opened_trail

from hostelry.api.context import CallContext
from hostelry.api.operations import perform
from hostelry.audit.resources import build_resources
from hostelry.audit.trail import AuditTrail
from hostelry.aws.call import ApiCall, parse_call, serialize_error, serialize_result
from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest
from hostelry.domain.scope import Scope
from hostelry.domain.shape import NO_RESOURCES
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.store.memory import MemoryStore
from hostelry.store.records import open_state

Client = Callable[[tuple[str, str]], Any]
MODEL = f"arn:aws:sagemaker:us-east-1:{OWNER[0]}:model/chat"
THEIRS = f"arn:aws:sagemaker:us-east-1:{OTHER[0]}:model/chat"


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[AuditTrail]:
    with opened_trail(tmp_path) as found:
        yield found


@pytest.fixture
def client(trail: AuditTrail) -> Client:
    """`client(account and region)` returns a client of CloudTrail, answered in this process."""

    def make(owner: tuple[str, str]) -> Any:
        def answer(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
            headers = {name.lower(): str(it) for name, it in request.headers.items()}
            headers["x-amz-target"] = request.headers["X-Amz-Target"].decode()
            headers["content-type"] = "application/x-amz-json-1.1"
            arrived = HttpRequest("POST", "/", "", headers, bytes(request.body))
            context = CallContext(
                scope=Scope(*owner),
                state=open_state(MemoryStore()),
                now=100.0,
                get_shape=lambda _: NO_RESOURCES,
                role_arn="",
                role_name="",
                metrics=MemoryMetrics(ManualClock()),
                trail=trail,
            )
            call: ApiCall | None = None
            try:
                call = parse_call(arrived, "id")
                result = perform(context, call.service, call.operation, call.params)
                response = serialize_result(call, result)
            except ServiceError as error:
                response = serialize_error(error, call, "id", arrived)
            answered = {name.lower(): value for name, value in response.headers.items()}
            return AWSResponse(request.url, response.status, answered, Body(response.body))

        keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
        found = boto3.client("cloudtrail", region_name=owner[1], **keys)
        found.meta.events.register("before-send", answer)
        return found

    return make


@pytest.fixture
def filled(trail: AuditTrail) -> AuditTrail:
    """Two accounts with the same names, and events that no look-up shows."""
    resources = build_resources([MODEL], OWNER[0])
    for number, event in enumerate(
        (
            call_event(1, "CreateModel", resources=resources, error_code="AccessDenied"),
            call_event(2, "CreateModel", OTHER, resources=build_resources([THEIRS], OTHER[0])),
            call_event(3, "DescribeEndpoint"),
            call_event(4, "SendMessage", service="sqs"),
            call_event(5, "ListModels", (OWNER[0], "eu-west-1")),
            call_event(6, "CreateTopic", service="sns"),
        ),
        start=1,
    ):
        trail.record(event, float(number))
    return trail


def names(answer: dict[str, Any]) -> list[str]:
    return [it["EventName"] for it in answer["Events"]]


@pytest.mark.usefixtures("filled")
def test_an_account_sees_its_own_events(client: Client) -> None:
    assert names(client(OWNER).lookup_events()) == [
        "CreateTopic",
        "DescribeEndpoint",
        "CreateModel",
    ]
    assert names(client(OTHER).lookup_events()) == ["CreateModel"]
    assert names(client((OWNER[0], "eu-west-1")).lookup_events()) == ["ListModels"]
    assert names(client(("999988887777", "us-east-1")).lookup_events()) == []
    (event,) = client(OTHER).lookup_events()["Events"]
    assert OWNER[0] not in str(event)


@pytest.mark.usefixtures("filled")
def test_an_event_has_its_record(client: Client) -> None:
    attributes = [{"AttributeKey": "ResourceName", "AttributeValue": "chat"}]
    (event,) = client(OWNER).lookup_events(LookupAttributes=attributes)["Events"]
    assert event["EventTime"] == datetime.fromtimestamp(1.0, UTC)
    assert event["Resources"] == [{"ResourceType": "AWS::SageMaker::Model", "ResourceName": "chat"}]
    record = msgspec.json.decode(event["CloudTrailEvent"])
    assert (record["eventID"], record["errorCode"]) == (event["EventId"], "AccessDenied")


@pytest.mark.usefixtures("filled")
@cases(
    "attribute, value, found",
    case("an event's name", "EventName", "CreateModel", ["CreateModel"]),
    case("an event's source", "EventSource", "sns.amazonaws.com", ["CreateTopic"]),
    case("reads", "ReadOnly", "true", ["DescribeEndpoint"]),
    case("an id of another account's event", "EventId", "event-2", []),
)
def test_an_attribute_selects_events(
    client: Client, attribute: str, value: str, found: list[str]
) -> None:
    wanted = [{"AttributeKey": attribute, "AttributeValue": value}]
    assert names(client(OWNER).lookup_events(LookupAttributes=wanted)) == found


@pytest.mark.usefixtures("filled")
def test_times_are_inclusive(client: Client) -> None:
    at = datetime.fromtimestamp(3.0, UTC)
    assert names(client(OWNER).lookup_events(StartTime=at, EndTime=at)) == ["DescribeEndpoint"]


def test_pages_follow_each_other_though_events_are_added(client: Client, trail: AuditTrail) -> None:
    for number in range(7):
        trail.record(call_event(number), float(number))
    found: list[str] = []
    token: dict[str, str] = {}
    while True:
        answer = client(OWNER).lookup_events(MaxResults=3, **token)
        assert len(answer["Events"]) <= 3
        found += [it["EventId"] for it in answer["Events"]]
        trail.record(call_event(50 + len(found)), 50.0)
        if "NextToken" not in answer:
            break
        token = {"NextToken": answer["NextToken"]}
    assert found == [f"event-{it}" for it in range(6, -1, -1)]


@cases(
    "params, code",
    case("two attributes",
        {"LookupAttributes": [{"AttributeKey": "EventName", "AttributeValue": "a"}] * 2},
        "InvalidLookupAttributesException"),
    case("a value that is too long",
        {"LookupAttributes": [{"AttributeKey": "EventName", "AttributeValue": "a" * 2001}]},
        "ValidationException"),
    case("a time after its end", {"StartTime": 5, "EndTime": 4}, "InvalidTimeRangeException"),
    case("insights", {"EventCategory": "insight"}, "InvalidEventCategoryException"),
    case("an invented token", {"NextToken": "x"}, "InvalidNextTokenException"),
)  # fmt: skip
def test_an_invalid_look_up_is_refused(client: Client, params: dict[str, Any], code: str) -> None:
    with pytest.raises(ClientError) as refused:
        client(OWNER).lookup_events(**params)
    assert refused.value.response["Error"]["Code"] == code


def test_a_token_is_for_its_own_account_and_filters(client: Client, trail: AuditTrail) -> None:
    for number in range(3):
        trail.record(call_event(number), float(number))
    token = client(OWNER).lookup_events(MaxResults=1)["NextToken"]
    for owner, more in ((OTHER, {}), (OWNER, {"StartTime": 1})):
        with pytest.raises(ClientError, match="InvalidNextTokenException"):
            client(owner).lookup_events(NextToken=token, **more)


def test_other_operations_are_refused_by_name(client: Client) -> None:
    with pytest.raises(ClientError, match="does not implement cloudtrail:DescribeTrails"):
        client(OWNER).describe_trails()
