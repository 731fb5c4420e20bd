"""What placement is asked about one endpoint: its instances, what copies hold, what is wanted."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from hostelry.domain.component import ComponentSpec, ComponentStatus, InferenceComponent
from hostelry.domain.copy import Copy, Instance
from hostelry.domain.endpoint_config import Variant
from hostelry.domain.shape import Shape
from hostelry.placement.pack import place
from hostelry.placement.shortage import too_small
from hostelry.placement.values import Held, Host, Pool, Wanted, WhyNot
from hostelry.reconcile.plan.desired_copies import DesiredCopies, is_moving
from hostelry.reconcile.plan.endpoint_state import EndpointState, PlanContext, is_routable


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    """A copy without a place: for what aim, what placement was asked, and why there is none."""

    aim: DesiredCopies
    wanted: Wanted
    why: WhyNot


def hosts_of(instances: Iterable[Instance]) -> list[Host]:
    """The instances as placement sees them: with their declared shapes."""
    return [
        Host(instance_id=it.id, instance_type=it.instance_type, shape=it.shape, zone=it.zone)
        for it in instances
    ]


def held_on(state: EndpointState, instances: Iterable[Instance]) -> list[Held]:
    """What copies hold of the instances, those on their way out too."""
    copies = [copy for it in instances for copy in state.copies_at(it.id)]
    return [found for found in (_held(state, it) for it in copies) if found is not None]


def _held(state: EndpointState, copy: Copy) -> Held | None:
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
        moved_bytes=_measured_bytes(state, copy) or None,
    )


def _measured_bytes(state: EndpointState, copy: Copy) -> int:
    """The most memory a copy was seen to hold, by its agent now before its record."""
    seen = state.facts_of(copy.instance_id).observation
    known = [copy.status, *(() if seen is None else seen.copies)]
    mine = [it for it in known if it.id == copy.spec.id]
    return max((max(it.memory_bytes, it.peak_memory_bytes) for it in mine), default=0)


def wanted_copy(
    component: InferenceComponent, spec: ComponentSpec, instance_types: Collection[str]
) -> Wanted:
    """A copy of the component as placement is asked for it.

    It may be on the types that have specifications of their own, else on any of `instance_types`.
    """
    names = {it.instance_type for it in spec.by_type} or instance_types
    typed = [(it, spec.on(it)) for it in sorted(names)]
    return Wanted(
        owner=component.name,
        requirements_by_type={name: it.requirements for name, it in typed if it is not None},
        strategy=spec.scheduling.strategy,
        max_imbalance=spec.scheduling.max_imbalance,
    )


def instance_types(variant: Variant, instances: Iterable[Instance]) -> set[str]:
    """The types that the variant's instances have or may have."""
    return {*variant.instance_types, *(it.instance_type for it in instances)}


def pools_of(variant: Variant, shape_of: Callable[[str], Shape]) -> list[Pool]:
    """The types of which instances may be started, the preferred one first."""
    return [Pool(instance_type=it, shape=shape_of(it)) for it in variant.instance_types]


def cannot_ever_fit(
    component: InferenceComponent, variant: Variant, context: PlanContext
) -> str | None:
    """Why a copy of the component fits on no instance of the variant's types; None if it does."""
    assert component.spec is not None, "a base component has a spec"
    wanted = wanted_copy(component, component.spec, variant.instance_types)
    never = too_small(wanted, pools_of(variant, context.shape_of))
    return None if never is None else never.text


def shortage(
    state: EndpointState, component: InferenceComponent, instances: Sequence[Instance]
) -> str | None:
    """Why another copy of the component fits on none of `instances` now; None when one does."""
    assert component.spec is not None, "a base component has a spec"
    types = {it.instance_type for it in instances}
    wanted = wanted_copy(component, component.spec, types)
    why = place([wanted], hosts_of(instances), held_on(state, instances)).first_obstacle
    return None if why is None else why.text
