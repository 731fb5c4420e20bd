"""Scalable targets: registered, described, deregistered and tagged.

The operations write desired state. The scaler follows the records. It moves a capacity that is
outside of its new bounds to the nearest bound.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from hostelry.api.application_autoscaling.resource import (
    NAMESPACE,
    UNSUPPORTED,
    build_page,
    check_bounds,
    check_resource,
    get_dimension,
    get_max_capacity,
    get_min_capacity,
    get_target,
    not_found,
    parse_resource_filter,
)
from hostelry.api.context import CallContext, Params, Result
from hostelry.api.deregistration import deregister
from hostelry.api.tags import read_tags, remove_tags, write_tags
from hostelry.base.errors import ServiceError, validation_error
from hostelry.base.ids import new_uuid
from hostelry.domain.scaling import Dimension, ScalableTarget, Suspended, target_name
from hostelry.domain.scope import MAX_TAGS, Scope

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
    """RegisterScalableTarget: registers a target, or changes the given fields of one."""
    dimension = get_dimension(params)
    if dimension is None:
        raise validation_error(
            f"{UNSUPPORTED}: {params['ServiceNamespace']}, {params['ScalableDimension']}. Hostelry"
            f" scales {NAMESPACE}: {', '.join(it.value for it in Dimension)}."
        )
    resource_id = params["ResourceId"]
    check_resource(context, resource_id, dimension)
    found = get_target(context, params)
    before = _build_target(context, params, dimension) if found is None else found.value
    target = replace(
        before,
        min_capacity=_get_number(params, "MinCapacity", before.min_capacity),
        max_capacity=_get_number(params, "MaxCapacity", before.max_capacity),
        role_arn=params.get("RoleARN") or before.role_arn,
        suspended=_parse_suspended(params, before.suspended),
    )
    least = get_min_capacity(context, resource_id, dimension)
    most = get_max_capacity(context, resource_id, dimension)
    check_bounds(target.min_capacity, target.max_capacity, dimension, least, most)
    tags = _merge_tags(context, target.arn, params.get("Tags") or {})
    name, expect = target_name(resource_id, dimension), found.version if found else None
    # Written even if nothing changes, so that the scaler checks the capacity again.
    context.state.scalable_targets.put(context.scope, name, target, expect=expect)
    if params.get("Tags"):
        write_tags(context, target.arn, tags)
    return {"ScalableTargetARN": target.arn}


def _build_target(context: CallContext, params: Params, dimension: Dimension) -> ScalableTarget:
    """A new target, for which both bounds are required."""
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
        arn=_new_target_arn(context.scope),
        min_capacity=params["MinCapacity"],
        max_capacity=params["MaxCapacity"],
        role_arn=ROLE.format(account=context.scope.account),
        created_at=context.now,
    )


def _new_target_arn(scope: Scope) -> str:
    """A new ARN in AWS's form."""
    place = f"{scope.region}:{scope.account}"
    unique = new_uuid().replace("-", "")[:30]
    return f"arn:aws:application-autoscaling:{place}:scalable-target/0ec5{unique}"


def _get_number(params: Params, name: str, before: int) -> int:
    given = params.get(name)
    return before if given is None else int(given)


def _parse_suspended(params: Params, before: Suspended) -> Suspended:
    """SuspendedState. Omitted members keep their values."""
    given = params.get("SuspendedState") or {}
    changes = {field: given[name] for name, field in SUSPENSIONS.items() if name in given}
    return replace(before, **changes)


def describe_scalable_targets(context: CallContext, params: Params) -> Result:
    """DescribeScalableTargets: in the order of resource ids."""
    _, dimension = parse_resource_filter(params)
    asked = params.get("ResourceIds")
    rows = [
        ((target.resource_id, target.dimension.value), _describe(target))
        for target in _list_targets(context, params)
        if (not asked or target.resource_id in asked)
        and (params.get("ScalableDimension") is None or target.dimension is dimension)
    ]
    shown, following = build_page(context, "DescribeScalableTargets", params, rows)
    return {"ScalableTargets": shown, **following}


def _list_targets(context: CallContext, params: Params) -> list[ScalableTarget]:
    if params["ServiceNamespace"] != NAMESPACE:
        return []
    return [it.value for it in context.state.scalable_targets.list(context.scope)]


def _describe(target: ScalableTarget) -> Result:
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
    """DeregisterScalableTarget, with its policies, their alarms and its scheduled actions."""
    found = get_target(context, params)
    if found is None:
        raise not_found("No scalable target found", params)
    deregister(context, found)
    return {}


def tag_resource(context: CallContext, params: Params) -> Result:
    """TagResource: adds or overwrites."""
    arn = _find_tagged(context, params["ResourceARN"])
    write_tags(context, arn, _merge_tags(context, arn, params["Tags"]))
    return {}


def untag_resource(context: CallContext, params: Params) -> Result:
    """UntagResource. Missing keys are ignored."""
    arn = _find_tagged(context, params["ResourceARN"])
    remove_tags(context, arn, params["TagKeys"])
    return {}


def list_tags_for_resource(context: CallContext, params: Params) -> Result:
    """ListTagsForResource."""
    return {"Tags": dict(read_tags(context, _find_tagged(context, params["ResourceARN"])))}


def _merge_tags(context: CallContext, arn: str, tags: Mapping[str, str]) -> Mapping[str, str]:
    """The target's tags with `tags` added or overwritten. Raises ServiceError for invalid tags."""
    for key in tags:
        if key.lower().startswith("aws:"):
            raise validation_error(f'Tag key "{key}" begins with "aws:", which is reserved.')
    after = {**read_tags(context, arn), **tags}
    if len(after) > MAX_TAGS:
        raise ServiceError(
            "TooManyTagsException",
            f"{len(after)} tags on {arn}; a scalable target has at most {MAX_TAGS}.",
            members={"ResourceName": arn},
        )
    return after


def _find_tagged(context: CallContext, arn: str) -> str:
    targets = context.state.scalable_targets.list(context.scope)
    if any(it.value.arn == arn for it in targets):
        return arn
    raise ServiceError(
        "ResourceNotFoundException",
        f"No scalable target has the ARN {arn}.",
        members={"ResourceName": arn},
    )
