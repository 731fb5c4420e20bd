"""EventBridge Scheduler: schedules, groups, and the effects of a firing."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.cases import case, cases
from tests.contract.api.rig import Api
from tests.message_rig import MessageRig

from hostelry.api.context import CallContext
from hostelry.api.operations import OPERATIONS
from hostelry.base.clock import ManualClock
from hostelry.base.errors import RetryableError, ServiceError
from hostelry.control.events import build_schedule_runner, perform_call
from hostelry.domain.event_schedule import EventSchedule
from hostelry.domain.scope import Scope
from hostelry.domain.shape import Shape
from hostelry.schedules.runner import ScheduleDeps, ScheduleRunner
from hostelry.schedules.targets import CALLABLE, TargetCall
from hostelry.store.protocol import StoreUnavailable
from hostelry.store.records import Records, State, Versioned

Client = Callable[[str], Any]
ROLE = "arn:aws:iam::123456789012:role/scheduler"
DELETE_MODEL = "arn:aws:scheduler:::aws-sdk:sagemaker:deleteModel"
OFF = {"Mode": "OFF"}
TARGET = {"Arn": DELETE_MODEL, "RoleArn": ROLE, "Input": '{"ModelName": "old"}'}
GIVEN = {
    "Name": "nightly",
    "ScheduleExpression": "rate(1 hour)",
    "FlexibleTimeWindow": OFF,
    "Target": TARGET,
}


@pytest.fixture
def scheduler(client: Client) -> Any:
    """A client, with a role that Scheduler may assume."""
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole"}
    statement = {**trust, "Principal": {"Service": "scheduler.amazonaws.com"}}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam = client("iam")
    iam.create_role(RoleName="scheduler", AssumeRolePolicyDocument=policy)
    iam.attach_role_policy(
        RoleName="scheduler", PolicyArn="arn:aws:iam::aws:policy/AdministratorAccess"
    )
    return client("scheduler")


@pytest.fixture
def run_due(state: State, clock: ManualClock, messages: MessageRig) -> Callable[[], None]:
    """Fire all due schedules, as control does."""

    def context_of(scope: Scope) -> CallContext:
        return CallContext(
            scope=scope,
            state=state,
            now=clock.now(),
            get_shape=lambda _: Shape(cpus=4, memory_bytes=1),
            role_arn=ROLE,
            role_name="scheduler",
            metrics=messages.metrics,
            messaging=messages.services,
        )

    return build_schedule_runner(
        state, clock, messages.metrics, messages.services, context_of
    ).run_due


def code_of(error: Any) -> str:
    return str(error.value.response["Error"]["Code"])


def test_a_schedule_from_first_to_last(scheduler: Any, clock: ManualClock) -> None:
    arn = scheduler.create_schedule(**GIVEN, Description="by night")["ScheduleArn"]
    assert arn.endswith(":schedule/default/nightly")
    got = scheduler.get_schedule(Name="nightly")
    assert (got["State"], got["ScheduleExpressionTimezone"]) == ("ENABLED", "UTC")
    assert got["Target"]["RetryPolicy"] == {
        "MaximumEventAgeInSeconds": 86_400,
        "MaximumRetryAttempts": 185,
    }
    assert got["CreationDate"] == datetime.fromtimestamp(clock.now(), UTC)
    [listed] = scheduler.list_schedules(NamePrefix="night", State="ENABLED")["Schedules"]
    assert (listed["Arn"], listed["Target"]) == (arn, {"Arn": DELETE_MODEL})
    scheduler.update_schedule(**GIVEN, State="DISABLED")
    changed = scheduler.get_schedule(Name="nightly")
    assert changed["State"] == "DISABLED"
    assert "Description" not in changed, "members that are left out have their defaults"
    scheduler.delete_schedule(Name="nightly")
    with pytest.raises(ClientError) as gone:
        scheduler.get_schedule(Name="nightly")
    assert code_of(gone) == "ResourceNotFoundException"
    assert gone.value.response["Error"]["Message"] == "Schedule nightly does not exist."


def test_the_same_call_again_is_answered_as_before_and_another_one_conflicts(
    scheduler: Any,
) -> None:
    first = scheduler.create_schedule(**GIVEN, ClientToken="one")
    again = scheduler.create_schedule(**GIVEN, ClientToken="one")
    assert first["ScheduleArn"] == again["ScheduleArn"]
    with pytest.raises(ClientError) as taken:
        scheduler.create_schedule(**GIVEN, ClientToken="two")
    assert code_of(taken) == "ConflictException"


def test_a_group_holds_schedules_and_takes_them_along(scheduler: Any) -> None:
    arn = scheduler.create_schedule_group(Name="batch", Tags=[{"Key": "a", "Value": "1"}])
    arn = arn["ScheduleGroupArn"]
    scheduler.create_schedule(**GIVEN, GroupName="batch")
    scheduler.create_schedule(**GIVEN)
    groups = scheduler.list_schedule_groups()["ScheduleGroups"]
    assert [it["Name"] for it in groups] == ["batch", "default"]
    scheduler.tag_resource(ResourceArn=arn, Tags=[{"Key": "b", "Value": "2"}])
    scheduler.untag_resource(ResourceArn=arn, TagKeys=["a"])
    assert scheduler.list_tags_for_resource(ResourceArn=arn)["Tags"] == [{"Key": "b", "Value": "2"}]
    pages = scheduler.get_paginator("list_schedules").paginate(PaginationConfig={"PageSize": 1})
    assert [it["GroupName"] for page in pages for it in page["Schedules"]] == ["batch", "default"]
    scheduler.delete_schedule_group(Name="batch")
    [left] = scheduler.list_schedules()["Schedules"]
    assert left["GroupName"] == "default"


@cases(
    "changes, words",
    case("in the past", {"ScheduleExpression": "at(2020-01-01T00:00:00)"}, "past"),
    case("no expression", {"ScheduleExpression": "now"}, "must be at("),
    case("no time zone", {"ScheduleExpressionTimezone": "Moon"}, "IANA"),
    case("no window", {"FlexibleTimeWindow": {"Mode": "FLEXIBLE"}}, "Maximum"),
    case("a key", {"KmsKeyArn": "arn:aws:kms:us-west-2:1:key/x"}, "Kms"),
    case("a function", {"Target": {**TARGET, "Arn": "arn:aws:lambda:::f"}}, "not supported"),
    case(
        "an operation that reads",
        {"Target": {**TARGET, "Arn": DELETE_MODEL.replace("deleteModel", "listModels")}},
        "cannot be called",
    ),
    case("an input of no JSON", {"Target": {**TARGET, "Input": "{"}}, "not JSON"),
    case("an input of a list", {"Target": {**TARGET, "Input": "[]"}}, "JSON object"),
    case("no such role", {"Target": {**TARGET, "RoleArn": ROLE + "2"}}, "assume the role"),
    case(
        "parameters of a template",
        {"Target": {**TARGET, "SqsParameters": {"MessageGroupId": "g"}}},
        "SqsParameters",
    ),
    case(
        "no such queue",
        {
            "Target": {
                **TARGET,
                "DeadLetterConfig": {"Arn": "arn:aws:sqs:us-west-2:123456789012:no"},
            }
        },
        "dead-letter queue",
    ),
)
def test_an_invalid_schedule_is_refused_with_its_reason(
    scheduler: Any, changes: dict[str, Any], words: str
) -> None:
    if "KmsKeyArn" in changes:
        changes = {"KmsKeyArn": "arn:aws:kms:us-west-2:123456789012:key/x"}
    with pytest.raises(ClientError) as refused:
        scheduler.create_schedule(**{**GIVEN, **changes})
    assert code_of(refused) == "ValidationException"
    assert words in refused.value.response["Error"]["Message"]
    assert scheduler.list_schedules()["Schedules"] == []


@pytest.mark.parametrize("name", ["a b", "x" * 65], ids=["a space", "too long"])
def test_a_name_is_held_to_the_service_model(client: Client, name: str) -> None:
    with pytest.raises(ClientError) as refused:
        client("scheduler").get_schedule(Name=name)
    assert code_of(refused) == "ValidationException"


def test_a_schedule_calls_its_operation_and_goes(
    scheduler: Any, api: Api, run_due: Callable[[], None], client: Client
) -> None:
    api.make.model("old")
    at = datetime.fromtimestamp(api.clock.now() + 60, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    once = {**GIVEN, "ScheduleExpression": f"at({at})"}
    scheduler.create_schedule(**once, ActionAfterCompletion="DELETE")
    run_due()
    assert len(client("sagemaker").list_models()["Models"]) == 1, "it is not due yet"
    api.clock.advance(61)
    run_due()
    assert client("sagemaker").list_models()["Models"] == []
    assert scheduler.list_schedules()["Schedules"] == []


def test_a_batch_job_is_started_by_schedule_once_for_each_firing(
    scheduler: Any, api: Api, run_due: Callable[[], None], client: Client
) -> None:
    api.make.model("m")
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/in/"}}
    job = {
        "TransformJobName": "job-<aws.scheduler.execution-id>",
        "ModelName": "m",
        "TransformInput": {"DataSource": source},
        "TransformOutput": {"S3OutputPath": "s3://bucket/out"},
        "TransformResources": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1},
    }
    arn = DELETE_MODEL.replace("deleteModel", "createTransformJob")
    target = {"Arn": arn, "RoleArn": ROLE, "Input": json.dumps(job)}
    scheduler.create_schedule(**{**GIVEN, "Target": target})
    for _ in range(2):
        run_due()
        run_due()
        api.clock.advance(3600)
    jobs = client("sagemaker").list_transform_jobs()["TransformJobSummaries"]
    assert len({it["TransformJobName"] for it in jobs}) == 2


def test_a_call_that_is_refused_goes_to_the_dead_letters(
    scheduler: Any, clock: ManualClock, run_due: Callable[[], None], client: Client
) -> None:
    sqs = client("sqs")
    url = sqs.create_queue(QueueName="dead")["QueueUrl"]
    arn = "arn:aws:sqs:us-west-2:123456789012:dead"
    scheduler.create_schedule(**{**GIVEN, "Target": {**TARGET, "DeadLetterConfig": {"Arn": arn}}})
    run_due()
    run_due()
    [letter] = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]
    assert json.loads(letter["Body"]) == {"ModelName": "old"}
    attributes = letter["MessageAttributes"]
    assert attributes["ERROR_CODE"]["StringValue"] == "ValidationException"
    assert "old" in attributes["ERROR_MESSAGE"]["StringValue"]


def test_a_queue_and_a_topic_are_targets(
    scheduler: Any, run_due: Callable[[], None], client: Client
) -> None:
    sqs, sns = client("sqs"), client("sns")
    url = sqs.create_queue(QueueName="work")["QueueUrl"]
    queue = "arn:aws:sqs:us-west-2:123456789012:work"
    topic = sns.create_topic(Name="news")["TopicArn"]
    sns.subscribe(
        TopicArn=topic, Protocol="sqs", Endpoint=queue, Attributes={"RawMessageDelivery": "true"}
    )
    text = "<aws.scheduler.scheduled-time> <aws.scheduler.attempt-number>"
    for name, arn in (("q", queue), ("t", topic)):
        target = {"Arn": arn, "RoleArn": ROLE, "Input": f"{name} {text}"}
        scheduler.create_schedule(**{**GIVEN, "Name": name, "Target": target})
    run_due()
    got = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    bodies = sorted(it["Body"] for it in got)
    assert [it[0] for it in bodies] == ["q", "t"]
    assert all(it.endswith("Z 1") for it in bodies)


def runner_of(state: State, clock: ManualClock, answers: list[Exception | None]) -> Any:
    """A runner whose calls have these outcomes, and the calls that it made."""
    calls: list[TargetCall] = []

    def invoke(_: EventSchedule, call: TargetCall) -> None:
        calls.append(call)
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    deps = ScheduleDeps(
        state=state,
        clock=clock,
        gateway_url="http://here",
        invoke=invoke,
        bury=lambda *_: False,
        count=lambda *_: None,
    )
    return ScheduleRunner(deps), calls


def test_a_call_that_fails_for_a_while_is_made_again_with_the_same_execution(
    scheduler: Any, state: State, clock: ManualClock
) -> None:
    target = {**TARGET, "Input": '{"ModelName": "<aws.scheduler.execution-id>"}'}
    scheduler.create_schedule(**{**GIVEN, "Target": target})
    answers = [ServiceError("ServiceUnavailable", "later", 503), RetryableError("busy"), None]
    runner, calls = runner_of(state, clock, list(answers))
    for pause_s in (0.0, 1.0, 2.0):
        clock.advance(pause_s)
        assert runner.next_at() <= clock.now()
        runner.run_due()
    assert len({it.params["ModelName"] for it in calls}) == 1
    assert len(calls) == len(answers)
    assert runner.next_at() > clock.now()


def test_a_kill_after_the_call_makes_it_again(
    scheduler: Any, state: State, clock: ManualClock
) -> None:
    target = {**TARGET, "Input": '{"ModelName": "<aws.scheduler.execution-id>"}'}
    scheduler.create_schedule(**{**GIVEN, "Target": target})
    killed, calls = runner_of(state, clock, [KeyboardInterrupt()])  # type: ignore[list-item]
    with pytest.raises(KeyboardInterrupt):
        killed.run_due()
    successor, more = runner_of(state, clock, [None])
    successor.run_due()
    successor.run_due()
    assert [it.params for it in calls] == [it.params for it in more]


@cases(
    "outcome",
    case("a call that was made", None),
    case("a call that failed", ServiceError("ServiceUnavailable", "later", 503)),
)
def test_a_call_whose_outcome_a_full_disk_refuses_is_not_made_again(
    outcome: Exception | None, scheduler: Any, clock: ManualClock, state: State
) -> None:
    scheduler.create_schedule(**GIVEN)
    refusals = [StoreUnavailable("the disk is full")] * 2

    class FullAtTimes(Records[EventSchedule]):
        def put(
            self, scope: Scope, name: str, value: EventSchedule, *, expect: int | None
        ) -> Versioned[EventSchedule]:
            if calls and refusals:
                raise refusals.pop()
            return super().put(scope, name, value, expect=expect)

    full = FullAtTimes(state.store, state.event_schedules.kind, EventSchedule)
    runner, calls = runner_of(replace(state, event_schedules=full), clock, [outcome])
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            runner.run_due()
    runner.run_due()
    assert len(calls) == 1
    assert runner.next_at() > clock.now()


def test_every_operation_that_a_schedule_may_call_is_served() -> None:
    named = {(boto3_name, it) for boto3_name, names in CALLABLE.values() for it in names}
    assert named <= set(OPERATIONS)


def test_parameters_of_a_call_are_held_to_the_service_model(
    state: State, clock: ManualClock, messages: MessageRig, scope: Scope
) -> None:
    context = CallContext(
        scope=scope,
        state=state,
        now=clock.now(),
        get_shape=lambda _: Shape(cpus=4, memory_bytes=1),
        role_arn=ROLE,
        role_name="scheduler",
        metrics=messages.metrics,
    )
    call = TargetCall(service="sagemaker", operation="DeleteModel", params={"ModelName": "a b"})
    with pytest.raises(ServiceError, match="regular expression"):
        perform_call(context, call, "scheduler.amazonaws.com")
