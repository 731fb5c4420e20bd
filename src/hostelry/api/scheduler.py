"""EventBridge Scheduler: schedules, their groups, and the groups' tags."""

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.execution_role import can_assume
from hostelry.api.page import ListPaging, order_by_name
from hostelry.api.record_kind import RecordKind
from hostelry.api.rights import check_delivery
from hostelry.api.tags import TagOperations, parse_tags, write_tags
from hostelry.base.errors import ServiceError
from hostelry.domain.event_schedule import (
    DEFAULT_GROUP,
    MAX_AGE_S,
    MAX_RETRIES,
    EventSchedule,
    ScheduleGroup,
    ScheduleTarget,
    group_arn,
    schedule_key,
)
from hostelry.domain.scope import Scope
from hostelry.messaging.failed_delivery import queue_at
from hostelry.schedules.firing import expression_problem
from hostelry.schedules.targets import TargetError, build_call
from hostelry.store.records import Versioned

PRINCIPAL = "scheduler.amazonaws.com"
LISTS = ListPaging(page_size=100)
TEMPLATES = (
    "EcsParameters",
    "EventBridgeParameters",
    "EventBridgePutEventsV2Parameters",
    "EventBridgePutRawEventsParameters",
    "KinesisParameters",
    "SageMakerPipelineParameters",
    "SqsParameters",
)
ECHOED = (
    "ScheduleExpression",
    "ScheduleExpressionTimezone",
    "StartDate",
    "EndDate",
    "Description",
    "State",
    "Target",
    "FlexibleTimeWindow",
    "ActionAfterCompletion",
)
DEFAULTS = {
    "ScheduleExpressionTimezone": "UTC",
    "State": "ENABLED",
    "ActionAfterCompletion": "NONE",
}


def _not_found(message: str) -> ServiceError:
    return ServiceError("ResourceNotFoundException", message, 404)


def _conflict(message: str) -> ServiceError:
    return ServiceError("ConflictException", message, 409)


def _invalid(message: str) -> ServiceError:
    return ServiceError("ValidationException", message, 400)


GROUPS = RecordKind[ScheduleGroup](
    records=lambda state: state.schedule_groups,
    not_found=lambda _, name: _not_found(f"Schedule Group {name} does not exist."),
)
SCHEDULES = RecordKind[EventSchedule](
    records=lambda state: state.event_schedules,
    not_found=lambda _, key: _not_found(f"Schedule {key.partition('/')[2]} does not exist."),
    record_name=lambda schedule: schedule_key(schedule.group, schedule.name),
)


def create_schedule(context: CallContext, params: Params) -> Result:
    """CreateSchedule. The same call again, with its ClientToken, gets the same answer."""
    schedule = _build_schedule(context, params)
    stored = SCHEDULES.get(context, schedule_key(schedule.group, schedule.name))
    if stored is not None:
        token = params.get("ClientToken")
        if token is None or token != stored.value.given.get("ClientToken"):
            raise _conflict(f"Schedule {schedule.name} already exists.")
        return {"ScheduleArn": stored.value.arn}
    SCHEDULES.put(context, schedule)
    return {"ScheduleArn": schedule.arn}


def update_schedule(context: CallContext, params: Params) -> Result:
    """UpdateSchedule: replaces every member. Omitted members get their defaults."""
    stored = _find_schedule(context, params)
    schedule = replace(_build_schedule(context, params), created_at=stored.value.created_at)
    SCHEDULES.put(context, schedule, stored)
    return {"ScheduleArn": schedule.arn}


def get_schedule(context: CallContext, params: Params) -> Result:
    """GetSchedule."""
    schedule = _find_schedule(context, params).value
    shown = {**DEFAULTS, **schedule.given}
    target = {**shown["Target"]}
    target["RetryPolicy"] = {
        "MaximumEventAgeInSeconds": int(schedule.target.max_age_s),
        "MaximumRetryAttempts": schedule.target.max_retries,
    }
    return {
        "Arn": schedule.arn,
        "GroupName": schedule.group,
        "Name": schedule.name,
        "CreationDate": schedule.created_at,
        "LastModificationDate": schedule.modified_at,
        **{name: shown[name] for name in ECHOED if shown.get(name) is not None},
        "Target": target,
    }


