"""Which copies exist, and where.

One of the model's on each instance of a model endpoint, and as many of each base component as it
wants, placed by their requirements.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hostelry.domain.component import ComponentSpec, InferenceComponent
from hostelry.domain.copy import (
    AdapterPlacement,
    Copy,
    CopyPhase,
    CopySpec,
    CopyStatus,
    Instance,
)
from hostelry.domain.endpoint import Deployment, Endpoint, EndpointVariant
from hostelry.domain.endpoint_config import Variant
from hostelry.placement.fit import Host, NoFit, Placement, Reservation, never_fits, place
from hostelry.reconcile.adapters import wanted_adapters
from hostelry.reconcile.world import (
    LIVE_COMPONENT,
    Givens,
    World,
    drained,
    is_routable,
    stopped,
)

RETRY_S = 30.0


def plan_model_copies(world: World, givens: Givens) -> World:
    """The world with one copy of the variant's model on each instance of each deployment."""
    for deployment in world.deployments():
        for variant in deployment.variants:
            hosts = world.hosts(deployment.generation, variant.variant.name)
            world = _without_failed(world, world.copies_on(hosts, None), givens.now)
            world = _one_on_each(world, deployment, variant, givens)
    return world


def _one_on_each(
    world: World, deployment: Deployment, variant: EndpointVariant, givens: Givens
) -> World:
    if variant.model is None or len(variant.model.containers) != 1:
        return world
    hosts = world.hosts(deployment.generation, variant.variant.name)
    taken = {it.instance_id for it in world.copies_on(hosts, None)}
    spec = CopySpec(
        id="",
        owner=f"variant/{variant.variant.name}",
        container=variant.model.containers[0],
        requirements=None,
        download_timeout_s=variant.variant.download_timeout_s,
        startup_timeout_s=variant.variant.startup_timeout_s,
    )
    bare = [host for host in hosts if host.id not in taken]
    return world.with_copies([_new_copy(it, None, it.generation, spec, givens) for it in bare])


def plan_component_copies(world: World, givens: Givens) -> World:
    """The world with the copies that the base components want, as far as they fit."""
    for name in sorted(world.components):
        component = world.components[name]
        if component.spec is None:
            continue
        if component.status not in LIVE_COMPONENT:
            world = world.with_copies(
                [drained(it, givens.now) for it in _all_copies(world, component)]
            )
            continue
        for deployment in world.deployments():
            world = _on_deployment(world, component, deployment, givens)
    return world


def _all_copies(world: World, component: InferenceComponent) -> list[Copy]:
    return [it for it in world.copies.values() if it.component_name == component.name]


def _on_deployment(
    world: World, component: InferenceComponent, deployment: Deployment, givens: Givens
) -> World:
    spec = component.spec
    assert spec is not None, "a base component has a spec"
    hosts = world.hosts(deployment.generation, component.variant_name)
    world = _without_failed(world, world.copies_on(hosts, component.name), givens.now)
    world = _without_surplus(world, component, hosts, givens.now)
    mine = world.copies_on(hosts, component.name)
    missing = component.desired_copies - sum(1 for it in mine if it.generation == spec.generation)
    if missing <= 0:
        return world
    outcome = place([spec.requirements] * missing, *_room(world, hosts))
    world = world.with_copies(
        [
            _new_component_copy(world, component, spec, world.instances[it], givens)
            for it in outcome.instance_ids
        ]
    )
    if isinstance(outcome, Placement):
        return world
    return _more_room(world, component, deployment, missing - len(outcome.instance_ids), givens)


def _without_failed(world: World, copies: Iterable[Copy], now: float) -> World:
    """Drops copies that their agent gave up on a while ago, so that others are tried."""
    failed = [it for it in copies if it.status.phase is CopyPhase.FAILED]
    return world.with_copies([stopped(it, now) for it in failed if now >= retry_at(it)])


def retry_at(copy: Copy) -> float:
    """When a copy that failed is replaced, unless its failure ends what it was started for."""
    return copy.created_at + RETRY_S


