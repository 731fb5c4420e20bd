"""Census of what is in service, from the records and the agents' last reports."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from hostelry.domain.component import ComponentSpec, InferenceComponent
from hostelry.domain.container_copies import complete_sets
from hostelry.domain.copy import Copy, CopyStatus, Instance, InstanceState
from hostelry.domain.endpoint import Deployment, Endpoint, EndpointVariant
from hostelry.domain.load import LoadKey
from hostelry.domain.serverless import ServerlessConfig
from hostelry.domain.transform_job import is_hidden
from hostelry.metrics.sagemaker.census import (
    Census,
    ComponentCensus,
    CopyUsage,
    InstanceCapacity,
    Resources,
    VariantCensus,
)
from hostelry.reconcile.plan.adapters import adapter_id, routed_adapter
from hostelry.reconcile.plan.endpoint_state import (
    LIVE_COMPONENT,
    NOTHING_KNOWN,
    SERVING_ENDPOINT,
    EndpointState,
    InstanceFacts,
    is_routable,
)

Statuses = Mapping[str, CopyStatus]


def take_census(
    states: Iterable[EndpointState],
    facts: Mapping[str, InstanceFacts],
    disk_use: float | None = None,
) -> Census:
    """The census of every variant and component of the endpoints that serve.

    Those of transform jobs are by themselves, since no request of a client reaches them.
    `facts` has the agents' reports, which are newer than the records for values that change often.
    """
    variants: dict[LoadKey, VariantCensus] = {}
    components: dict[LoadKey, ComponentCensus] = {}
    transforms: dict[LoadKey, VariantCensus] = {}
    for state in states:
        endpoint = state.endpoint
        if endpoint is None or endpoint.status not in SERVING_ENDPOINT:
            continue
        statuses = _statuses(state, facts)
        mine = transforms if is_hidden(endpoint.name) else variants
        mine.update((it.key, it) for it in _variants(state, endpoint, statuses))
        components.update((it.key, it) for it in _components(state, endpoint, statuses))
    return Census(
        variants=variants, components=components, transforms=transforms, disk_use=disk_use
    )


def _statuses(state: EndpointState, facts: Mapping[str, InstanceFacts]) -> Statuses:
    """The newest status of each copy that an agent reported."""
    found = {}
    for instance_id in state.instances:
        observation = facts.get(instance_id, NOTHING_KNOWN).observation
        if observation is not None:
            found.update({it.id: it for it in observation.copies})
    return found


def _variants(
    state: EndpointState, endpoint: Endpoint, statuses: Statuses
) -> Iterable[VariantCensus]:
    """Each variant's fleet; while traffic shifts, the fleets of both deployments together."""
    active, coming = endpoint.active, endpoint.pending
    found = {it.variant.name: _fleet(state, active, it, statuses) for it in active.variants}
    if coming is None or endpoint.shift is None:
        return found.values()
    for wanted in coming.production:
        name, new = wanted.variant.name, _fleet(state, coming, wanted, statuses)
        found[name] = _both(found[name], new) if name in found else new
    return found.values()


def _fleet(
    state: EndpointState, deployment: Deployment, wanted: EndpointVariant, statuses: Statuses
) -> VariantCensus:
    """A variant as far as a deployment's instances serve it."""
    endpoint, config, variant = state.endpoint, deployment.config, wanted.variant
    assert endpoint is not None, "only an endpoint has variants"
    hosts = state.hosts(deployment.generation, variant.name)
    running = [it for it in hosts if it.state is InstanceState.RUNNING]
    copies = {it.id: [c for c in state.copies_at(it.id) if is_routable(c)] for it in running}
    serving = [it for it in running if _serves(wanted, it, copies[it.id])]
    rooms = [_capacity(it, copies[it.id], wanted.serverless) for it in serving]
    return VariantCensus(
        key=LoadKey(scope=endpoint.scope, endpoint_name=endpoint.name, variant_name=variant.name),
        config_name=config.name,
        takes_components=endpoint.takes_components,
        instances=tuple(replace(it, config_name=config.name) for it in rooms),
        copies=tuple(_use(c, it, statuses) for it in serving for c in copies[it.id]),
        metrics=config.metrics,
        pools=variant.instance_types if variant.pools else (),
        is_async=config.async_inference is not None,
        serverless=wanted.serverless,
    )


def _both(old: VariantCensus, new: VariantCensus) -> VariantCensus:
    """A variant with both fleets, and the settings of the old one."""
    return replace(
        old,
        instances=(*old.instances, *new.instances),
        copies=(*old.copies, *new.copies),
        pools=tuple(dict.fromkeys((*old.pools, *new.pools))),
        new_config_name=new.config_name,
    )


