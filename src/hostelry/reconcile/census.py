"""Census of the variants and components in service, from records and agents' last reports."""

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from hostelry.base.parts import changed_pairs
from hostelry.domain.component import ComponentSpec, InferenceComponent
from hostelry.domain.copy import Copy, CopyStatus, Instance, InstanceState, complete_sets
from hostelry.domain.endpoint import Deployment, Endpoint, EndpointVariant
from hostelry.domain.hidden_endpoint import is_hidden
from hostelry.domain.load import LoadKey
from hostelry.domain.scope import Scope
from hostelry.domain.serverless import ServerlessConfig
from hostelry.fleet.protocol import Observation
from hostelry.metrics.sagemaker.census import (
    Census,
    ComponentCensus,
    CopyUsage,
    InstanceCapacity,
    Resources,
    VariantCensus,
)
from hostelry.reconcile.plan.adapters import (
    build_adapter_id,
    find_changed_components,
    get_routed_adapter,
)
from hostelry.reconcile.plan.endpoint_state import (
    LIVE_COMPONENT,
    NOTHING_KNOWN,
    SERVING_ENDPOINT,
    EndpointState,
    InstanceFacts,
    find_changed_families,
    is_routable,
)

Reports = Mapping[str, Observation | None]  # by instance


def take_census(
    states: Iterable[EndpointState],
    facts: Mapping[str, InstanceFacts],
    disk_use: float | None = None,
) -> Census:
    """The census that a `CensusCounter` takes, all of it computed."""
    return CensusCounter().take(states, facts, disk_use)


class _Family(msgspec.Struct, frozen=True):
    """A base with its adapters, and the census of each."""

    components: Mapping[str, InferenceComponent] = msgspec.field(default_factory=dict)
    base: ComponentCensus | None = None
    proven: Sequence[frozenset[str]] = ()  # the adapters of each copy that serves
    found: Mapping[str, ComponentCensus] = msgspec.field(default_factory=dict)


class _Host(msgspec.Struct, frozen=True):
    """The copies of an instance that serve, and the usage of each by copy."""

    copies: Sequence[Copy] = ()
    uses: Mapping[str, CopyUsage] = msgspec.field(default_factory=dict)


class _CountedEndpoint(msgspec.Struct, frozen=True):
    """An endpoint's census by family and instance, and the state and reports that were counted."""

    state: EndpointState
    reports: Reports
    families: Mapping[str, _Family]
    hosts: Mapping[str, _Host]
    variants: Mapping[LoadKey, VariantCensus]


NO_COPIES: Mapping[str, Copy] = {}
NO_FAMILY = _Family()
NO_HOST = _Host()
NOTHING_COUNTED = _CountedEndpoint(EndpointState(endpoint=None), {}, {}, {}, {})


class CensusCounter:
    """Takes censuses. Each costs as much as has changed since the one before."""

    def __init__(self) -> None:
        self._counted: dict[tuple[Scope, str], _CountedEndpoint] = {}
        self._components: dict[LoadKey, ComponentCensus] = {}

    def take(
        self,
        states: Iterable[EndpointState],
        facts: Mapping[str, InstanceFacts],
        disk_use: float | None = None,
    ) -> Census:
        """Take the census of every variant and component of the endpoints that serve.

        Transform jobs are counted apart, since no request of a client reaches them. `facts` has the
        agents' reports, which are newer than the records for values that change often.
        """
        variants: dict[LoadKey, VariantCensus] = {}
        transforms: dict[LoadKey, VariantCensus] = {}
        counted: dict[tuple[Scope, str], _CountedEndpoint] = {}
        for state in states:
            endpoint = state.endpoint
            if endpoint is None or endpoint.status not in SERVING_ENDPOINT:
                continue
            address = endpoint.scope, endpoint.name
            found = _count_endpoint(
                state, endpoint, facts, self._counted.get(address, NOTHING_COUNTED)
            )
            counted[address] = found
            (transforms if is_hidden(endpoint.name) else variants).update(found.variants)
        self._components = _merge_changes(self._components, self._counted, counted)
        self._counted = counted
        return Census(
            variants=variants,
            components=self._components,
            transforms=transforms,
            disk_use=disk_use,
        )


def _merge_changes(
    components: dict[LoadKey, ComponentCensus],
    before: Mapping[tuple[Scope, str], _CountedEndpoint],
    counted: Mapping[tuple[Scope, str], _CountedEndpoint],
) -> dict[LoadKey, ComponentCensus]:
    """The components with the changes of all families. The same object without a change."""
    gone: list[LoadKey] = []
    new: list[ComponentCensus] = []
    for known, now in changed_pairs(before, counted, NOTHING_COUNTED):
        for old, family in changed_pairs(known.families, now.families, NO_FAMILY):
            for was, one in changed_pairs(old.found, family.found, None):
                gone += [] if was is None else [was.key]
                new += [] if one is None else [one]
    if not gone and not new:
        return components
    found = dict(components)  # who has the census before still reads it
    for key in gone:
        found.pop(key, None)
    found.update({it.key: it for it in new})
    return found


