"""Inputs of placement for one endpoint: its instances, what copies hold, the copies to place."""

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from hostelry.domain.component import ComponentSpec, ComponentStatus, InferenceComponent
from hostelry.domain.copy import Copy, Instance
from hostelry.domain.endpoint_config import Variant
from hostelry.domain.shape import Shape
from hostelry.placement.pack import place
from hostelry.placement.shortage import find_too_small
from hostelry.placement.values import (
    CopyRequest,
    Held,
    Host,
    Obstacle,
    Pool,
    WhyNot,
    format_request,
)
from hostelry.reconcile.plan.desired_copies import DesiredCopies, is_moving
from hostelry.reconcile.plan.endpoint_state import (
    EndpointState,
    PlanContext,
    is_lost,
    is_routable,
)

HOSTS_NAMED = 3


class Unplaced(msgspec.Struct, frozen=True, kw_only=True):
    """A missing copy that fits nowhere: its component, its request, and the reason."""

    desired: DesiredCopies
    request: CopyRequest
    why: WhyNot


def to_hosts(instances: Iterable[Instance]) -> list[Host]:
    """The instances as placement sees them: with their declared shapes."""
    return [
        Host(
            instance_id=instance.id,
            instance_type=instance.instance_type,
            shape=instance.shape,
            zone=instance.zone,
        )
        for instance in instances
    ]


def explain_unable(
    unplaced: Unplaced, state: EndpointState, hosts: Sequence[Instance], now: float
) -> Unplaced:
    """The reason with what keeps copies off the instances, if there are some, but none is able."""
    if unplaced.why.obstacle is not Obstacle.NO_INSTANCE or not hosts or state.able(hosts, now):
        return unplaced
    asked = format_request(unplaced.request.requirements_by_type)
    causes = "; ".join(_describe_unable(state, it, now) for it in hosts[:HOSTS_NAMED])
    return replace(unplaced, why=replace(unplaced.why, text=f"{asked}; {causes}"))


def _describe_unable(state: EndpointState, instance: Instance, now: float) -> str:
    """Why an instance takes no new copies."""
    facts = state.get_facts(instance.id)
    if is_lost(facts, now):
        return f"instance {instance.id} is lost: {facts.problem or 'its agent does not answer'}"
    return f"instance {instance.id} takes no new copies, since it is to be drained"


def get_held(state: EndpointState, instances: Iterable[Instance]) -> list[Held]:
    """Resources that copies hold on the instances. Draining copies count, as they still run."""
    copies = [copy for it in instances for copy in state.list_copies_at(it.id)]
    return [held for held in (_get_held_by(state, it) for it in copies) if held is not None]


def _get_held_by(state: EndpointState, copy: Copy) -> Held | None:
    if copy.spec.requirements is None or copy.component_name is None:
        return None
    component = state.components.get(copy.component_name)
    settled = component is not None and component.status is ComponentStatus.IN_SERVICE
    return Held(
        copy_id=copy.spec.id,
        owner=copy.component_name,
        instance_id=copy.instance_id,
        requirements=copy.spec.requirements,
        device_ids=copy.spec.device_ids,
        movable=settled
        and component is not None
        and not component.pinned
        and is_routable(copy)
        and not is_moving(state, copy),
        leaving=copy.draining,
        moved_bytes=_measure_bytes(state, copy) or None,
    )


def _measure_bytes(state: EndpointState, copy: Copy) -> int:
    """The most memory that the record or the agent's last report shows for a copy."""
    seen = state.get_facts(copy.instance_id).observation
    statuses = [copy.status, *(() if seen is None else seen.copies)]
    mine = [it for it in statuses if it.id == copy.spec.id]
    return max((max(it.memory_bytes, it.peak_memory_bytes) for it in mine), default=0)


def build_copy_request(
    component: InferenceComponent, spec: ComponentSpec, instance_types: Collection[str]
) -> CopyRequest:
    """A request for one copy of the component.

    It may go to the types that have a specification, or to any of `instance_types` without one.
    """
    names = {it.instance_type for it in spec.by_type} or instance_types
    typed = [(it, spec.on(it)) for it in sorted(names)]
    return CopyRequest(
        owner=component.name,
        requirements_by_type={name: it.requirements for name, it in typed if it is not None},
        strategy=spec.scheduling.strategy,
        max_imbalance=spec.scheduling.max_imbalance,
    )


def get_instance_types(variant: Variant, instances: Iterable[Instance]) -> set[str]:
    """Instance types of the variant: those configured, and those that its instances have."""
    return {*variant.instance_types, *(it.instance_type for it in instances)}


def get_pools(variant: Variant, get_shape: Callable[[str], Shape]) -> list[Pool]:
    """Instance types that may be launched, the preferred one first."""
    return [Pool(instance_type=it, shape=get_shape(it)) for it in variant.instance_types]


def find_never_fits(
    component: InferenceComponent, variant: Variant, context: PlanContext
) -> str | None:
    """Why a copy of the component fits on no type of the variant, even empty. None if it does."""
    assert component.spec is not None, "a base component has a spec"
    request = build_copy_request(component, component.spec, variant.instance_types)
    never = find_too_small(request, get_pools(variant, context.get_shape))
    return None if never is None else never.text


def find_shortage(
    state: EndpointState, component: InferenceComponent, instances: Sequence[Instance]
) -> str | None:
    """Why another copy of the component fits on none of `instances` now. None if it does."""
    assert component.spec is not None, "a base component has a spec"
    types = {it.instance_type for it in instances}
    request = build_copy_request(component, component.spec, types)
    why = place([request], to_hosts(instances), get_held(state, instances)).first_obstacle
    return None if why is None else why.text
