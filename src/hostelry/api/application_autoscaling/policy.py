"""PutScalingPolicy, DescribeScalingPolicies and DeleteScalingPolicy."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

from hostelry.api.application_autoscaling.page import scaling_page
from hostelry.api.application_autoscaling.policy_configuration import stepping_of, tracking_of
from hostelry.api.application_autoscaling.resource import (
    NAMESPACE,
    dimension_of,
    find_target,
    not_found,
    resource_filter,
)
from hostelry.api.application_autoscaling.tracking_alarm import (
    check_room,
    names_for,
    put_alarms,
)
from hostelry.api.context import CallContext, Params, Result
from hostelry.api.deregistration import delete_policy, drop_alarms, policies_of
from hostelry.base.errors import ServiceError, validation_error
from hostelry.base.ids import new_uuid
from hostelry.domain.alarm import alarm_arn
from hostelry.domain.scaling import ScalableTarget, ScalingPolicy, policy_key
from hostelry.scaling.decide.tracking_alarms import same_metric
from hostelry.store.records import Versioned

MAX_POLICIES = 50  # of a target
PAGE_SIZE = 10
TRACKING, STEPPING, PREDICTIVE = "TargetTrackingScaling", "StepScaling", "PredictiveScaling"
CONFIGURATIONS = {
    TRACKING: "TargetTrackingScalingPolicyConfiguration",
    STEPPING: "StepScalingPolicyConfiguration",
    PREDICTIVE: "PredictiveScalingPolicyConfiguration",
}


def put_scaling_policy(context: CallContext, params: Params) -> Result:
    """PutScalingPolicy: a new policy, or another in its place; its ARN and its alarms stay.

    The record is written before the alarms that it names, so that an interrupted call can
    be repeated and leaves no alarm behind.
    """
    target = find_target(context, params).value
    found = lookup_policy(context, params)
    kind, given = configuration_of(params, found.value if found else None)
    before = new_policy(context, params, target) if found is None else found.value
    policy = replace(
        before,
        tracking=tracking_of(given, target.dimension) if kind == TRACKING else None,
        stepping=stepping_of(given) if kind == STEPPING else None,
        given={CONFIGURATIONS[kind]: given},
    )
    every = (it.value for it in policies_of(context, target.resource_id, target.dimension))
    check_others(policy, [it for it in every if it.name != policy.name])
    if policy.tracking is not None:
        names = names_for(policy.resource_id, policy.tracking, before.alarm_names)
        check_room(context, names)
        policy = replace(policy, alarm_names=names)
    else:
        policy = replace(policy, alarm_names=())
    drop_alarms(context, (it for it in before.alarm_names if it not in policy.alarm_names))
    name = policy_key(policy.resource_id, policy.dimension, policy.name)
    expect = found.version if found else None
    context.state.scaling_policies.put(context.scope, name, policy, expect=expect)
    if policy.tracking is not None:
        put_alarms(context, policy, policy.tracking)
    return {
        "PolicyARN": policy.arn,
        "Alarms": [alarm_members(context, it) for it in policy.alarm_names],
    }


def configuration_of(params: Params, before: ScalingPolicy | None) -> tuple[str, dict[str, Any]]:
    """The policy's type and its configuration; raises ValidationException where they do not fit."""
    kind = params.get("PolicyType") or (type_of(before) if before else None)
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


def type_of(policy: ScalingPolicy) -> str:
    """The PolicyType of a policy."""
    return TRACKING if policy.tracking is not None else STEPPING


def new_policy(context: CallContext, params: Params, target: ScalableTarget) -> ScalingPolicy:
    """A policy under a new name."""
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


def check_others(policy: ScalingPolicy, others: list[ScalingPolicy]) -> None:
    """Refuse too many policies of a target, and two that track one metric."""
    if len(others) >= MAX_POLICIES:
        raise ServiceError(
            "LimitExceededException",
            f"{policy.resource_id} has {len(others)} scaling policies; at most {MAX_POLICIES} are"
            " possible.",
        )
    for other in others:
        if policy.tracking is None or other.tracking is None:
            continue
        if same_metric(policy.tracking, other.tracking, policy.resource_id):
            raise validation_error(
                "Only one TargetTrackingScaling policy for a given metric specification is allowed."
                f' Policy "{other.name}" of {policy.resource_id} tracks this one already.'
            )


def describe_scaling_policies(context: CallContext, params: Params) -> Result:
    """DescribeScalingPolicies: in the order of resource ids and names, ten a page."""
    resource_id, dimension = resource_filter(params)
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
    shown, following = scaling_page(
        context, "DescribeScalingPolicies", params, rows, size=PAGE_SIZE
    )
    alarms = alarms_by_action(context)
    members = [policy_members(context, it, alarms.get(it.arn, ())) for it in shown]
    return {"ScalingPolicies": members, **following}


def alarms_by_action(context: CallContext) -> dict[str, list[str]]:
    """The names of the alarms that trigger a policy, by its ARN."""
    found: dict[str, list[str]] = defaultdict(list)
    for alarm in (it.value for it in context.state.metric_alarms.list(context.scope)):
        actions = (*alarm.actions.alarm, *alarm.actions.ok, *alarm.actions.insufficient_data)
        for action in dict.fromkeys(actions):
            found[action].append(alarm.name)
    return found


def policy_members(context: CallContext, policy: ScalingPolicy, triggering: Any) -> Result:
    """A ScalingPolicy of the answer; a step policy shows the alarms that name it."""
    alarms = policy.alarm_names if policy.tracking is not None else triggering
    return {
        "PolicyARN": policy.arn,
        "PolicyName": policy.name,
        "ServiceNamespace": NAMESPACE,
        "ResourceId": policy.resource_id,
        "ScalableDimension": policy.dimension.value,
        "PolicyType": type_of(policy),
        **policy.given,
        "Alarms": [alarm_members(context, it) for it in alarms],
        "CreationTime": policy.created_at,
    }


def alarm_members(context: CallContext, name: str) -> Result:
    """An Alarm of the answer."""
    return {"AlarmName": name, "AlarmARN": alarm_arn(context.scope, name)}


def delete_scaling_policy(context: CallContext, params: Params) -> Result:
    """DeleteScalingPolicy: with the alarms that it made; a user's own alarms only lose its ARN."""
    found = lookup_policy(context, params)
    if found is None:
        name = f", policy name: {params['PolicyName']}"
        raise not_found("No scaling policy found", params, name)
    delete_policy(context, found)
    return {}


def lookup_policy(context: CallContext, params: Params) -> Versioned[ScalingPolicy] | None:
    """The policy that the request names, or None."""
    dimension = dimension_of(params)
    if dimension is None:
        return None
    name = policy_key(params["ResourceId"], dimension, params["PolicyName"])
    return context.state.scaling_policies.get(context.scope, name)
