"""Census of what is in service, from the records and the agents' last reports."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hostelry.domain.component import ComponentSpec, InferenceComponent
from hostelry.domain.container_copies import complete_sets
from hostelry.domain.copy import Copy, CopyStatus, Instance, InstanceState
from hostelry.domain.endpoint import Deployment, Endpoint, EndpointVariant
from hostelry.domain.load import LoadKey
from hostelry.domain.scope import Scope
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
Seen = Sequence[object]  # what agents reported, to be compared by identity
Made = Mapping[str, "tuple[InferenceComponent, _Serving, ComponentCensus]"]


def take_census(
    states: Iterable[EndpointState],
    facts: Mapping[str, InstanceFacts],
    disk_use: float | None = None,
) -> Census:
    """The census that a `CensusCounter` takes, all of it computed."""
    return CensusCounter().take(states, facts, disk_use)


@dataclass(frozen=True, slots=True)
class _Serving:
    """A base component with its copies that serve, what each uses, and the census of it."""

    component: InferenceComponent
    copies: Sequence[Copy]
    seen: Seen
    uses: Sequence[CopyUsage]
    census: ComponentCensus

    def is_of(self, component: InferenceComponent, copies: Sequence[Copy], seen: Seen) -> bool:
        """Whether it is of these objects."""
        return (
            self.component is component
            and len(self.copies) == len(copies)
            and all(map(operator.is_, self.copies, copies))
            and all(map(operator.is_, self.seen, seen))
        )


@dataclass(frozen=True, slots=True)
class _CountedEndpoint:
    """An endpoint's census, and the objects that it is of."""

    state: EndpointState
    seen: Seen
    variants: Mapping[LoadKey, VariantCensus]
    components: Mapping[LoadKey, ComponentCensus]
    bases: Mapping[str, _Serving]
    made: Made

    def is_of(self, state: EndpointState, seen: Seen) -> bool:
        """Whether it is of these objects."""
        return (
            self.has_fleet_of(state)
            and self.state.components is state.components
            and self.state.copies is state.copies
            and len(self.seen) == len(seen)
            and all(map(operator.is_, self.seen, seen))
        )

    def has_fleet_of(self, state: EndpointState) -> bool:
        """Whether it is of this endpoint's instances."""
        known = self.state
        return known.endpoint is state.endpoint and known.instances is state.instances


class CensusCounter:
    """Takes censuses; each costs as much as has changed since the one before."""

    def __init__(self) -> None:
        self._counted: dict[tuple[Scope, str], _CountedEndpoint] = {}

    def take(
        self,
        states: Iterable[EndpointState],
        facts: Mapping[str, InstanceFacts],
        disk_use: float | None = None,
    ) -> Census:
        """The census of every variant and component of the endpoints that serve.

        Those of transform jobs are by themselves, since no request of a client reaches them.
        `facts` has the agents' reports, which are newer than the records for values that change
        often.
        """
        variants: dict[LoadKey, VariantCensus] = {}
        components: dict[LoadKey, ComponentCensus] = {}
        transforms: dict[LoadKey, VariantCensus] = {}
        counted: dict[tuple[Scope, str], _CountedEndpoint] = {}
        for state in states:
            endpoint = state.endpoint
            if endpoint is None or endpoint.status not in SERVING_ENDPOINT:
                continue
            address = endpoint.scope, endpoint.name
            found = _counted(state, endpoint, facts, self._counted.get(address))
            counted[address] = found
            (transforms if is_hidden(endpoint.name) else variants).update(found.variants)
            components.update(found.components)
        self._counted = counted
        return Census(
            variants=variants, components=components, transforms=transforms, disk_use=disk_use
        )


def _counted(
    state: EndpointState,
    endpoint: Endpoint,
    facts: Mapping[str, InstanceFacts],
    before: _CountedEndpoint | None,
) -> _CountedEndpoint:
    """An endpoint's census; parts of `before` where they are of the same objects."""
    seen = [facts.get(it, NOTHING_KNOWN).observation for it in state.instances]
    if before is not None and before.is_of(state, seen):
        return before
    if before is not None and not before.has_fleet_of(state):
        before = None
    statuses = {it.id: it for one in seen if one is not None for it in one.copies}
    bases = _bases(state, endpoint, statuses, {} if before is None else before.bases)
    made = _components(state, endpoint, bases, {} if before is None else before.made)
    return _CountedEndpoint(
        state=state,
        seen=seen,
        variants={it.key: it for it in _variants(state, endpoint, statuses)},
        components=_by_key(made, before),
        bases=bases,
        made=made,
    )


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