def _count_endpoint(
    state: EndpointState,
    endpoint: Endpoint,
    facts: Mapping[str, InstanceFacts],
    before: _CountedEndpoint,
) -> _CountedEndpoint:
    """An endpoint's census. Parts of `before` stay if they were counted from the same objects."""
    had = before.state
    if had.endpoint is not endpoint or had.instances is not state.instances:
        before = NOTHING_COUNTED
    reports = {it: facts.get(it, NOTHING_KNOWN).observation for it in state.instances}
    touched = {it for it, seen in reports.items() if before.reports.get(it, before) is not seen}
    if before is not NOTHING_COUNTED:
        if not touched and had.components is state.components and had.copies is state.copies:
            return before
        for old, copies in changed_pairs(
            had.copy_set.by_component, state.copy_set.by_component, NO_COPIES
        ):
            touched |= {it.instance_id for it in (*old.values(), *copies.values())}
    hosts = _count_hosts(state, endpoint, reports, before.hosts, touched)
    families = _count_families(state, endpoint, before, hosts)
    variants = before.variants
    if hosts is not before.hosts:
        variants = {it.key: it for it in _count_variants(state, endpoint, hosts)}
    return _CountedEndpoint(state, reports, families, hosts, variants)


def _count_hosts(
    state: EndpointState,
    endpoint: Endpoint,
    reports: Reports,
    before: Mapping[str, _Host],
    touched: Collection[str],
) -> Mapping[str, _Host]:
    """Every instance. An instance that contributes the same stays the same object."""
    ready: dict[str, list[Copy]] = {it: [] for it in touched if it in state.instances}
    for copy in state.copies.values():
        if copy.instance_id in ready and is_routable(copy):
            ready[copy.instance_id].append(copy)
    found = {}
    for name, copies in ready.items():
        copies.sort(key=lambda it: (it.created_at, it.spec.id))
        report, known = reports[name], before.get(name, NO_HOST)
        statuses = {} if report is None else {it.id: it for it in report.copies}
        uses = {}
        for copy in copies:
            use = _get_usage(copy, state.instances[name], statuses.get(copy.spec.id))
            old = known.uses.get(copy.spec.id)
            # Equal usages stay the same object: an adapter's census holds as long as they do.
            uses[copy.spec.id] = use if old is None or old != use else old
        if name not in before or not _is_same_host(known, copies, uses, endpoint):
            found[name] = _Host(copies, uses)
    return {**before, **found} if found else before


def _is_same_host(
    known: _Host, copies: Sequence[Copy], uses: Mapping[str, CopyUsage], endpoint: Endpoint
) -> bool:
    """Whether an instance contributes the same as before. Its adapters make no difference."""
    if len(known.copies) != len(copies) or known.uses != uses:
        return False
    if not endpoint.takes_components:
        return all(map(operator.is_, known.copies, copies))
    pairs = zip(known.copies, copies, strict=True)
    return all(old.spec.requirements == it.spec.requirements for old, it in pairs)


def _count_families(
    state: EndpointState,
    endpoint: Endpoint,
    before: _CountedEndpoint,
    hosts: Mapping[str, _Host],
) -> dict[str, _Family]:
    """Every base with its adapters. A family that contributes the same stays the same object."""
    moved: set[str | None] = {
        copy.component_name
        for old, host in changed_pairs(before.hosts, hosts, NO_HOST)
        for copy in (*old.copies, *host.copies)
    }
    found = dict(before.families)
    for name in find_changed_families(before.state, state) | moved:
        if name is None:  # the copies of a model
            continue
        known, components = found.pop(name, NO_FAMILY), state.families.get(name)
        if components is None:
            continue
        base, mine, serving = components.get(name), None, []
        if base is not None and base.spec is not None:
            serving = _find_serving(state, endpoint, hosts, base)
            mine = _count_base(endpoint, base, base.spec, [use for _, use in serving])
        found[name] = _count_family(components, mine, serving, known)
    return found


def _find_serving(
    state: EndpointState, endpoint: Endpoint, hosts: Mapping[str, _Host], base: InferenceComponent
) -> list[tuple[Copy, CopyUsage]]:
    """The copies of a base that serve, and the usage of each."""
    copies = state.list_variant_copies(endpoint.active.generation, base.variant_name, base.name)
    return [(it, hosts[it.instance_id].uses[it.spec.id]) for it in copies if is_routable(it)]


def _count_family(
    components: Mapping[str, InferenceComponent],
    base: ComponentCensus | None,
    serving: Sequence[tuple[Copy, CopyUsage]],
    known: _Family,
) -> _Family:
    """A base and the adapters on it. Adapters without a change are kept from `known`."""
    proven = tuple([it.proven_adapters for it, _ in serving])
    if base is None or base != known.base:
        names = known.components.keys() | components.keys()
    else:
        names = find_changed_components(known.components, components, known.proven, proven)
    found = dict(known.found)
    for name in names:
        before, component = found.pop(name, None), components.get(name)
        if base is None or component is None or component.status not in LIVE_COMPONENT:
            continue
        mine, adapter = base, get_routed_adapter(component)
        if adapter is not None:
            routed_id = build_adapter_id(name, adapter)
            mine = _count_adapter(
                name, base, [use for it, use in serving if routed_id in it.proven_adapters]
            )
        found[name] = before if before is not None and before == mine else mine
    return _Family(components, base, proven, found)


