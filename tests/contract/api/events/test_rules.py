"""EventBridge: rules, their targets, and the calls for an event of the bus."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from starlette.applications import Starlette
from starlette.testclient import TestClient
from tests.cases import case, cases
from tests.message_rig import MessageRig

from hostelry.api.context import CallContext
from hostelry.api.events import check_pattern, parse_pattern
from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.control.data import open_data
from hostelry.control.events import EventServer, build_call_runner
from hostelry.domain.object_event import ObjectEvent
from hostelry.domain.scope import Scope
from hostelry.domain.shape import Shape
from hostelry.events.call_rows import CallRows
from hostelry.events.calls import build_object_calls
from hostelry.events.runner import CallRunner
from hostelry.home.home import Home, UpConfig, new_credentials
from hostelry.store.database import open_database
from hostelry.store.records import State

Client = Callable[[str], Any]
HERE = Scope("123456789012", "us-west-2")
ROLE = "arn:aws:iam::123456789012:role/events"
CREATE_JOB = "arn:aws:scheduler:::aws-sdk:sagemaker:createTransformJob"
DELETE_MODEL = "arn:aws:scheduler:::aws-sdk:sagemaker:deleteModel"
ARRIVALS = {
    "source": ["aws.s3"],
    "detail-type": ["Object Created"],
    "detail": {"bucket": {"name": ["rows"]}, "object": {"key": [{"prefix": "in/"}]}},
}
PATTERN = json.dumps(ARRIVALS)
TARGET = {"Id": "job", "Arn": DELETE_MODEL, "RoleArn": ROLE, "Input": '{"ModelName": "old"}'}


@pytest.fixture
def events(client: Client) -> Any:
    """A client, with a role that EventBridge may assume."""
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole"}
    statement = {**trust, "Principal": {"Service": "events.amazonaws.com"}}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam = client("iam")
    iam.create_role(RoleName="events", AssumeRolePolicyDocument=policy)
    iam.attach_role_policy(
        RoleName="events", PolicyArn="arn:aws:iam::aws:policy/AdministratorAccess"
    )
    return client("events")


@pytest.fixture
def rows(messages: MessageRig) -> CallRows:
    return CallRows(messages.tables)


@pytest.fixture
def runner(state: State, clock: ManualClock, messages: MessageRig, rows: CallRows) -> CallRunner:
    """Makes calls as control does."""

    def context_of(scope: Scope) -> CallContext:
        return CallContext(
            scope=scope,
            state=state,
            now=clock.now(),
            get_shape=lambda _: Shape(cpus=4, memory_bytes=1),
            role_arn=ROLE,
            role_name="events",
            metrics=messages.metrics,
            messaging=messages.services,
        )

    return build_call_runner(rows, state, clock, messages.metrics, messages.services, context_of)


@pytest.fixture
def put(
    state: State, clock: ManualClock, rows: CallRows, runner: CallRunner
) -> Callable[..., None]:
    """`put(key, ...)` puts an object into the notifying bucket "rows". Returns the calls."""

    def put(key: str, id: str = "0a1b", **given: Any) -> None:
        event = ObjectEvent(
            id=id,
            scope=HERE,
            kind="Put",
            bucket="rows",
            key=key,
            at=clock.now(),
            sequencer="01",
            request_id="r",
            source_address="127.0.0.1",
            size_bytes=5,
            etag="e",
            to_bus=True,
            **given,
        )
        rules = [it.value for it in state.event_rules.list()]
        rows.accept(event.id, build_object_calls(event, rules, clock.now()), clock.now())
        runner.run_due()

    return put


def refusal(call: Callable[..., Any], **given: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as refused:
        call(**given)
    error = refused.value.response["Error"]
    return error["Code"], error["Message"]


def messages_of(client: Client, name: str) -> list[Any]:
    sqs = client("sqs")
    url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
    found = sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
    ).get("Messages", [])
    for message in found:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return list(found)


def queue(client: Client, name: str) -> str:
    made = client("sqs").create_queue(QueueName=name)
    asked = client("sqs").get_queue_attributes(
        QueueUrl=made["QueueUrl"], AttributeNames=["QueueArn"]
    )
    return str(asked["Attributes"]["QueueArn"])


def test_a_rule_from_first_to_last(events: Any) -> None:
    arn = events.put_rule(
        Name="arrivals",
        EventPattern=PATTERN,
        Description="new rows",
        Tags=[{"Key": "a", "Value": "1"}],
    )["RuleArn"]
    assert arn == "arn:aws:events:us-west-2:123456789012:rule/arrivals"
    got = events.describe_rule(Name="arrivals")
    assert (got["State"], got["EventBusName"], got["Description"]) == (
        "ENABLED",
        "default",
        "new rows",
    )
    assert json.loads(got["EventPattern"]) == ARRIVALS
    events.disable_rule(Name="arrivals")
    assert events.describe_rule(Name="arrivals")["State"] == "DISABLED"
    events.enable_rule(Name="arrivals", EventBusName="default")
    events.put_targets(Rule="arrivals", Targets=[TARGET])
    events.put_rule(Name="arrivals", EventPattern=PATTERN)
    assert events.list_targets_by_rule(Rule="arrivals")["Targets"] == [TARGET], "a put keeps them"
    assert "Description" not in events.describe_rule(Name="arrivals")
    assert events.list_rule_names_by_target(TargetArn=DELETE_MODEL)["RuleNames"] == ["arrivals"]
    events.tag_resource(ResourceARN=arn, Tags=[{"Key": "b", "Value": "2"}])
    events.untag_resource(ResourceARN=arn, TagKeys=["a"])
    assert events.list_tags_for_resource(ResourceARN=arn)["Tags"] == [{"Key": "b", "Value": "2"}]
    assert "has targets" in refusal(events.delete_rule, Name="arrivals")[1]
    assert events.remove_targets(Rule="arrivals", Ids=["job"])["FailedEntryCount"] == 0
    events.delete_rule(Name="arrivals")
    events.delete_rule(Name="arrivals")
    assert events.list_rules()["Rules"] == []
    code, text = refusal(events.describe_rule, Name="arrivals")
    assert code == "ResourceNotFoundException"
    assert text == "Rule arrivals does not exist on EventBus default."


def test_lists_are_paged(events: Any) -> None:
    for name in ("a1", "a2", "b"):
        events.put_rule(Name=name, EventPattern=PATTERN)
    first = events.list_rules(NamePrefix="a", Limit=1)
    assert [it["Name"] for it in first["Rules"]] == ["a1"]
    rest = events.list_rules(NamePrefix="a", Limit=1, NextToken=first["NextToken"])
    assert ([it["Name"] for it in rest["Rules"]], rest.get("NextToken")) == (["a2"], None)


def test_there_is_the_default_bus_alone(events: Any) -> None:
    [bus] = events.list_event_buses()["EventBuses"]
    assert bus["Name"] == events.describe_event_bus()["Name"] == "default"
    code, text = refusal(events.put_rule, Name="r", EventPattern=PATTERN, EventBusName="other")
    assert (code, text.startswith("Event bus other")) == ("ResourceNotFoundException", True)


@cases(
    "given, code, words",
    case("no pattern", {}, "ValidationException", "EventPattern"),
    case("a rate", {"ScheduleExpression": "rate(1 hour)"}, "ValidationException", "Scheduler"),
    case("no JSON", {"EventPattern": "{"}, "InvalidEventPatternException", "JSON"),
    case(
        "a value that is no array",
        {"EventPattern": '{"source": "aws.s3"}'},
        "InvalidEventPatternException",
        '"source" must be an object or an array',
    ),
    case(
        "an unknown condition",
        {"EventPattern": '{"source": [{"like": "a"}]}'},
        "InvalidEventPatternException",
        "Unrecognized match type like",
    ),
)
def test_a_rule_that_cannot_be_is_refused(
    events: Any, given: dict[str, Any], code: str, words: str
) -> None:
    assert refusal(events.put_rule, Name="r", **given)[0] == code
    assert words in refusal(events.put_rule, Name="r", **given)[1]


@cases(
    "changes, words",
    case("a function", {"Arn": "arn:aws:lambda:::f"}, "not supported"),
    case("an operation without a role", {"RoleArn": None}, "RoleArn is required"),
    case("no such role", {"RoleArn": ROLE + "2"}, "cannot be assumed"),
    case(
        "no such dead-letter queue",
        {"DeadLetterConfig": {"Arn": "arn:aws:sqs:us-west-2:123456789012:no"}},
        "does not exist",
    ),
    case("two inputs", {"InputPath": "$.detail"}, "Only one of"),
    case("no path", {"Input": None, "InputPath": "detail"}, "no path"),
    case(
        "a name without a path",
        {"Input": None, "InputTransformer": {"InputTemplate": '{"a": <key>}'}},
        "<key>, which InputPathsMap does not have",
    ),
    case(
        "a template of no JSON",
        {
            "Input": None,
            "InputTransformer": {"InputPathsMap": {"k": "$.id"}, "InputTemplate": "{<k>"},
        },
        "is not JSON",
    ),
    case("other parameters", {"SqsParameters": {"MessageGroupId": "g"}}, "SqsParameters"),
)
def test_a_target_that_cannot_be_called_is_refused(
    events: Any, changes: dict[str, Any], words: str
) -> None:
    events.put_rule(Name="r", EventPattern=PATTERN)
    target = {name: it for name, it in {**TARGET, **changes}.items() if it is not None}
    code, text = refusal(events.put_targets, Rule="r", Targets=[target])
    assert code == "ValidationException"
    assert words in text
    assert "target job" in text


def test_a_sixth_target_is_over_the_limit(events: Any) -> None:
    events.put_rule(Name="r", EventPattern=PATTERN)
    targets = [{**TARGET, "Id": str(number)} for number in range(6)]
    assert refusal(events.put_targets, Rule="r", Targets=targets)[0] == "LimitExceededException"
    assert events.list_targets_by_rule(Rule="r")["Targets"] == [], "all or none"


def test_a_rule_on_objects_of_a_foreign_store_is_refused(state: State) -> None:
    context = CallContext(
        scope=HERE,
        state=state,
        now=0.0,
        get_shape=lambda _: Shape(cpus=1, memory_bytes=1),
        role_arn=ROLE,
        role_name="events",
        metrics=MessageRig().metrics,
        foreign_s3="https://minio.example",
    )
    with pytest.raises(ServiceError, match=r"https://minio\.example, whose uploads are not seen"):
        check_pattern(context, parse_pattern(PATTERN))
    check_pattern(context, parse_pattern('{"source": ["mine"]}'))


def test_the_arrival_of_an_object_starts_a_job_of_its_bucket_and_key(
    events: Any, client: Client, put: Callable[..., None]
) -> None:
    client("sagemaker").create_model(
        ModelName="m",
        ExecutionRoleArn="arn:aws:iam::123456789012:role/HostelryExecutionRole",
        PrimaryContainer={"Image": "i", "ModelDataUrl": "s3://b/m.tar.gz"},
    )
    events.put_rule(Name="arrivals", EventPattern=PATTERN)
    job = {
        "TransformJobName": "score-<id>",
        "ModelName": "m",
        "TransformInput": {
            "DataSource": {
                "S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://<bucket>/<key>"}
            }
        },
        "TransformOutput": {"S3OutputPath": "s3://<bucket>/out"},
        "TransformResources": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
    }
    paths = {"id": "$.id", "bucket": "$.detail.bucket.name", "key": "$.detail.object.key"}
    transformer = {"InputPathsMap": paths, "InputTemplate": json.dumps(job)}
    target = {"Id": "1", "Arn": CREATE_JOB, "RoleArn": ROLE, "InputTransformer": transformer}
    events.put_targets(Rule="arrivals", Targets=[target])
    put('in/a","x":"', id="0a1b")
    put("in/b.csv", id="0a1b")
    put("elsewhere/c.csv", id="0a1c")
    [made] = client("sagemaker").list_transform_jobs()["TransformJobSummaries"]
    shown = client("sagemaker").describe_transform_job(TransformJobName="score-0a1b")
    assert made["TransformJobName"] == "score-0a1b"
    source = shown["TransformInput"]["DataSource"]["S3DataSource"]
    assert source["S3Uri"] == 's3://rows/in/a","x":"', "a key cannot end the text that it is in"


def test_queues_and_topics_get_the_event_and_a_disabled_rule_nothing(
    events: Any, client: Client, put: Callable[..., None]
) -> None:
    arn, letters = queue(client, "arrived"), queue(client, "notified")
    topic = client("sns").create_topic(Name="t")["TopicArn"]
    client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=letters)
    events.put_rule(Name="r", EventPattern=PATTERN)
    targets = [{"Id": "q", "Arn": arn}, {"Id": "t", "Arn": topic, "InputPath": "$.detail.object"}]
    events.put_targets(Rule="r", Targets=targets)
    put("in/a b.csv", id="1")
    events.disable_rule(Name="r")
    put("in/c.csv", id="2")
    [got] = messages_of(client, "arrived")
    event = json.loads(got["Body"])
    assert (event["source"], event["detail-type"]) == ("aws.s3", "Object Created")
    assert event["detail"]["object"] == {
        "key": "in/a b.csv",
        "size": 5,
        "etag": "e",
        "sequencer": "01",
    }
    [notified] = messages_of(client, "notified")
    assert json.loads(json.loads(notified["Body"])["Message"]) == event["detail"]["object"]


def test_a_call_that_is_refused_goes_to_the_dead_letter_queue(
    events: Any, client: Client, put: Callable[..., None]
) -> None:
    letters = queue(client, "dead")
    events.put_rule(Name="r", EventPattern=PATTERN)
    events.put_targets(Rule="r", Targets=[{**TARGET, "DeadLetterConfig": {"Arn": letters}}])
    put("in/a.csv")
    [letter] = messages_of(client, "dead")
    given = {name: it["StringValue"] for name, it in letter["MessageAttributes"].items()}
    assert letter["Body"] == TARGET["Input"]
    assert (given["RULE_NAME"], given["ERROR_CODE"]) == ("r", "ValidationException")
    assert 'Could not find model "' in given["ERROR_MESSAGE"]


@cases(
    "chain_length, is_started",
    case("the output of two jobs in a row starts a third", 2, True),
    case("that of three starts none", 3, False),
)
def test_outputs_below_a_watched_prefix_do_not_start_jobs_for_ever(
    events: Any,
    client: Client,
    put: Callable[..., None],
    chain_length: int,
    is_started: bool,
) -> None:
    letters = queue(client, "dead")
    events.put_rule(Name="r", EventPattern=PATTERN)
    events.put_targets(Rule="r", Targets=[{**TARGET, "DeadLetterConfig": {"Arn": letters}}])
    put("in/a.csv", chain_length=chain_length)
    [letter] = messages_of(client, "dead")
    code = letter["MessageAttributes"]["ERROR_CODE"]["StringValue"]
    assert code == ("ValidationException" if is_started else "EventChainTooLong")


def test_events_of_programs_match_and_entries_are_refused_one_by_one(
    events: Any, client: Client, runner: CallRunner
) -> None:
    arn = queue(client, "mine")
    events.put_rule(Name="r", EventPattern='{"source": [{"prefix": "my."}], "detail": {"n": [1]}}')
    events.put_targets(Rule="r", Targets=[{"Id": "q", "Arn": arn}])
    entry = {"Source": "my.app", "DetailType": "done", "Detail": '{"n": 1}'}
    sent = events.put_events(
        Entries=[
            entry,
            {**entry, "Detail": '{"n": 2}'},
            {**entry, "Source": "aws.s3"},
            {**entry, "Detail": "[]"},
            {"Source": "my.app"},
        ]
    )
    runner.run_due()
    codes = [it.get("ErrorCode") for it in sent["Entries"]]
    assert codes[:3] == [None, None, "NotAuthorizedForSourceException"]
    assert codes[3:] == ["MalformedDetail", "InvalidArgument"]
    assert sent["FailedEntryCount"] == 3
    [got] = messages_of(client, "mine")
    assert json.loads(got["Body"])["id"] == sent["Entries"][0]["EventId"]


def test_a_pattern_is_tried_on_an_event(events: Any) -> None:
    event = {
        "id": "1",
        "account": "1",
        "source": "aws.s3",
        "time": "2026-01-01T00:00:00Z",
        "region": "r",
        "resources": [],
        "detail-type": "Object Created",
        "detail": {"bucket": {"name": "rows"}, "object": {"key": "in/a"}},
    }
    asked = {"EventPattern": PATTERN, "Event": json.dumps(event)}
    assert events.test_event_pattern(**asked)["Result"] is True
    asked["Event"] = json.dumps({**event, "detail": {}})
    assert events.test_event_pattern(**asked)["Result"] is False
    assert "has no id" in refusal(events.test_event_pattern, EventPattern=PATTERN, Event="{}")[1]


@pytest.mark.parametrize("path", ["/internal/object-events", "/internal/object-events/targets"])
@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff", b'{"targets": 1}'])
def test_an_invalid_body_of_the_s3_port_is_refused(
    state: State, clock: ManualClock, messages: MessageRig, tmp_path: Path, path: str, body: bytes
) -> None:
    home = Home(tmp_path)
    home.make()
    database = open_database(home.state)
    keys = new_credentials("111122223333", "us-east-1")
    data = open_data(home, UpConfig(control_port=1), keys, state, database, clock)
    server = EventServer(data, clock, messages.services, lambda _: pytest.fail("no call is made"))
    answer = TestClient(Starlette(routes=server.routes())).post(path, content=body)
    data.close()
    database.close()
    assert answer.status_code == 400
