"""The model's copies, one on each instance of a model endpoint, and the adapters on all copies."""

from collections.abc import Iterable
from dataclasses import replace

from hostelry.domain.copy import (
    AdapterPlacement,
    Copy,
    CopyPhase,
    CopySpec,
    CopyStatus,
    Instance,
)
from hostelry.domain.endpoint import Deployment, EndpointVariant
from hostelry.domain.model import Container
from hostelry.reconcile.adapters import wanted_adapters
from hostelry.reconcile.world import Givens, World, stopped

RETRY_S = 30.0


def plan_model_copies(world: World, givens: Givens) -> World:
    """The world with one copy of the variant's model on each instance of each deployment."""
    for deployment in world.deployments():
        for variant in deployment.variants:
            hosts = world.hosts(deployment.generation, variant.variant.name)
            world = world.with_copies(without_failed(world.copies_on(hosts, None), givens.now))
            world = _one_on_each(world, deployment, variant, givens)
    return world


def _one_on_each(
    world: World, deployment: Deployment, variant: EndpointVariant, givens: Givens
) -> World:
    hosts = world.hosts(deployment.generation, variant.variant.name)
    taken = {it.instance_id for it in world.copies_on(hosts, None)}
    found = []
    for host in hosts:
        model = variant.model_on(host.instance_type)
        if host.id not in taken and model is not None and len(model.containers) == 1:
            spec = _model_spec(variant, model.containers[0])
            found.append(new_copy(host, None, host.generation, spec, givens))
    return world.with_copies(found)


def _model_spec(variant: EndpointVariant, container: Container) -> CopySpec:
    return CopySpec(
        id="",
        owner=f"variant/{variant.variant.name}",
        container=container,
        requirements=None,
        download_timeout_s=variant.variant.download_timeout_s,
        startup_timeout_s=variant.variant.startup_timeout_s,
    )


def without_failed(copies: Iterable[Copy], now: float) -> list[Copy]:
    """Copies that their agent gave up on a while ago, stopped, so that others are tried."""
    failed = [it for it in copies if it.status.phase is CopyPhase.FAILED]
    return [stopped(it, now) for it in failed if now >= retry_at(it)]


def retry_at(copy: Copy) -> float:
    """When a copy that failed is replaced, unless its failure ends what it was started for."""
    return copy.created_at + RETRY_S


def new_copy(
    instance: Instance,
    component_name: str | None,
    generation: int,
    spec: CopySpec,
    givens: Givens,
) -> Copy:
    """A copy that nothing was seen of yet; `spec` gets its id."""
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
    wanted: dict[str, tuple[AdapterPlacement, ...]] = {}
    for copy in world.copies.values():
        base = copy.component_name
        if base is None or copy.draining:
            continue
        if base not in wanted:
            wanted[base] = wanted_adapters(world, base, givens.now)
        if wanted[base] != copy.spec.adapters:
            changed.append(replace(copy, spec=replace(copy.spec, adapters=wanted[base])))
    return world.with_copies(changed)
