"""Scaling policies: put, described and deleted. The alarms of target-tracking policies."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from hostelry.api.application_autoscaling.policy_configuration import stepping_of, tracking_of
from hostelry.api.application_autoscaling.resource import (
    NAMESPACE,
    build_page,
    find_target,
    get_dimension,
    not_found,
    parse_resource_filter,
)
from hostelry.api.cloudwatch.alarm import check_number, get_status_after, put_alarm
from hostelry.api.cloudwatch.alarm_describe import describe_rule
from hostelry.api.context import CallContext, Params, Result
from hostelry.api.deregistration import delete_policy, drop_alarms, list_policies
from hostelry.base.errors import ServiceError, validation_error
from hostelry.base.ids import new_uuid
from hostelry.domain.alarm import AlarmActions, MetricAlarm, alarm_arn
from hostelry.domain.scaling import ScalableTarget, ScalingPolicy, TargetTracking, policy_key
from hostelry.domain.scope import Scope
from hostelry.scaling.decide.tracking_alarms import (
    AlarmSide,
    build_alarm_name,
    build_alarm_rule,
    find_alarm_side,
    has_same_metric,
)
from hostelry.store.records import State, Versioned

MAX_POLICIES = 50  # of a target
PAGE_SIZE = 10
TRACKING, STEPPING, PREDICTIVE = "TargetTrackingScaling", "StepScaling", "PredictiveScaling"
CONFIGURATIONS = {
    TRACKING: "TargetTrackingScalingPolicyConfiguration",
    STEPPING: "StepScalingPolicyConfiguration",
    PREDICTIVE: "PredictiveScalingPolicyConfiguration",
}


def put_scaling_policy(context: CallContext, params: Params) -> Result:
    """PutScalingPolicy: makes a policy, or replaces one, which keeps its ARN and its alarms.

    The record is written before the alarms that it names, so that an interrupted call can
    be repeated and leaves no alarm behind.
    """
    target = find_target(context, params).value
    found = _get_policy(context, params)
    kind, given = _parse_configuration(params, found.value if found else None)
    before = _build_policy(context, params, target) if found is None else found.value
    policy = replace(
        before,
        tracking=tracking_of(given, target.dimension) if kind == TRACKING else None,
        stepping=stepping_of(given) if kind == STEPPING else None,
        given={CONFIGURATIONS[kind]: given},
    )
    every = (it.value for it in list_policies(context, target))
    _check_others(policy, [it for it in every if it.name != policy.name])
    if policy.tracking is not None:
        names = _name_alarms(policy.resource_id, policy.tracking, before.alarm_names)
        _check_room(context, names)
        policy = replace(policy, alarm_names=names)
    else:
        policy = replace(policy, alarm_names=())
    drop_alarms(context, (it for it in before.alarm_names if it not in policy.alarm_names))
    name = policy_key(policy.resource_id, policy.dimension, policy.name)
    expect = found.version if found else None
    context.state.scaling_policies.put(context.scope, name, policy, expect=expect)
    if policy.tracking is not None:
        _put_alarms(context, policy, policy.tracking)
    return {
        "PolicyARN": policy.arn,
        "Alarms": [_describe_alarm(context, it) for it in policy.alarm_names],
    }


def _parse_configuration(
    params: Params, before: ScalingPolicy | None
) -> tuple[str, dict[str, Any]]:
    """The policy's type and its configuration. Raises ValidationException if they do not fit."""
    kind = params.get("PolicyType") or (_get_type(before) if before else None)
    if kind is None:
        raise validation_error(
            f'PolicyType is required: there is no scaling policy "{params["PolicyName"]}" yet.'
        )
    if kind == PREDICTIVE:
        raise validation_error(
            f"PolicyType {PREDICTIVE} is not supported for service namespace {NAMESPACE}; use"
            f" {TRACKING}, {STEPPING} or a scheduled action."
        )
    for other, member in CONFIGURATIONS.items():
        if (params.get(member) is not None) != (other == kind):
            what = "is required for" if other == kind else "cannot be given with"
            raise validation_error(f"{member} {what} PolicyType {kind}.")
    return kind, dict(params[CONFIGURATIONS[kind]])


