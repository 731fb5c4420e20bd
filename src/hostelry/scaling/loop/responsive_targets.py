"""Targets that chose the responsive policy, with their capacity, read from the records."""

from collections.abc import Mapping

import msgspec

from hostelry.domain.hidden_endpoint import is_hidden
from hostelry.domain.load import LoadKey
from hostelry.domain.scaling import Dimension, ScalableTarget, ScalingPolicy
from hostelry.domain.scope import Scope
from hostelry.scaling.decide.decision import Capacity
from hostelry.scaling.decide.responsive.options import (
    RESPONSIVE_TAG,
    ResponsiveOptions,
    choose_options,
    read_tracking,
)
from hostelry.scaling.loop.capacity import build_component_id, build_variant_id
from hostelry.store.records import State

Target = tuple[Scope, str, Dimension]


class ResponsiveTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A target with the responsive policy: its options, its number and its bounds.

    `is_tracked`: one of AWS's target-tracking policies scales it in.
    """

    resource_id: str
    dimension: Dimension
    options: ResponsiveOptions
    capacity: Capacity
    is_tracked: bool


class ResponsiveTargets(msgspec.Struct, frozen=True, kw_only=True):
    """Every target that chose the policy. `refused` says, by ARN, why one cannot have it."""

    watched: Mapping[LoadKey, ResponsiveTarget] = msgspec.field(default_factory=dict)
    refused: Mapping[str, str] = msgspec.field(default_factory=dict)


class _Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that a tag or a policy may choose for. A variant has no `arn` and no tags."""

    key: LoadKey
    arn: str
    endpoint_arn: str
    resource_id: str
    dimension: Dimension
    desired: int


def find_responsive_targets(state: State) -> ResponsiveTargets:
    """Find the targets that are recorded now, in one pass over each kind of record."""
    targets = {_get_place(it.value): it.value for it in state.scalable_targets.list()}
    policies: dict[Target, list[ScalingPolicy]] = {}
    for stored in state.scaling_policies.list():
        policies.setdefault(_get_place(stored.value), []).append(stored.value)
    tags = {it.value.arn: it.value.tags for it in state.tags.list()}
    serving = _count_serving(state)
    watched: dict[LoadKey, ResponsiveTarget] = {}
    refused: dict[str, str] = {}
    heeded: set[str] = set()
    for resource in _list_resources(state):
        key = resource.key
        place = (key.scope, resource.resource_id, resource.dimension)
        mine = policies.get(place, [])
        own, endpoints = tags.get(resource.arn, {}), tags.get(resource.endpoint_arn, {})
        try:
            options = choose_options(own, endpoints, _find_policy_options(mine, key))
        except ValueError as error:
            arn = resource.arn if RESPONSIVE_TAG in own else resource.endpoint_arn
            refused[arn] = f"tag {RESPONSIVE_TAG} cannot be read: {error}"
            continue
        target = targets.get(place)
        if options is None or target is None:
            if options is not None and RESPONSIVE_TAG in own:
                refused[resource.arn] = _describe_unregistered(resource)
            continue
        heeded.add(resource.endpoint_arn)
        watched[key] = ResponsiveTarget(
            resource_id=resource.resource_id,
            dimension=resource.dimension,
            options=options,
            capacity=_get_capacity(resource, target, serving.get(key, 0)),
            is_tracked=any(it.tracking is not None for it in mine),
        )
    for resource in _list_resources(state):
        arn = resource.endpoint_arn
        if RESPONSIVE_TAG in tags.get(arn, {}) and arn not in heeded and arn not in refused:
            refused[arn] = _describe_unregistered(resource)
    return ResponsiveTargets(watched=watched, refused=refused)


def _find_policy_options(policies: list[ScalingPolicy], key: LoadKey) -> ResponsiveOptions | None:
    found = [read_tracking(it.tracking, key) for it in policies if it.tracking is not None]
    return min((it for it in found if it is not None), key=lambda it: it.target, default=None)


def _get_capacity(resource: _Resource, target: ScalableTarget, serving: int) -> Capacity:
    return Capacity(
        desired=resource.desired,
        serving=serving,
        minimum=target.min_capacity,
        maximum=resource.desired if target.suspended.scale_out else target.max_capacity,
    )


def _describe_unregistered(resource: _Resource) -> str:
    return (
        f"nothing is scaled: no scalable target gives the bounds of {resource.resource_id}; "
        f"call RegisterScalableTarget for {resource.dimension.value}"
    )


def _get_place(value: ScalableTarget | ScalingPolicy) -> Target:
    return value.scope, value.resource_id, value.dimension


def _list_resources(state: State) -> list[_Resource]:
    found = []
    endpoint_arns = {}
    for stored in state.endpoints.list():
        endpoint = stored.value
        if is_hidden(endpoint.name):
            continue  # a transform job says how many instances it has
        endpoint_arns[endpoint.scope, endpoint.name] = endpoint.arn
        for variant in endpoint.active.variants:
            if variant.model is None or variant.serverless is not None:
                continue  # load scales its components, or its environments
            name = variant.variant.name
            found.append(
                _Resource(
                    key=LoadKey(
                        scope=endpoint.scope, endpoint_name=endpoint.name, variant_name=name
                    ),
                    arn="",
                    endpoint_arn=endpoint.arn,
                    resource_id=build_variant_id(endpoint.name, name),
                    dimension=Dimension.INSTANCES,
                    desired=variant.desired_instance_count,
                )
            )
    for stored_component in state.components.list():
        component = stored_component.value
        if component.spec is None:
            continue  # an adapter is in its base's copies
        found.append(
            _Resource(
                key=LoadKey(
                    scope=component.scope,
                    endpoint_name=component.endpoint_name,
                    variant_name=component.variant_name,
                    component_name=component.name,
                ),
                arn=component.arn,
                endpoint_arn=endpoint_arns.get((component.scope, component.endpoint_name), ""),
                resource_id=build_component_id(component.name),
                dimension=Dimension.COPIES,
                desired=component.desired_copies,
            )
        )
    return found


def _count_serving(state: State) -> dict[LoadKey, int]:
    """How many copies of each component, or instances of each variant of models, serve."""
    found: dict[LoadKey, set[str]] = {}
    for stored in state.copies.list():
        copy = stored.value
        if copy.serves:
            key = LoadKey(
                scope=copy.scope,
                endpoint_name=copy.endpoint_name,
                variant_name=copy.variant_name,
                component_name=copy.component_name,
            )
            place = copy.instance_id if copy.component_name is None else copy.spec.id
            found.setdefault(key, set()).add(place)
    return {key: len(places) for key, places in found.items()}
