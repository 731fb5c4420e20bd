"""Which adapters a base component's copies must have registered, and under which id."""

from hostelry.domain.component import AdapterSpec, ComponentStatus, InferenceComponent
from hostelry.domain.copy import AdapterPlacement
from hostelry.reconcile.plan.endpoint_state import DRAIN_S, LIVE_COMPONENT, EndpointState


def adapter_id(name: str, adapter: AdapterSpec) -> str:
    """The name a model server knows an adapter by; a replaced one never shares it."""
    return f"{name}--g{adapter.generation}"


def wanted_adapters(
    state: EndpointState, base_name: str, now: float
) -> tuple[AdapterPlacement, ...]:
    """Adapters that every copy of the base must have, by id.

    One that is updated stays beside its successor, and one that is deleted stays a moment, until
    the routes that name it have gone.
    """
    wanted = [
        _placement(component, adapter)
        for component in state.adapters_of(base_name)
        for adapter in _wanted_of(component, now)
    ]
    return tuple(sorted(wanted, key=lambda it: it.id))


def routed_adapter(component: InferenceComponent) -> AdapterSpec | None:
    """The adapter that requests go to: during an update, the one before it."""
    if component.status is ComponentStatus.UPDATING and component.previous_adapter is not None:
        return component.previous_adapter
    return component.adapter


def adapter_leaves_at(component: InferenceComponent) -> float:
    """When an adapter that lost its routes may be unregistered."""
    return component.modified_at + DRAIN_S


def _wanted_of(component: InferenceComponent, now: float) -> list[AdapterSpec]:
    adapter, previous = component.adapter, component.previous_adapter
    if component.status is ComponentStatus.DELETING:
        kept = [adapter, previous] if now < adapter_leaves_at(component) else []
    elif component.status in LIVE_COMPONENT:
        kept = [adapter, previous]
    else:
        kept = []
    return [it for it in kept if it is not None]


def _placement(component: InferenceComponent, adapter: AdapterSpec) -> AdapterPlacement:
    return AdapterPlacement(
        id=adapter_id(component.name, adapter), alias=component.name, source=adapter.source
    )
