"""Stages: the model's copies, and the adapters on all copies.

on an instance of a model endpoint       result
--------------------------------------   ----------------------------------------
cordoned                                 no new copy
no copy of a container of the model      one copy of each, of what its instance type runs
a copy that FAILED, RETRY_S after its    stopped, and another one in its place
creation
"""

from collections.abc import Iterable
from dataclasses import replace

from hostelry.domain.container_copies import containers_on
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
from hostelry.reconcile.plan.adapters import placed_adapters
from hostelry.reconcile.plan.endpoint_state import EndpointState, PlanContext, stopped

RETRY_S = 30.0


def plan_model_copies(state: EndpointState, context: PlanContext) -> EndpointState:
    """The state with a copy of each container of the variant's model on each instance.

    A serverless variant has environments instead (`environments`).
    """
    for deployment, variant in state.variants():
        if variant.serverless is not None:
            continue
        hosts = state.hosts(deployment.generation, variant.variant.name)
        state = state.add_copies(without_failed(state.copies_on(hosts, None), context.now))
        state = _one_on_each(state, deployment, variant, context)
    return state


def _one_on_each(
    state: EndpointState, deployment: Deployment, variant: EndpointVariant, context: PlanContext
) -> EndpointState:
    hosts = state.hosts(deployment.generation, variant.variant.name)
    present = state.copies_on(hosts, None)
    taken = {(it.instance_id, it.spec.container.hostname) for it in present}
    found = [
        new_copy(host, None, host.generation, model_spec(variant, container), context)
        for host in state.staying(hosts)
        for container in containers_on(variant, host)
        if (host.id, container.hostname) not in taken
    ]
    return state.add_copies(found)


def model_spec(variant: EndpointVariant, container: Container) -> CopySpec:
    """The specification of a copy of one container of the variant's model."""
    config = variant.serverless
    return CopySpec(
        id="",
        owner=f"variant/{variant.variant.name}",
        container=container,
        requirements=None if config is None else config.environment,
        download_timeout_s=variant.variant.download_timeout_s,
        startup_timeout_s=variant.variant.startup_timeout_s,
    )


def without_failed(copies: Iterable[Copy], now: float) -> list[Copy]:
    """The FAILED copies whose time to be replaced has come, stopped."""
    failed = [it for it in copies if it.status.phase is CopyPhase.FAILED]
    return [stopped(it, now) for it in failed if now >= retry_at(it)]


def retry_at(copy: Copy) -> float:
    """The instant from which a FAILED copy is replaced, if anything still needs it then.

    One that never served is kept until its component or endpoint has seen it, however long it took
    to fail.
    """
    has_served = copy.unready_since is not None
    since = copy.created_at if has_served or copy.failed_at is None else copy.failed_at
    return since + RETRY_S


def new_copy(
    instance: Instance,
    component_name: str | None,
    generation: int,
    spec: CopySpec,
    context: PlanContext,
) -> Copy:
    """A new copy of `spec`, with an id of its own, on `instance`."""
    copy_id = context.new_copy_id()
    return Copy(
        scope=instance.scope,
        endpoint_name=instance.endpoint_name,
        variant_name=instance.variant_name,
        component_name=component_name,
        generation=generation,
        instance_id=instance.id,
        spec=replace(spec, id=copy_id),
        status=CopyStatus(id=copy_id, phase=CopyPhase.PENDING),
        created_at=context.now,
        instance_made_at=instance.created_at,
    )


def plan_adapters_on_copies(state: EndpointState, context: PlanContext) -> EndpointState:
    """The state in which each copy of a base component has exactly the desired adapters."""
    changed: list[Copy] = []
    desired: dict[str, tuple[AdapterPlacement, ...]] = {}
    for copy in state.dirty_copies():
        base = copy.component_name
        if base is None or copy.draining:
            continue
        if base not in desired:
            desired[base] = placed_adapters(state, base, copy.spec, context.now)
        if desired[base] is not copy.spec.adapters and desired[base] != copy.spec.adapters:
            changed.append(replace(copy, spec=replace(copy.spec, adapters=desired[base])))
    return state.add_copies(changed)