def list_schedules(context: CallContext, params: Params) -> Result:
    """ListSchedules, by group and name."""
    group, prefix, state = (params.get(it) for it in ("GroupName", "NamePrefix", "State"))
    if group is not None:
        _find_group(context, group)
    rows = [
        ((schedule.group, schedule.name), _summarize_schedule(schedule))
        for schedule in SCHEDULES.values(context)
        if group in (None, schedule.group) and schedule.name.startswith(prefix or "")
    ]
    rows = [row for row in rows if state in (None, row[1]["State"])]
    return LISTS.answer(context, "ListSchedules", params, "Schedules", rows)


def delete_schedule(context: CallContext, params: Params) -> Result:
    """DeleteSchedule."""
    SCHEDULES.delete(context, _find_schedule(context, params))
    return {}


def create_schedule_group(context: CallContext, params: Params) -> Result:
    """CreateScheduleGroup. The same call again, with its ClientToken, gets the same answer."""
    name, token = params["Name"], params.get("ClientToken")
    tags = parse_tags(params.get("Tags"))
    stored = GROUPS.get(context, name)
    if stored is not None and token is not None and token == stored.value.client_token:
        return {"ScheduleGroupArn": stored.value.arn}
    if stored is not None or name == DEFAULT_GROUP:
        raise _conflict(f"Schedule group {name} already exists.")
    group = ScheduleGroup(
        scope=context.scope, name=name, created_at=context.now, client_token=token
    )
    GROUPS.put(context, group)
    write_tags(context, group.arn, tags)
    return {"ScheduleGroupArn": group.arn}


def get_schedule_group(context: CallContext, params: Params) -> Result:
    """GetScheduleGroup."""
    return _describe_group(_find_group(context, params["Name"]))


def list_schedule_groups(context: CallContext, params: Params) -> Result:
    """ListScheduleGroups, by name."""
    groups = [_default_group(context.scope), *GROUPS.values(context)]
    prefix = params.get("NamePrefix", "")
    shown = [it for it in groups if it.name.startswith(prefix)]
    rows = order_by_name((it.name, _describe_group(it)) for it in shown)
    return LISTS.answer(context, "ListScheduleGroups", params, "ScheduleGroups", rows)


def delete_schedule_group(context: CallContext, params: Params) -> Result:
    """DeleteScheduleGroup, with its schedules."""
    name = params["Name"]
    if name == DEFAULT_GROUP:
        raise _invalid("The default schedule group cannot be deleted.")
    group = GROUPS.find(context, name)
    for schedule in SCHEDULES.all(context):
        if schedule.value.group == name:
            SCHEDULES.delete(context, schedule)
    GROUPS.delete(context, group)
    write_tags(context, group.value.arn, {})
    return {}


def _find_tagged(context: CallContext, params: Params) -> str:
    arn: str = params["ResourceArn"]
    name = arn.rpartition("/")[2]
    is_group = name == DEFAULT_GROUP or GROUPS.get(context, name) is not None
    if arn != group_arn(context.scope, name) or not is_group:
        raise _not_found(
            f"Resource {arn} does not exist; schedule groups have tags, and only they."
        )
    return arn


TAGS = TagOperations(find_arn=_find_tagged)


def _find_group(context: CallContext, name: str) -> ScheduleGroup:
    if name == DEFAULT_GROUP:
        return _default_group(context.scope)
    return GROUPS.find(context, name).value


def _find_schedule(context: CallContext, params: Params) -> Versioned[EventSchedule]:
    group = params.get("GroupName", DEFAULT_GROUP)
    _find_group(context, group)
    return SCHEDULES.find(context, schedule_key(group, params["Name"]))


