"""RegisterScalableTarget, DescribeScalableTargets and DeregisterScalableTarget.

These write desired state. The scaler follows the records, and moves a capacity that is outside of
its new bounds inside.
"""

from dataclasses import replace

from hostelry.api.application_autoscaling.page import scaling_page
from hostelry.api.application_autoscaling.resource import (
    NAMESPACE,
    UNSUPPORTED,
    check_bounds,
    check_resource,
    dimension_of,
    least_capacity,
    lookup_target,
    most_capacity,
    not_found,
    resource_filter,
)
from hostelry.api.application_autoscaling.tag import tags_with
from hostelry.api.context import CallContext, Params, Result
from hostelry.api.deregistration import deregister
from hostelry.api.tags import write_tags
from hostelry.base.errors import validation_error
from hostelry.base.ids import new_uuid
from hostelry.domain.scaling import Dimension, ScalableTarget, Suspended, target_name
from hostelry.domain.scope import Scope

ROLE = (
    "arn:aws:iam::{account}:role/aws-service-role/sagemaker.application-autoscaling.amazonaws.com/"
    "AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint"
)
SUSPENSIONS = {
    "DynamicScalingInSuspended": "scale_in",
    "DynamicScalingOutSuspended": "scale_out",
    "ScheduledScalingSuspended": "scheduled",
}


def register_scalable_target(context: CallContext, params: Params) -> Result:
    """RegisterScalableTarget: a new target, or the given fields of one that is registered."""
    dimension = dimension_of(params)
    if dimension is None:
        raise validation_error(
            f"{UNSUPPORTED}: {params['ServiceNamespace']}, {params['ScalableDimension']}. Hostelry"
            f" scales {NAMESPACE}: {', '.join(it.value for it in Dimension)}."
        )
    resource_id = params["ResourceId"]
    check_resource(context, resource_id, dimension)
    found = lookup_target(context, params)
    before = new_target(context, params, dimension) if found is None else found.value
    target = replace(
        before,
        min_capacity=given_or(params, "MinCapacity", before.min_capacity),
        max_capacity=given_or(params, "MaxCapacity", before.max_capacity),
        role_arn=params.get("RoleARN") or before.role_arn,
        suspended=suspended_of(params, before.suspended),
    )
    least = least_capacity(context, resource_id, dimension)
    most = most_capacity(context, resource_id, dimension)
    check_bounds(target.min_capacity, target.max_capacity, dimension, least, most)
    tags = tags_with(context, target.arn, params.get("Tags") or {})
    name, expect = target_name(resource_id, dimension), found.version if found else None
    # Written even where nothing changes: the scaler then checks the capacity again.
    context.state.scalable_targets.put(context.scope, name, target, expect=expect)
    if params.get("Tags"):
        write_tags(context, target.arn, tags)
    return {"ScalableTargetARN": target.arn}


def new_target(context: CallContext, params: Params, dimension: Dimension) -> ScalableTarget:
    """A target that is not registered yet, for which both bounds are required."""
    for name in ("MinCapacity", "MaxCapacity"):
        if params.get(name) is None:
            raise validation_error(
                f"{name} is required: {params['ResourceId']} is not yet registered with"
                f" {dimension.value}."
            )
    return ScalableTarget(
        scope=context.scope,
        resource_id=params["ResourceId"],
        dimension=dimension,
        arn=target_arn(context.scope),
        min_capacity=params["MinCapacity"],
        max_capacity=params["MaxCapacity"],
        role_arn=ROLE.format(account=context.scope.account),
        created_at=context.now,
    )


def target_arn(scope: Scope) -> str:
    """A new target's ARN, of the form that AWS gives them."""
    place = f"{scope.region}:{scope.account}"
    unique = new_uuid().replace("-", "")[:30]
    return f"arn:aws:application-autoscaling:{place}:scalable-target/0ec5{unique}"


def given_or(params: Params, name: str, before: int) -> int:
    """A number of the request, or the one before."""
    given = params.get(name)
    return before if given is None else int(given)


def suspended_of(params: Params, before: Suspended) -> Suspended:
    """SuspendedState; what is not given keeps its value."""
    given = params.get("SuspendedState") or {}
    changes = {field: given[name] for name, field in SUSPENSIONS.items() if name in given}
    return replace(before, **changes)


def describe_scalable_targets(context: CallContext, params: Params) -> Result:
    """DescribeScalableTargets: in the order of resource ids."""
    _, dimension = resource_filter(params)
    asked = params.get("ResourceIds")
    rows = [
        ((target.resource_id, target.dimension.value), target_members(target))
        for target in targets_of(context, params)
        if (not asked or target.resource_id in asked)
        and (params.get("ScalableDimension") is None or target.dimension is dimension)
    ]
    shown, following = scaling_page(context, "DescribeScalableTargets", params, rows)
    return {"ScalableTargets": shown, **following}


def targets_of(context: CallContext, params: Params) -> list[ScalableTarget]:
    """Every target of the requested service namespace."""
    if params["ServiceNamespace"] != NAMESPACE:
        return []
    return [it.value for it in context.state.scalable_targets.list(context.scope)]


def target_members(target: ScalableTarget) -> Result:
    """A ScalableTarget of the answer."""
    return {
        "ServiceNamespace": NAMESPACE,
        "ResourceId": target.resource_id,
        "ScalableDimension": target.dimension.value,
        "MinCapacity": target.min_capacity,
        "MaxCapacity": target.max_capacity,
        "RoleARN": target.role_arn,
        "CreationTime": target.created_at,
        "SuspendedState": {
            name: getattr(target.suspended, field) for name, field in SUSPENSIONS.items()
        },
        "ScalableTargetARN": target.arn,
    }


def deregister_scalable_target(context: CallContext, params: Params) -> Result:
    """DeregisterScalableTarget: with its policies, their alarms and its scheduled actions."""
    found = lookup_target(context, params)
    if found is None:
        raise not_found("No scalable target found", params)
    deregister(context, found)
    return {}