def _count_adapter(
    name: str, base: ComponentCensus, proven: Sequence[CopyUsage]
) -> ComponentCensus:
    return replace(
        base,
        key=replace(base.key, component_name=name),
        num_copies=len(proven),
        base=base.key,
        copies=tuple(proven),
    )


def _count_variants(
    state: EndpointState, endpoint: Endpoint, hosts: Mapping[str, _Host]
) -> Iterable[VariantCensus]:
    """Each variant's fleet. While traffic shifts, the fleets of both deployments are added."""
    active, coming = endpoint.active, endpoint.pending
    found = {it.variant.name: _count_fleet(state, active, it, hosts) for it in active.variants}
    if coming is None or endpoint.shift is None:
        return found.values()
    for wanted in coming.production:
        name, new = wanted.variant.name, _count_fleet(state, coming, wanted, hosts)
        found[name] = _add_fleets(found[name], new) if name in found else new
    return found.values()


def _count_fleet(
    state: EndpointState,
    deployment: Deployment,
    wanted: EndpointVariant,
    hosts: Mapping[str, _Host],
) -> VariantCensus:
    """A variant as far as a deployment's instances serve it."""
    endpoint, config, variant = state.endpoint, deployment.config, wanted.variant
    assert endpoint is not None, "only an endpoint has variants"
    mine = state.hosts(deployment.generation, variant.name)
    running = [it for it in mine if it.state is InstanceState.RUNNING]
    serving = [it for it in running if _is_serving(wanted, it, hosts[it.id].copies)]
    rooms = [_get_capacity(it, hosts[it.id].copies, wanted.serverless) for it in serving]
    return VariantCensus(
        key=LoadKey(scope=endpoint.scope, endpoint_name=endpoint.name, variant_name=variant.name),
        config_name=config.name,
        takes_components=endpoint.takes_components,
        instances=tuple(replace(it, config_name=config.name) for it in rooms),
        copies=tuple([use for it in serving for use in hosts[it.id].uses.values()]),
        metrics=config.metrics,
        pools=variant.instance_types if variant.pools else (),
        is_async=config.async_inference is not None,
        serverless=wanted.serverless,
    )


def _add_fleets(old: VariantCensus, new: VariantCensus) -> VariantCensus:
    """A variant with both fleets, and the settings of the old one."""
    return replace(
        old,
        instances=(*old.instances, *new.instances),
        copies=(*old.copies, *new.copies),
        pools=tuple(dict.fromkeys((*old.pools, *new.pools))),
        new_config_name=new.config_name,
    )


def _is_serving(wanted: EndpointVariant, instance: Instance, ready: Sequence[Copy]) -> bool:
    """Whether an instance takes requests: containers that requests name do so one by one."""
    model = wanted.model_on(instance.instance_type)
    if model is None:
        return True
    return bool(ready if model.is_direct else complete_sets(wanted, [instance], ready))


def _get_capacity(
    instance: Instance, copies: Sequence[Copy], serverless: ServerlessConfig | None
) -> InstanceCapacity:
    """The capacity of an instance. An instance of environments has the memory of those that run."""
    reserved = [it.spec.requirements for it in copies if it.spec.requirements is not None]
    return InstanceCapacity(
        id=instance.id,
        shape=_get_shape(instance)
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


def _count_base(
    endpoint: Endpoint,
    base: InferenceComponent,
    spec: ComponentSpec,
    uses: Sequence[CopyUsage],
) -> ComponentCensus:
    needs = spec.requirements
    return ComponentCensus(
        key=LoadKey(
            scope=endpoint.scope,
            endpoint_name=endpoint.name,
            variant_name=base.variant_name,
            component_name=base.name,
        ),
        num_copies=len(uses),
        base=None,
        reserved=Resources(
            cpus=needs.cpus,
            memory_bytes=needs.min_memory_bytes,
            accelerators=needs.accelerators,
        ),
        copies=tuple(uses),
    )


def _get_shape(instance: Instance) -> Resources:
    shape = instance.shape
    return Resources(
        cpus=shape.cpus, memory_bytes=shape.memory_bytes, accelerators=shape.accelerators
    )


def _get_usage(copy: Copy, instance: Instance, seen: CopyStatus | None) -> CopyUsage:
    status = seen or copy.status
    return CopyUsage(
        copy_id=copy.spec.id,
        instance_id=copy.instance_id,
        instance_type=instance.instance_type,
        limit=_get_shape(instance),
        cpu_s=seen.cpu_s if seen is not None and seen.cpu_at else None,
        cpu_at=status.cpu_at,
        memory_bytes=status.memory_bytes or None,
        gpus=() if seen is None else seen.gpus,
        loaded_models=None if seen is None else seen.loaded_models,
        setup=None if status.start_s is None else (status.restarts, status.start_s),
    )