def _get_type(policy: ScalingPolicy) -> str:
    return TRACKING if policy.tracking is not None else STEPPING


def _build_policy(context: CallContext, params: Params, target: ScalableTarget) -> ScalingPolicy:
    name, scope = params["PolicyName"], context.scope
    return ScalingPolicy(
        scope=scope,
        name=name,
        arn=(
            f"arn:aws:autoscaling:{scope.region}:{scope.account}:scalingPolicy:{new_uuid()}"
            f":resource/{NAMESPACE}/{target.resource_id}:policyName/{name}"
        ),
        resource_id=target.resource_id,
        dimension=target.dimension,
        created_at=context.now,
    )


def _check_others(policy: ScalingPolicy, others: list[ScalingPolicy]) -> None:
    """Refuse too many policies of a target, and two policies that track the same metric."""
    if len(others) >= MAX_POLICIES:
        raise ServiceError(
            "LimitExceededException",
            f"{policy.resource_id} has {len(others)} scaling policies; at most {MAX_POLICIES} are"
            " possible.",
        )
    for other in others:
        if policy.tracking is None or other.tracking is None:
            continue
        if has_same_metric(policy.tracking, other.tracking, policy.resource_id):
            raise validation_error(
                "Only one TargetTrackingScaling policy for a given metric specification is allowed."
                f' Policy "{other.name}" of {policy.resource_id} tracks this one already.'
            )


def describe_scaling_policies(context: CallContext, params: Params) -> Result:
    """DescribeScalingPolicies, in the order of resource ids and names, ten per page."""
    resource_id, dimension = parse_resource_filter(params)
    names = params.get("PolicyNames")
    stored = context.state.scaling_policies.list(context.scope)
    rows = [
        ((policy.resource_id, f"{policy.dimension.value}|{policy.name}"), policy)
        for policy in (it.value for it in stored)
        if params["ServiceNamespace"] == NAMESPACE
        and (not names or policy.name in names or policy.arn in names)
        and resource_id in (None, policy.resource_id)
        and (params.get("ScalableDimension") is None or policy.dimension is dimension)
    ]
    shown, following = build_page(context, "DescribeScalingPolicies", params, rows, size=PAGE_SIZE)
    alarms = _map_alarms_by_action(context)
    members = [_describe(context, it, alarms.get(it.arn, ())) for it in shown]
    return {"ScalingPolicies": members, **following}


def _map_alarms_by_action(context: CallContext) -> dict[str, list[str]]:
    """The names of the alarms that trigger a policy, by its ARN."""
    found: dict[str, list[str]] = defaultdict(list)
    for alarm in (it.value for it in context.state.metric_alarms.list(context.scope)):
        actions = (*alarm.actions.alarm, *alarm.actions.ok, *alarm.actions.insufficient_data)
        for action in dict.fromkeys(actions):
            found[action].append(alarm.name)
    return found


def _describe(context: CallContext, policy: ScalingPolicy, triggering: Any) -> Result:
    """A ScalingPolicy of the answer. A step policy shows the alarms that name it."""
    alarms = policy.alarm_names if policy.tracking is not None else triggering
    return {
        "PolicyARN": policy.arn,
        "PolicyName": policy.name,
        "ServiceNamespace": NAMESPACE,
        "ResourceId": policy.resource_id,
        "ScalableDimension": policy.dimension.value,
        "PolicyType": _get_type(policy),
        **policy.given,
        "Alarms": [_describe_alarm(context, it) for it in alarms],
        "CreationTime": policy.created_at,
    }


def _describe_alarm(context: CallContext, name: str) -> Result:
    return {"AlarmName": name, "AlarmARN": alarm_arn(context.scope, name)}