def _serves(wanted: EndpointVariant, instance: Instance, ready: Sequence[Copy]) -> bool:
    """Whether an instance takes requests: containers that requests name do so one by one."""
    model = wanted.model_on(instance.instance_type)
    if model is None:
        return True
    return bool(ready if model.is_direct else complete_sets(wanted, [instance], ready))


def _capacity(
    instance: Instance, copies: Sequence[Copy], serverless: ServerlessConfig | None
) -> InstanceCapacity:
    """What an instance has; that of environments is the memory of those that run."""
    reserved = [it.spec.requirements for it in copies if it.spec.requirements is not None]
    return InstanceCapacity(
        id=instance.id,
        shape=_shape(instance)
        if serverless is None
        else Resources(
            cpus=instance.shape.cpus,
            memory_bytes=serverless.environment.min_memory_bytes * len(copies),
        ),
        instance_type=instance.instance_type,
        reserved=Resources(
            cpus=sum(it.cpus for it in reserved),
            memory_bytes=sum(it.min_memory_bytes for it in reserved),
            accelerators=sum(it.accelerators for it in reserved),
        ),
    )


def _components(
    state: EndpointState, endpoint: Endpoint, statuses: Statuses
) -> Iterator[ComponentCensus]:
    bases: dict[str, ComponentCensus] = {}
    serving: dict[str, list[tuple[Copy, CopyUsage]]] = {}
    for base in state.components.values():
        if base.spec is not None:
            serving[base.name] = _serving(state, endpoint, base, statuses)
            bases[base.name] = _base_census(endpoint, base, base.spec, serving[base.name])
    for component in state.components.values():
        adapter = routed_adapter(component)
        base_name = component.name if adapter is None else adapter.base_name
        if base_name not in bases or component.status not in LIVE_COMPONENT:
            continue
        mine = bases[base_name]
        if adapter is not None:
            routed_id = adapter_id(component.name, adapter)
            proven = [use for it, use in serving[base_name] if routed_id in it.proven_adapters]
            mine = ComponentCensus(
                key=_component_key(endpoint, state.components[base_name], component.name),
                num_copies=len(proven),
                base=mine.key,
                reserved=mine.reserved,
                copies=tuple(proven),
            )
        yield mine


def _serving(
    state: EndpointState, endpoint: Endpoint, base: InferenceComponent, statuses: Statuses
) -> list[tuple[Copy, CopyUsage]]:
    """The copies of a base that serve, and what each uses."""
    hosts = state.hosts(endpoint.active.generation, base.variant_name)
    copies = [it for it in state.copies_on(hosts, base.name) if is_routable(it)]
    return [(it, _use(it, state.instances[it.instance_id], statuses)) for it in copies]


def _base_census(
    endpoint: Endpoint,
    base: InferenceComponent,
    spec: ComponentSpec,
    serving: Sequence[tuple[Copy, CopyUsage]],
) -> ComponentCensus:
    needs = spec.requirements
    return ComponentCensus(
        key=_component_key(endpoint, base, base.name),
        num_copies=len(serving),
        base=None,
        reserved=Resources(
            cpus=needs.cpus,
            memory_bytes=needs.min_memory_bytes,
            accelerators=needs.accelerators,
        ),
        copies=tuple(use for _, use in serving),
    )


def _component_key(endpoint: Endpoint, base: InferenceComponent, name: str) -> LoadKey:
    return LoadKey(
        scope=endpoint.scope,
        endpoint_name=endpoint.name,
        variant_name=base.variant_name,
        component_name=name,
    )


def _shape(instance: Instance) -> Resources:
    shape = instance.shape
    return Resources(
        cpus=shape.cpus, memory_bytes=shape.memory_bytes, accelerators=shape.accelerators
    )


def _use(copy: Copy, instance: Instance, statuses: Statuses) -> CopyUsage:
    seen = statuses.get(copy.spec.id)
    status = seen or copy.status
    return CopyUsage(
        copy_id=copy.spec.id,
        instance_id=copy.instance_id,
        instance_type=instance.instance_type,
        limit=_shape(instance),
        cpu_s=seen.cpu_s if seen is not None and seen.cpu_at else None,
        cpu_at=status.cpu_at,
        memory_bytes=status.memory_bytes or None,
        gpus=() if seen is None else seen.gpus,
        loaded_models=None if seen is None else seen.loaded_models,
        setup=None if status.start_s is None else (status.restarts, status.start_s),
    )
