"""DescribeScalingActivities."""

from hostelry.api.application_autoscaling.resource import (
    NAMESPACE,
    build_page,
    parse_resource_filter,
)
from hostelry.api.context import CallContext, Params, Result
from hostelry.domain.scaling import NotScaled, ScalingActivity

HISTORY_S = 6 * 7 * 86_400.0


def describe_scaling_activities(context: CallContext, params: Params) -> Result:
    """DescribeScalingActivities: the activities of the last six weeks, newest first.

    They include activities of deleted resources. With IncludeNotScaledActivities they also include
    activities that changed nothing.
    """
    resource_id, dimension = parse_resource_filter(params)
    rows = [
        ((activity.started_at, activity.id), activity_members(activity))
        for activity in activities_of(context, params)
        if resource_id in (None, activity.resource_id)
        and (params.get("ScalableDimension") is None or activity.dimension is dimension)
    ]
    shown, following = build_page(
        context, "DescribeScalingActivities", params, rows, descending=True
    )
    return {"ScalingActivities": shown, **following}


def activities_of(context: CallContext, params: Params) -> list[ScalingActivity]:
    """Find the activities that the request asks for."""
    if params["ServiceNamespace"] != NAMESPACE:
        return []
    stored = context.state.scaling_activities.list(context.scope)
    return [
        activity
        for activity in (it.value for it in stored)
        if activity.started_at > context.now - HISTORY_S
        and (params.get("IncludeNotScaledActivities") or not activity.not_scaled)
    ]


def activity_members(activity: ScalingActivity) -> Result:
    """A ScalingActivity of the answer."""
    optional: Result = {
        "EndTime": activity.ended_at,
        "StatusMessage": activity.status_message or None,
        "Details": activity.details or None,
        "NotScaledReasons": [reason_members(it) for it in activity.not_scaled] or None,
    }
    return {
        "ActivityId": activity.id,
        "ServiceNamespace": NAMESPACE,
        "ResourceId": activity.resource_id,
        "ScalableDimension": activity.dimension.value,
        "Description": activity.description,
        "Cause": activity.cause,
        "StartTime": activity.started_at,
        "StatusCode": activity.status.value,
        **{name: value for name, value in optional.items() if value is not None},
    }


def reason_members(reason: NotScaled) -> Result:
    """A NotScaledReason of the answer."""
    numbers = {
        "MaxCapacity": reason.max_capacity,
        "MinCapacity": reason.min_capacity,
        "CurrentCapacity": reason.current_capacity,
    }
    given = {name: value for name, value in numbers.items() if value is not None}
    return {"Code": reason.code, **given}