def _without_surplus(
    world: World, component: InferenceComponent, hosts: Sequence[Instance], now: float
) -> World:
    """Drains copies beyond the wanted number, and old ones as new ones become ready."""
    assert component.spec is not None, "a base component has a spec"
    mine = world.copies_on(hosts, component.name)
    new = [it for it in mine if it.generation == component.spec.generation]
    old = [it for it in mine if it.generation != component.spec.generation]
    ready_new = sum(1 for it in new if is_routable(it))
    keep_old = max(0, component.desired_copies - ready_new)
    surplus = _best_first(new)[component.desired_copies :] + _best_first(old)[keep_old:]
    return world.with_copies([drained(it, now) for it in surplus])


def _best_first(copies: Sequence[Copy]) -> list[Copy]:
    return sorted(copies, key=lambda it: (not is_routable(it), it.created_at, it.spec.id))


def _room(world: World, hosts: Sequence[Instance]) -> tuple[list[Host], list[Reservation]]:
    """The hosts with their declared shapes, and what copies hold, those on their way out too."""
    ids = {host.id for host in hosts}
    reservations = [
        Reservation(instance_id=it.instance_id, requirements=it.spec.requirements)
        for it in world.copies.values()
        if it.instance_id in ids and it.spec.requirements is not None
    ]
    return [Host(instance_id=it.id, shape=it.shape) for it in hosts], reservations


def _more_room(
    world: World,
    component: InferenceComponent,
    deployment: Deployment,
    missing: int,
    givens: Givens,
) -> World:
    """Stops old copies of the component where that helps, or asks for more instances."""
    assert component.spec is not None, "a base component has a spec"
    hosts = world.hosts(deployment.generation, component.variant_name)
    ids = {host.id for host in hosts}
    if any(it.draining and it.instance_id in ids for it in world.copies.values()):
        return world  # what is leaving may be room enough
    if _is_exchanging(world.copies_on(hosts, component.name), component.spec):
        return world  # one at a time, so that the others serve
    in_the_way = _fewest_in_the_way(world, component, hosts)
    if in_the_way:
        return world.with_copies([drained(it, givens.now) for it in in_the_way])
    return _scaled_out(world, component, deployment, missing, givens)


def _is_exchanging(copies: Sequence[Copy], spec: ComponentSpec) -> bool:
    """Whether a new copy is coming up beside old ones."""
    new = [it for it in copies if it.generation == spec.generation]
    return len(new) < len(copies) and not all(is_routable(it) for it in new)


def _fewest_in_the_way(
    world: World, component: InferenceComponent, hosts: Sequence[Instance]
) -> list[Copy]:
    """Old copies, on one instance, whose end makes room for one new copy; the fewest there are."""
    assert component.spec is not None, "a base component has a spec"
    generation = component.spec.generation
    choices: list[list[Copy]] = []
    for host in hosts:
        old = [it for it in world.copies_on([host], component.name) if it.generation != generation]
        worst_first = _best_first(old)[::-1]
        for count in range(1, len(worst_first) + 1):
            stopping = worst_first[:count]
            if isinstance(_placed_without(world, host, stopping, component.spec), Placement):
                choices.append(stopping)
                break
    return min(choices, key=len, default=[])


def _placed_without(
    world: World, host: Instance, stopping: Sequence[Copy], spec: ComponentSpec
) -> Placement | NoFit:
    gone = {it.spec.id for it in stopping}
    left = {copy_id: it for copy_id, it in world.copies.items() if copy_id not in gone}
    return place([spec.requirements], *_room(replace(world, copies=left), [host]))


