"""PutScheduledAction, DescribeScheduledActions and DeleteScheduledAction."""

from msgspec.structs import replace

from hostelry.api.application_autoscaling.resource import (
    NAMESPACE,
    build_page,
    check_bounds,
    find_target,
    get_dimension,
    get_max_capacity,
    get_min_capacity,
    not_found,
    parse_resource_filter,
)
from hostelry.api.context import CallContext, Params, Result
from hostelry.api.deregistration import delete_action, list_actions
from hostelry.base.errors import ServiceError, validation_error
from hostelry.base.ids import new_uuid
from hostelry.domain.scaling import ScalableTarget, ScheduledAction, policy_key
from hostelry.scaling.decide.schedule import find_next_due, get_time_zone, parse_schedule
from hostelry.store.records import Versioned

MAX_ACTIONS = 200  # of a target


def put_scheduled_action(context: CallContext, params: Params) -> Result:
    """PutScheduledAction: makes an action, or changes the given fields of an existing action.

    Omitted times are deleted. A schedule that would never fire again is refused. AWS accepts such a
    schedule and does nothing.
    """
    target = find_target(context, params).value
    found = _get_action(context, params)
    if found is None:
        _check_number(context, target)
    before = _build_action(context, params, target) if found is None else found.value
    bounds = params.get("ScalableTargetAction") or {}
    action = replace(
        before,
        schedule=params.get("Schedule") or before.schedule,
        timezone=params.get("Timezone") or before.timezone,
        start_at=params.get("StartTime"),
        end_at=params.get("EndTime"),
        min_capacity=bounds.get("MinCapacity") if bounds else before.min_capacity,
        max_capacity=bounds.get("MaxCapacity") if bounds else before.max_capacity,
    )
    place = (action.resource_id, action.dimension)
    _check_action(action, get_min_capacity(context, *place), get_max_capacity(context, *place))
    if found is None or _get_firing_fields(action) != _get_firing_fields(found.value):
        # Past times of the new schedule do not fire.
        action = replace(action, fired_at=None if found is None else context.now)
        _check_fires(action, context.now)
    name = policy_key(action.resource_id, action.dimension, action.name)
    expect = found.version if found else None
    context.state.scheduled_actions.put(context.scope, name, action, expect=expect)
    return {}


def _build_action(context: CallContext, params: Params, target: ScalableTarget) -> ScheduledAction:
    if not params.get("Schedule"):
        raise validation_error(
            f"Schedule is required: there is no scheduled action"
            f' "{params["ScheduledActionName"]}" yet.'
        )
    name, scope = params["ScheduledActionName"], context.scope
    return ScheduledAction(
        scope=scope,
        name=name,
        arn=(
            f"arn:aws:autoscaling:{scope.region}:{scope.account}:scheduledAction:{new_uuid()}"
            f":resource/{NAMESPACE}/{target.resource_id}:scheduledActionName/{name}"
        ),
        resource_id=target.resource_id,
        dimension=target.dimension,
        schedule=params["Schedule"],
        timezone="UTC",
        created_at=context.now,
    )


def _get_firing_fields(action: ScheduledAction) -> tuple[object, ...]:
    return action.schedule, action.timezone, action.start_at, action.end_at


def _check_action(action: ScheduledAction, least: int, most: int) -> None:
    """Refuse an invalid schedule, time zone, interval or bounds."""
    try:
        parse_schedule(action.schedule)
    except ValueError as error:
        raise validation_error(f"Schedule {action.schedule!r} is not valid: {error}.") from None
    try:
        get_time_zone(action.timezone)
    except ValueError as error:
        raise validation_error(f"Timezone {error}.") from None
    start, end = action.start_at, action.end_at
    if start is not None and end is not None and start >= end:
        raise validation_error("StartTime must be before EndTime.")
    low, high = action.min_capacity, action.max_capacity
    if low is None and high is None:
        raise validation_error(
            "ScalableTargetAction is required, with MinCapacity, MaxCapacity or both."
        )
    low = least if low is None else low
    check_bounds(low, low if high is None else high, action.dimension, least, most)


def _check_fires(action: ScheduledAction, now: float) -> None:
    """Refuse a schedule that never fires again."""
    if find_next_due(action, now) is None:
        raise validation_error(
            f"Schedule {action.schedule!r} in {action.timezone} would not fire any more between now"
            " (or StartTime) and EndTime."
        )


def _check_number(context: CallContext, target: ScalableTarget) -> None:
    num = len(list_actions(context, target))
    if num >= MAX_ACTIONS:
        raise ServiceError(
            "LimitExceededException",
            f"{target.resource_id} has {num} scheduled actions; at most {MAX_ACTIONS} are"
            " possible.",
        )


def describe_scheduled_actions(context: CallContext, params: Params) -> Result:
    """DescribeScheduledActions, in the order of resource ids and names."""
    resource_id, dimension = parse_resource_filter(params)
    names = params.get("ScheduledActionNames")
    stored = context.state.scheduled_actions.list(context.scope)
    rows = [
        ((action.resource_id, f"{action.dimension.value}|{action.name}"), _describe(action))
        for action in (it.value for it in stored)
        if params["ServiceNamespace"] == NAMESPACE
        and (not names or action.name in names)
        and resource_id in (None, action.resource_id)
        and (params.get("ScalableDimension") is None or action.dimension is dimension)
    ]
    shown, following = build_page(context, "DescribeScheduledActions", params, rows)
    return {"ScheduledActions": shown, **following}


def _describe(action: ScheduledAction) -> Result:
    bounds = {"MinCapacity": action.min_capacity, "MaxCapacity": action.max_capacity}
    times = {"StartTime": action.start_at, "EndTime": action.end_at}
    return {
        "ScheduledActionName": action.name,
        "ScheduledActionARN": action.arn,
        "ServiceNamespace": NAMESPACE,
        "Schedule": action.schedule,
        "Timezone": action.timezone,
        "ResourceId": action.resource_id,
        "ScalableDimension": action.dimension.value,
        "ScalableTargetAction": {key: it for key, it in bounds.items() if it is not None},
        "CreationTime": action.created_at,
        **{key: it for key, it in times.items() if it is not None},
    }


def delete_scheduled_action(context: CallContext, params: Params) -> Result:
    """DeleteScheduledAction."""
    found = _get_action(context, params)
    if found is None:
        name = f", scheduled action name: {params['ScheduledActionName']}"
        raise not_found("No scheduled action found", params, name)
    delete_action(context, found)
    return {}


def _get_action(context: CallContext, params: Params) -> Versioned[ScheduledAction] | None:
    dimension = get_dimension(params)
    if dimension is None:
        return None
    name = policy_key(params["ResourceId"], dimension, params["ScheduledActionName"])
    return context.state.scheduled_actions.get(context.scope, name)