def _default_group(scope: Scope) -> ScheduleGroup:
    return ScheduleGroup(scope=scope, name=DEFAULT_GROUP, created_at=0.0)


def _build_schedule(context: CallContext, params: Params) -> EventSchedule:
    group = params.get("GroupName", DEFAULT_GROUP)
    _find_group(context, group)
    if params.get("KmsKeyArn"):
        raise _invalid("KmsKeyArn is not supported here: inputs of schedules are not encrypted.")
    expression = params["ScheduleExpression"]
    timezone = params.get("ScheduleExpressionTimezone", "UTC")
    start_at, end_at = params.get("StartDate"), params.get("EndDate")
    problem = expression_problem(expression, timezone, start_at, end_at, context.now)
    if problem is not None:
        raise _invalid(problem)
    return EventSchedule(
        scope=context.scope,
        group=group,
        name=params["Name"],
        created_at=context.now,
        modified_at=context.now,
        expression=expression,
        timezone=timezone,
        target=_build_target(context, params["Target"]),
        is_enabled=params.get("State", "ENABLED") == "ENABLED",
        start_at=start_at,
        end_at=end_at,
        window_s=_window_s(params["FlexibleTimeWindow"]),
        deletes_itself=params.get("ActionAfterCompletion") == "DELETE",
        given=dict(params),
    )


def _has_queue(context: CallContext, arn: str) -> bool:
    if queue_at(context.state, arn, context.scope.account) is None:
        return False
    check_delivery(context, arn)
    return True


def _build_target(context: CallContext, given: Params) -> ScheduleTarget:
    for name in TEMPLATES:
        if given.get(name):
            raise _invalid(f"Target.{name} is not supported here: leave it out.")
    _check_role(context, given["RoleArn"])
    try:
        build_call(given["Arn"], given.get("Input"), "")
    except TargetError as error:
        raise _invalid(str(error)) from None
    dead_letters = (given.get("DeadLetterConfig") or {}).get("Arn")
    if dead_letters is not None and not _has_queue(context, dead_letters):
        raise _invalid(f"The dead-letter queue {dead_letters} does not exist.")
    policy = given.get("RetryPolicy") or {}
    return ScheduleTarget(
        arn=given["Arn"],
        input=given.get("Input"),
        max_age_s=float(policy.get("MaximumEventAgeInSeconds", MAX_AGE_S)),
        max_retries=policy.get("MaximumRetryAttempts", MAX_RETRIES),
        dead_letter_arn=dead_letters,
    )


def _check_role(context: CallContext, arn: str) -> None:
    if context.checks_roles and not can_assume(context, PRINCIPAL, arn):
        raise _invalid(
            "The execution role you provide must allow AWS EventBridge Scheduler to assume the"
            f" role. {arn} is not there, or its trust policy does not allow {PRINCIPAL}."
        )


def _window_s(given: Params) -> float:
    minutes = given.get("MaximumWindowInMinutes")
    if given["Mode"] == "OFF":
        if minutes is not None:
            raise _invalid("MaximumWindowInMinutes needs FlexibleTimeWindow.Mode FLEXIBLE.")
        return 0.0
    if minutes is None:
        raise _invalid("FlexibleTimeWindow.Mode FLEXIBLE needs MaximumWindowInMinutes.")
    return float(minutes * 60)


def _summarize_schedule(schedule: EventSchedule) -> Result:
    return {
        "Arn": schedule.arn,
        "GroupName": schedule.group,
        "Name": schedule.name,
        "State": "ENABLED" if schedule.is_enabled else "DISABLED",
        "CreationDate": schedule.created_at,
        "LastModificationDate": schedule.modified_at,
        "Target": {"Arn": schedule.target.arn},
    }


def _describe_group(group: ScheduleGroup) -> Result:
    return {
        "Arn": group.arn,
        "Name": group.name,
        "State": "ACTIVE",
        "CreationDate": group.created_at,
        "LastModificationDate": group.created_at,
    }
