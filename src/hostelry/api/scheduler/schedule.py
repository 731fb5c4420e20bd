"""CreateSchedule, GetSchedule, ListSchedules, UpdateSchedule and DeleteSchedule."""

from dataclasses import replace
from typing import Any

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.execution_role import lets_service
from hostelry.api.page import PageTokens, page_of
from hostelry.api.scheduler.group import DEFAULT_PAGE_SIZE, find_group
from hostelry.api.scheduler.refusals import absent, conflict, invalid
from hostelry.domain.event_schedule import (
    DEFAULT_GROUP,
    MAX_AGE_S,
    MAX_RETRIES,
    EventSchedule,
    ScheduleTarget,
    schedule_key,
)
from hostelry.domain.role import role_name_of
from hostelry.messaging.failed_delivery import queue_at
from hostelry.schedules.firing import expression_problem
from hostelry.schedules.targets import TargetError, call_of
from hostelry.store.records import Versioned

PRINCIPAL = "scheduler.amazonaws.com"
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


def create_schedule(context: CallContext, params: Params) -> Result:
    """CreateSchedule; the same call again, with its ClientToken, is answered as before."""
    schedule = schedule_of(context, params)
    key = schedule_key(schedule.group, schedule.name)
    stored = context.state.event_schedules.get(context.scope, key)
    if stored is not None:
        token = params.get("ClientToken")
        if token is None or token != stored.value.given.get("ClientToken"):
            raise conflict(f"Schedule {schedule.name} already exists.")
        return {"ScheduleArn": stored.value.arn}
    context.state.event_schedules.put(context.scope, key, schedule, expect=None)
    return {"ScheduleArn": schedule.arn}


def update_schedule(context: CallContext, params: Params) -> Result:
    """UpdateSchedule: every member is replaced, those that are left out by their defaults."""
    stored = find_schedule(context, params)
    schedule = replace(schedule_of(context, params), created_at=stored.value.created_at)
    key = schedule_key(schedule.group, schedule.name)
    context.state.event_schedules.put(context.scope, key, schedule, expect=stored.version)
    return {"ScheduleArn": schedule.arn}


def get_schedule(context: CallContext, params: Params) -> Result:
    """GetSchedule."""
    schedule = find_schedule(context, params).value
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
        find_group(context, group)
    stored = context.state.event_schedules.list(context.scope)
    found = [schedule.value for schedule in stored if group in (None, schedule.value.group)]
    named = [schedule for schedule in found if schedule.name.startswith(prefix or "")]
    rows = [((schedule.group, schedule.name), summary_of(schedule)) for schedule in named]
    shown, following = page_of(
        PageTokens(context, "ListSchedules", params),
        [row for row in rows if state in (None, row[1]["State"])],
        params.get("MaxResults", DEFAULT_PAGE_SIZE),
    )
    return {"Schedules": shown, **following}


def delete_schedule(context: CallContext, params: Params) -> Result:
    """DeleteSchedule."""
    stored = find_schedule(context, params)
    key = schedule_key(stored.value.group, stored.value.name)
    context.state.event_schedules.delete(context.scope, key, expect=stored.version)
    return {}


def find_schedule(context: CallContext, params: Params) -> Versioned[EventSchedule]:
    """The schedule that a request names; raises ResourceNotFoundException without one."""
    group, name = params.get("GroupName", DEFAULT_GROUP), params["Name"]
    find_group(context, group)
    stored = context.state.event_schedules.get(context.scope, schedule_key(group, name))
    if stored is None:
        raise absent(f"Schedule {name} does not exist.")
    return stored


def schedule_of(context: CallContext, params: Params) -> EventSchedule:
    """The schedule that a request describes, checked."""
    group = params.get("GroupName", DEFAULT_GROUP)
    find_group(context, group)
    if params.get("KmsKeyArn"):
        raise invalid("KmsKeyArn is not supported here: inputs of schedules are not encrypted.")
    expression = params["ScheduleExpression"]
    timezone = params.get("ScheduleExpressionTimezone", "UTC")
    start_at, end_at = params.get("StartDate"), params.get("EndDate")
    problem = expression_problem(expression, timezone, start_at, end_at, context.now)
    if problem is not None:
        raise invalid(problem)
    return EventSchedule(
        scope=context.scope,
        group=group,
        name=params["Name"],
        created_at=context.now,
        modified_at=context.now,
        expression=expression,
        timezone=timezone,
        target=target_of(context, params["Target"]),
        is_enabled=params.get("State", "ENABLED") == "ENABLED",
        start_at=start_at,
        end_at=end_at,
        window_s=window_s_of(params["FlexibleTimeWindow"]),
        deletes_itself=params.get("ActionAfterCompletion") == "DELETE",
        given=dict(params),
    )


def target_of(context: CallContext, given: Params) -> ScheduleTarget:
    """The target, checked: what it calls, its role and its dead-letter queue."""
    for name in TEMPLATES:
        if given.get(name):
            raise invalid(f"Target.{name} is not supported here: leave it out.")
    check_role(context, given["RoleArn"])
    try:
        call_of(given["Arn"], given.get("Input"), "")
    except TargetError as error:
        raise invalid(str(error)) from None
    dead_letters = (given.get("DeadLetterConfig") or {}).get("Arn")
    if dead_letters is not None and queue_at(context.state, dead_letters) is None:
        raise invalid(f"The dead-letter queue {dead_letters} does not exist.")
    policy = given.get("RetryPolicy") or {}
    return ScheduleTarget(
        arn=given["Arn"],
        input=given.get("Input"),
        max_age_s=float(policy.get("MaximumEventAgeInSeconds", MAX_AGE_S)),
        max_retries=policy.get("MaximumRetryAttempts", MAX_RETRIES),
        dead_letter_arn=dead_letters,
    )


def check_role(context: CallContext, arn: str) -> None:
    """Raise ValidationException where Scheduler cannot assume the role."""
    if not context.checks_roles:
        return
    stored = context.state.roles.get(context.scope.account_wide, role_name_of(arn).lower())
    if stored is None or stored.value.arn != arn or not lets_service(stored.value, PRINCIPAL):
        raise invalid(
            "The execution role you provide must allow AWS EventBridge Scheduler to assume the"
            f" role. {arn} is not there, or its trust policy does not allow {PRINCIPAL}."
        )


def window_s_of(given: Params) -> float:
    """The length of a FlexibleTimeWindow in seconds; 0 where it is OFF."""
    minutes = given.get("MaximumWindowInMinutes")
    if given["Mode"] == "OFF":
        if minutes is not None:
            raise invalid("MaximumWindowInMinutes needs FlexibleTimeWindow.Mode FLEXIBLE.")
        return 0.0
    if minutes is None:
        raise invalid("FlexibleTimeWindow.Mode FLEXIBLE needs MaximumWindowInMinutes.")
    return float(minutes * 60)


def summary_of(schedule: EventSchedule) -> Result:
    """A schedule as it is listed."""
    shown: dict[str, Any] = {
        "Arn": schedule.arn,
        "GroupName": schedule.group,
        "Name": schedule.name,
        "State": "ENABLED" if schedule.is_enabled else "DISABLED",
        "CreationDate": schedule.created_at,
        "LastModificationDate": schedule.modified_at,
        "Target": {"Arn": schedule.target.arn},
    }
    return shown