def _bases(
    state: EndpointState,
    endpoint: Endpoint,
    statuses: Statuses,
    before: Mapping[str, _Serving],
) -> dict[str, _Serving]:
    """Every base component with its copies that serve."""
    found: dict[str, _Serving] = {}
    for base in state.components.values():
        if base.spec is None:
            continue
        hosts = state.hosts(endpoint.active.generation, base.variant_name)
        copies = [it for it in state.copies_on(hosts, base.name) if is_routable(it)]
        seen = [statuses.get(it.spec.id) for it in copies]
        known = before.get(base.name)
        if known is None or not known.is_of(base, copies, seen):
            old = {} if known is None else {it.copy_id: it for it in known.uses}
            made = [_use(it, state.instances[it.instance_id], statuses) for it in copies]
            # The same objects where they are equal: censuses of adapters hold while these do.
            uses = [it if old.get(it.copy_id) != it else old[it.copy_id] for it in made]
            census = _base_census(endpoint, base, base.spec, uses)
            known = _Serving(base, copies, seen, uses, census)
        found[base.name] = known
    return found


def _components(
    state: EndpointState, endpoint: Endpoint, bases: Mapping[str, _Serving], before: Made
) -> Made:
    """The census of every component in service, by name, with what it is of."""
    found = {}
    for name, component in state.components.items():
        known = before.get(name)
        if known is not None and known[0] is component:
            base = bases.get(known[1].component.name)
            if base is known[1]:
                found[name] = known
                continue
        adapter = routed_adapter(component)
        base = bases.get(name if adapter is None else adapter.base_name)
        if base is None or component.status not in LIVE_COMPONENT:
            continue
        mine = base.census
        if adapter is not None:
            routed_id = adapter_id(name, adapter)
            pairs = zip(base.copies, base.uses, strict=True)
            proven = tuple(use for it, use in pairs if routed_id in it.proven_adapters)
            if known is not None and known[0] is component and _is_same(known, base, proven):
                mine = known[2]
            else:
                mine = ComponentCensus(
                    key=_component_key(endpoint, base.component, name),
                    num_copies=len(proven),
                    base=mine.key,
                    reserved=mine.reserved,
                    copies=proven,
                )
        found[name] = (component, base, mine)
    return found


def _is_same(
    known: tuple[InferenceComponent, _Serving, ComponentCensus],
    base: _Serving,
    proven: Sequence[CopyUsage],
) -> bool:
    """Whether an adapter's census holds for its base as it is now."""
    return (
        known[1].component is base.component
        and known[2].num_copies == len(proven)
        and all(map(operator.is_, known[2].copies, proven))
    )


def _by_key(made: Made, before: _CountedEndpoint | None) -> dict[LoadKey, ComponentCensus]:
    """The censuses of components by their keys."""
    if before is None:
        return {it.key: it for _, _, it in made.values()}
    found = dict(before.components)  # its keys are not hashed again
    for name, (_, _, old) in before.made.items():
        if name not in made or made[name][2] is not old:
            found.pop(old.key, None)
    for name, (_, _, census) in made.items():
        known = before.made.get(name)
        if known is None or known[2] is not census:
            found[census.key] = census
    return found


def _base_census(
    endpoint: Endpoint,
    base: InferenceComponent,
    spec: ComponentSpec,
    uses: Sequence[CopyUsage],
) -> ComponentCensus:
    needs = spec.requirements
    return ComponentCensus(
        key=_component_key(endpoint, base, base.name),
        num_copies=len(uses),
        base=None,
        reserved=Resources(
            cpus=needs.cpus,
            memory_bytes=needs.min_memory_bytes,
            accelerators=needs.accelerators,
        ),
        copies=tuple(uses),
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