def delete_scaling_policy(context: CallContext, params: Params) -> Result:
    """DeleteScalingPolicy, with the alarms that it made. A user's alarms lose its ARN."""
    found = _get_policy(context, params)
    if found is None:
        name = f", policy name: {params['PolicyName']}"
        raise not_found("No scaling policy found", params, name)
    delete_policy(context, found)
    return {}


def _get_policy(context: CallContext, params: Params) -> Versioned[ScalingPolicy] | None:
    dimension = get_dimension(params)
    if dimension is None:
        return None
    name = policy_key(params["ResourceId"], dimension, params["PolicyName"])
    return context.state.scaling_policies.get(context.scope, name)


def _name_alarms(
    resource_id: str, tracking: TargetTracking, before: Iterable[str]
) -> tuple[str, ...]:
    """The names of the alarms that a policy needs, including those that it has.

    A policy that never scales in has no AlarmLow.
    """
    known = {find_alarm_side(name): name for name in before}
    sides = (AlarmSide.HIGH,) if tracking.disable_scale_in else (AlarmSide.HIGH, AlarmSide.LOW)
    return tuple(known.get(it) or build_alarm_name(resource_id, it, new_uuid()) for it in sides)


def _check_room(context: CallContext, names: Sequence[str]) -> None:
    """Refuse a policy if its alarms would exceed the quota."""
    records = context.state.metric_alarms
    if all(records.get(context.scope, it) is not None for it in names):
        return
    try:
        check_number(len(records.list(context.scope)) + len(names) - 1)
    except ServiceError as error:
        raise ServiceError("LimitExceededException", error.message) from None


def renew_alarms(state: State, context_of: Callable[[Scope], CallContext]) -> None:
    """Write the alarms of policies that are missing or have an outdated rule, in every scope.

    This happens if control died while it wrote a policy, or if it runs with another `pace` now.
    Call this before alarms are watched.
    """
    with state.writing:
        for policy in (it.value for it in state.scaling_policies.list()):
            context = context_of(policy.scope)
            if policy.tracking is not None and _is_stale(context, policy, policy.tracking):
                _put_alarms(context, policy, policy.tracking)


def _is_stale(context: CallContext, policy: ScalingPolicy, tracking: TargetTracking) -> bool:
    """True if one of the policy's alarms is missing, or has an outdated rule."""
    for name in policy.alarm_names:
        side = find_alarm_side(name)
        found = context.state.metric_alarms.get(policy.scope, name)
        if found is None or side is None:
            return True
        if found.value.rule != build_alarm_rule(
            tracking, policy.resource_id, side, pace=context.pace
        ):
            return True
    return False


def _put_alarms(context: CallContext, policy: ScalingPolicy, tracking: TargetTracking) -> None:
    """Write every alarm of `policy`. Existing alarms keep their state."""
    for name in policy.alarm_names:
        side = find_alarm_side(name)
        assert side is not None, "a policy's alarms are named by names_for"
        found = context.state.metric_alarms.get(context.scope, name)
        rule = build_alarm_rule(tracking, policy.resource_id, side, pace=context.pace)
        given = {
            "AlarmName": name,
            "AlarmDescription": (
                f"DO NOT EDIT OR DELETE. For TargetTrackingScaling policy {policy.arn}."
            ),
            "ActionsEnabled": True,
            "AlarmActions": [policy.arn],
            **describe_rule(rule, {}),
        }
        alarm = MetricAlarm(
            scope=context.scope,
            name=name,
            arn=alarm_arn(context.scope, name),
            rule=rule,
            actions=AlarmActions(alarm=(policy.arn,)),
            status=get_status_after(context, found),
            configured_at=context.now,
            owner=policy.arn,
            given={key: value for key, value in given.items() if value is not None},
        )
        put_alarm(context, context.state.metric_alarms, found, alarm, {})