def _scaled_out(
    world: World,
    component: InferenceComponent,
    deployment: Deployment,
    missing: int,
    givens: Givens,
) -> World:
    """As many more instances wanted as `missing` copies need and ManagedInstanceScaling allows."""
    endpoint = world.endpoint
    wanted = next(
        (it for it in deployment.variants if it.variant.name == component.variant_name), None
    )
    if endpoint is None or wanted is None:
        return world
    hosts = world.hosts(deployment.generation, component.variant_name)
    if wanted.desired_instance_count > len(hosts):
        return world  # those that are coming may be room enough
    added = _instances_to_add(world, component, wanted, missing, givens)
    more = replace(wanted, desired_instance_count=wanted.desired_instance_count + added)
    return replace(world, endpoint=_with_variant(endpoint, deployment, more))


def _instances_to_add(
    world: World,
    component: InferenceComponent,
    wanted: EndpointVariant,
    missing: int,
    givens: Givens,
) -> int:
    """How many empty instances `missing` copies would fill, within the variant's bounds."""
    assert component.spec is not None, "a base component has a spec"
    scaling = wanted.variant.scaling
    if scaling is None or not scaling.enabled:
        return 0
    shape = givens.shape_of(wanted.variant.instance_type)
    spare = range(scaling.max_instances - wanted.desired_instance_count)
    empty = [Host(instance_id=f"empty-{number:06}", shape=shape) for number in spare]
    outcome = place([component.spec.requirements] * missing, empty, [])
    return len(set(outcome.instance_ids))


def cannot_ever_fit(component: InferenceComponent, variant: Variant, givens: Givens) -> str | None:
    """Why a copy of the component fits on no instance of the variant's type; None when it does."""
    assert component.spec is not None, "a base component has a spec"
    shape = givens.shape_of(variant.instance_type)
    return never_fits(component.spec.requirements, variant.instance_type, shape)


def shortage(world: World, component: InferenceComponent, hosts: Sequence[Instance]) -> str | None:
    """Why another copy of the component fits on none of `hosts` now; None when one does."""
    assert component.spec is not None, "a base component has a spec"
    outcome = place([component.spec.requirements], *_room(world, hosts))
    return outcome.reason if isinstance(outcome, NoFit) else None


def _with_variant(endpoint: Endpoint, deployment: Deployment, changed: EndpointVariant) -> Endpoint:
    variants = tuple(
        changed if it.variant.name == changed.variant.name else it for it in deployment.variants
    )
    after = replace(deployment, variants=variants)
    if deployment.generation == endpoint.active.generation:
        return replace(endpoint, active=after)
    return replace(endpoint, pending=after)


def _new_component_copy(
    world: World,
    component: InferenceComponent,
    spec: ComponentSpec,
    instance: Instance,
    givens: Givens,
) -> Copy:
    wanted = CopySpec(
        id="",
        owner=f"component/{component.name}",
        container=spec.container,
        requirements=spec.requirements,
        download_timeout_s=spec.download_timeout_s,
        startup_timeout_s=spec.startup_timeout_s,
        adapters=wanted_adapters(world, component.name, givens.now),
    )
    return _new_copy(instance, component.name, spec.generation, wanted, givens)


def _new_copy(
    instance: Instance,
    component_name: str | None,
    generation: int,
    spec: CopySpec,
    givens: Givens,
) -> Copy:
    copy_id = givens.new_copy_id()
    return Copy(
        scope=instance.scope,
        endpoint_name=instance.endpoint_name,
        variant_name=instance.variant_name,
        component_name=component_name,
        generation=generation,
        instance_id=instance.id,
        spec=replace(spec, id=copy_id),
        status=CopyStatus(id=copy_id, phase=CopyPhase.PENDING),
        created_at=givens.now,
    )


def plan_adapters_on_copies(world: World, givens: Givens) -> World:
    """The world in which each copy of a base component has exactly the adapters wanted of it."""
    changed: list[Copy] = []
    for copy in world.copies.values():
        if copy.component_name is None or copy.draining:
            continue
        adapters: tuple[AdapterPlacement, ...] = wanted_adapters(
            world, copy.component_name, givens.now
        )
        if adapters != copy.spec.adapters:
            changed.append(replace(copy, spec=replace(copy.spec, adapters=adapters)))
    return world.with_copies(changed)
