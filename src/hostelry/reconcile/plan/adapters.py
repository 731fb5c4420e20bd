"""Adapters that the copies of a base component must have registered, and their ids.

adapter component                               its adapter            the one it replaced
---------------------------------------------   --------------------   ----------------------
Creating, Updating, InService                   registered             registered
Deleting, less than DRAIN_S ago                 registered             registered
Deleting since longer, Failed                   -                      -
"""

from collections.abc import Iterable, Mapping

from hostelry.base.parts import changed_names
from hostelry.domain.component import AdapterSpec, ComponentStatus, InferenceComponent
from hostelry.domain.copy import AdapterPlacement, CopySpec
from hostelry.reconcile.plan.endpoint_state import DRAIN_S, LIVE_COMPONENT, EndpointState


def build_adapter_id(name: str, adapter: AdapterSpec) -> str:
    """The id of an adapter on model servers. An update gives the adapter another id."""
    return f"{name}--g{adapter.generation}"


def parse_component_name(adapter_id: str) -> str:
    """The name of the component whose adapter has that id."""
    return adapter_id.rpartition("--g")[0]


def find_changed_components(
    before: Mapping[str, InferenceComponent],
    components: Mapping[str, InferenceComponent],
    proven_before: Iterable[frozenset[str]],
    proven: Iterable[frozenset[str]],
) -> set[str]:
    """The names of a family's components that changed, or whose adapters moved to other copies.

    `proven_before` and `proven` are the adapter ids on each of the same copies of the base.
    """
    names = changed_names(before, components)
    for old, new in zip(proven_before, proven, strict=True):
        if old is not new:
            names |= {parse_component_name(adapter_id) for adapter_id in old ^ new}
    return names


def list_desired_adapters(
    state: EndpointState, base_name: str, now: float
) -> tuple[AdapterPlacement, ...]:
    """Adapters that every copy of the base must have, in the order of their ids.

    A replaced or deleted adapter stays until the routes that name it are gone.
    """
    desired = [
        _build_placement(component, adapter)
        for component in state.adapters_of(base_name)
        for adapter in _list_desired(component, now)
    ]
    return tuple(sorted(desired, key=lambda it: it.id))


def get_routed_adapter(component: InferenceComponent) -> AdapterSpec | None:
    """The adapter that requests go to. During an update, the previous one."""
    if component.status is ComponentStatus.UPDATING and component.previous_adapter is not None:
        return component.previous_adapter
    return component.adapter


def get_adapter_end(component: InferenceComponent) -> float:
    """The instant from which an adapter without routes may be unregistered."""
    return component.modified_at + DRAIN_S


def is_leaving(component: InferenceComponent) -> bool:
    """Whether an adapter, or the one that it replaced, is to be unregistered in time."""
    is_deleted = component.status is ComponentStatus.DELETING
    return is_deleted or component.previous_adapter is not None


def list_placed_adapters(
    state: EndpointState, base_name: str, copy: CopySpec, now: float
) -> tuple[AdapterPlacement, ...]:
    """As `list_desired_adapters`. The same object as the copy's adapters if they are equal."""
    known, num_same = copy.adapters, 0
    by_id = {it.id: it for it in known}
    for component in state.adapters_of(base_name):
        for adapter in _list_desired(component, now):
            before = by_id.get(build_adapter_id(component.name, adapter))
            if before is None or not _is_placement_for(before, component, adapter):
                return list_desired_adapters(state, base_name, now)
            num_same += 1
    return known if num_same == len(known) else list_desired_adapters(state, base_name, now)


def _is_placement_for(
    placed: AdapterPlacement, component: InferenceComponent, adapter: AdapterSpec
) -> bool:
    return (
        placed.alias == component.name
        and placed.source == adapter.source
        and placed.download_timeout_s == adapter.download_timeout_s
        and placed.startup_timeout_s == adapter.startup_timeout_s
    )


def _list_desired(component: InferenceComponent, now: float) -> list[AdapterSpec]:
    is_leaving = component.status is ComponentStatus.DELETING and now < get_adapter_end(component)
    if component.status not in LIVE_COMPONENT and not is_leaving:
        return []
    return [it for it in (component.adapter, component.previous_adapter) if it is not None]


def _build_placement(component: InferenceComponent, adapter: AdapterSpec) -> AdapterPlacement:
    return AdapterPlacement(
        id=build_adapter_id(component.name, adapter),
        alias=component.name,
        source=adapter.source,
        download_timeout_s=adapter.download_timeout_s,
        startup_timeout_s=adapter.startup_timeout_s,
    )
