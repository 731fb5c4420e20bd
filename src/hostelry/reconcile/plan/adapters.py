"""Adapters that the copies of a base must have registered, and the status of their components.

adapter component                               its adapter            the one it replaced
---------------------------------------------   --------------------   ----------------------
Creating, Updating, InService                   registered             registered
Deleting, less than DRAIN_S ago                 registered             registered
Deleting since longer, Failed                   -                      -

status               observed                                     next status
-------------------  -------------------------------------------  --------------------------------
Creating             base gone, or a ready copy refuses it        Failed
Updating             base gone, or a ready copy refuses it        InService, rolled back
Creating, Updating   registered on every ready copy, or the       InService
                     base has no copies and desires none
Creating, Updating   deadline passed                              as if a copy refuses it
InService            a ready copy refuses it                      stays, with a failure reason
Deleting             no copy reports it, or FORGET_S passed       removed
"""

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from hostelry.base.parts import changed_names
from hostelry.domain.component import AdapterSpec, ComponentStatus, InferenceComponent
from hostelry.domain.copy import (
    AdapterPhase,
    AdapterPlacement,
    AdapterStatus,
    Copy,
    CopyPhase,
    CopySpec,
)
from hostelry.reconcile.plan.component_status import find_host_failure, list_active_hosts
from hostelry.reconcile.plan.endpoint_state import (
    DRAIN_S,
    LIVE_COMPONENT,
    EndpointState,
    PlanContext,
)
from hostelry.reconcile.plan.status import (
    build_failure_reason,
    end_failed,
    end_in_service,
    is_overdue,
)


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
        for component in state.list_adapters(base_name)
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
    for component in state.list_adapters(base_name):
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


FORGET_S = 10.0


def list_changing_adapters(state: EndpointState, base_name: str) -> list[InferenceComponent]:
    """The adapters on a base that are not simply in service, or that one of its copies refuses."""
    refused = {
        adapter.id
        for copy in state.list_copies(base_name)
        for adapter in copy.status.adapters
        if adapter.phase is AdapterPhase.FAILED
    }
    return [it for it in state.list_adapters(base_name) if not _is_at_rest(it, refused)]


def _is_at_rest(component: InferenceComponent, refused: Collection[str]) -> bool:
    if component.status is not ComponentStatus.IN_SERVICE or component.adapter is None:
        return False
    if component.previous_adapter is not None:
        return False
    return not refused or build_adapter_id(component.name, component.adapter) not in refused


def plan_adapter(
    state: EndpointState, component: InferenceComponent, context: PlanContext
) -> InferenceComponent | None:
    """The adapter component with its next status. None once it is deleted."""
    adapter = component.adapter
    assert adapter is not None, "an adapter component has an adapter"
    if component.status is ComponentStatus.DELETING:
        return _delete_adapter(state, component, adapter, context)
    if component.status is ComponentStatus.IN_SERVICE:
        return _note_refusal(state, _drop_predecessor(component, context))
    if component.status is ComponentStatus.FAILED:
        return component
    failure = _find_failure(state, component, adapter)
    if failure is None and _is_on_all_copies(state, component, adapter):
        return end_in_service(component, None, context.now)
    if failure is None and is_overdue(component, context.now):
        failure = _describe_missing(state, component, adapter)
    if failure is None:
        return component
    if component.status is ComponentStatus.CREATING:
        return end_failed(component, failure, context.now)
    before = component.previous_adapter or adapter
    back = replace(component, adapter=before, previous_adapter=None)
    return end_in_service(back, failure, context.now)


def _drop_predecessor(component: InferenceComponent, context: PlanContext) -> InferenceComponent:
    """The component without the adapter it replaced, once the routes to that are gone."""
    if component.previous_adapter is None or context.now < get_adapter_end(component):
        return component
    return replace(component, previous_adapter=None)


def _note_refusal(state: EndpointState, component: InferenceComponent) -> InferenceComponent:
    """The component in service, with the reason if a later copy of its base refuses it."""
    assert component.adapter is not None, "an adapter component has an adapter"
    if component.failure_reason is not None:
        return component
    refusal = _find_refusal(state, component, component.adapter)
    if refusal is None:
        return component
    return replace(component, failure_reason=build_failure_reason(refusal))


def _ready_copies(
    state: EndpointState, component: InferenceComponent, base_name: str
) -> list[Copy]:
    copies = state.list_copies_on(list_active_hosts(state, component), base_name)
    return [it for it in copies if it.status.phase is CopyPhase.READY]


def _get_status_on(copy: Copy, registered_id: str) -> AdapterStatus:
    pending = AdapterStatus(id=registered_id, phase=AdapterPhase.PENDING)
    return next((it for it in copy.status.adapters if it.id == registered_id), pending)


def _find_failure(
    state: EndpointState, component: InferenceComponent, adapter: AdapterSpec
) -> str | None:
    """Why the adapter can never be served. None if no observation says so."""
    base = state.components.get(adapter.base_name)
    if base is None:
        return f"Base inference component {adapter.base_name} does not exist any more."
    if base.status not in LIVE_COMPONENT:
        return f"Base inference component {adapter.base_name} is {base.status.value}."
    gone = find_host_failure(state, component)
    if gone is not None:
        return gone
    return _find_refusal(state, component, adapter)


def _find_refusal(
    state: EndpointState, component: InferenceComponent, adapter: AdapterSpec
) -> str | None:
    """The reason of the first copy that refuses the adapter. None if no copy refuses it."""
    registered_id = build_adapter_id(component.name, adapter)
    for copy in _ready_copies(state, component, adapter.base_name):
        status = _get_status_on(copy, registered_id)
        if status.phase is AdapterPhase.FAILED:
            return status.reason or f"copy {copy.spec.id} refused the adapter without a reason"
    return None


def _is_on_all_copies(
    state: EndpointState, component: InferenceComponent, adapter: AdapterSpec
) -> bool:
    registered_id = build_adapter_id(component.name, adapter)
    copies = _ready_copies(state, component, adapter.base_name)
    has_it = [_get_status_on(it, registered_id).phase is AdapterPhase.READY for it in copies]
    base = state.components[adapter.base_name]
    nothing_to_wait_for = base.desired_copies == 0 and not copies
    return nothing_to_wait_for or (bool(has_it) and all(has_it))


def _describe_missing(
    state: EndpointState, component: InferenceComponent, adapter: AdapterSpec
) -> str:
    registered_id = build_adapter_id(component.name, adapter)
    copies = _ready_copies(state, component, adapter.base_name)
    ready = AdapterPhase.READY
    waiting = [it.spec.id for it in copies if _get_status_on(it, registered_id).phase is not ready]
    if not copies:
        return f"Timed out: no copy of the base {adapter.base_name} is ready to take the adapter."
    return f"Timed out: the adapter is not registered on {', '.join(waiting)}."


def _delete_adapter(
    state: EndpointState, component: InferenceComponent, adapter: AdapterSpec, context: PlanContext
) -> InferenceComponent | None:
    """None once no copy reports the adapter, or FORGET_S after they were asked to drop it."""
    leaves_at = get_adapter_end(component)
    if context.now < leaves_at:
        return component
    registered_id = build_adapter_id(component.name, adapter)
    held = any(_is_known(it, registered_id) for it in state.list_copies(adapter.base_name))
    return component if held and context.now < leaves_at + FORGET_S else None


def _is_known(copy: Copy, registered_id: str) -> bool:
    return any(it.id == registered_id for it in copy.status.adapters)
