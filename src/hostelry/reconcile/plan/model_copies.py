"""Stages: the copies of models, the environments of serverless variants, adapters on all copies.

on an instance of a model endpoint       result
--------------------------------------   ----------------------------------------
cordoned                                 no new copy
no copy of a container of the model      one copy of each container for its instance type
a copy that FAILED, RETRY_S after its    stopped, and another one in its place
creation

an environment, on the one instance      result
of its serverless variant
--------------------------------------   -------------------------------------------------------
FAILED, RETRY_S after its creation       stopped, and another one in its place if it is needed
restarting, or on an instance that       another is started, and this one drains once that is
drains                                   ready, or first if the instance holds no more
surplus                                  drains: those known to be idle first, then those not
                                         ready, then the newest
missing                                  started
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from hostelry.domain.copy import (
    AdapterPlacement,
    Copy,
    CopyPhase,
    CopySpec,
    CopyStatus,
    Instance,
    containers_on,
)
from hostelry.domain.endpoint import Deployment, EndpointVariant
from hostelry.domain.model import Container
from hostelry.reconcile.plan.adapters import list_placed_adapters
from hostelry.reconcile.plan.endpoint_state import (
    EndpointState,
    PlanContext,
    drain_copy,
    is_routable,
    stop_copy,
)

RETRY_S = 30.0


def plan_model_copies(state: EndpointState, context: PlanContext) -> EndpointState:
    """The state with a copy of each container of the variant's model on each instance.

    A serverless variant has environments instead (`environments`).
    """
    for deployment, variant in state.variants():
        if variant.serverless is not None:
            continue
        hosts = state.hosts(deployment.generation, variant.variant.name)
        state = state.add_copies(stop_failed_copies(state.list_copies_on(hosts, None), context.now))
        state = _add_missing(state, deployment, variant, context)
    return state


def _add_missing(
    state: EndpointState, deployment: Deployment, variant: EndpointVariant, context: PlanContext
) -> EndpointState:
    hosts = state.hosts(deployment.generation, variant.variant.name)
    present = state.list_copies_on(hosts, None)
    taken = {(it.instance_id, it.spec.container.hostname) for it in present}
    found = [
        build_copy(host, None, host.generation, build_model_spec(variant, container), context)
        for host in state.staying(hosts)
        for container in containers_on(variant, host)
        if (host.id, container.hostname) not in taken
    ]
    return state.add_copies(found)


def build_model_spec(variant: EndpointVariant, container: Container) -> CopySpec:
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


def stop_failed_copies(copies: Iterable[Copy], now: float) -> list[Copy]:
    """The FAILED copies whose time to be replaced has come, stopped."""
    failed = [it for it in copies if it.status.phase is CopyPhase.FAILED]
    return [stop_copy(it, now) for it in failed if now >= get_retry_time(it)]


def get_retry_time(copy: Copy) -> float:
    """The instant from which a FAILED copy is replaced, if anything still needs it then.

    One that never served is kept until its component or endpoint has seen it, however long it took
    to fail.
    """
    has_served = copy.unready_since is not None
    since = copy.created_at if has_served or copy.failed_at is None else copy.failed_at
    return since + RETRY_S


def build_copy(
    instance: Instance,
    component_name: str | None,
    generation: int,
    spec: CopySpec,
    context: PlanContext,
) -> Copy:
    """A new copy of `spec`, with a new id, on `instance`."""
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
            desired[base] = list_placed_adapters(state, base, copy.spec, context.now)
        if desired[base] is not copy.spec.adapters and desired[base] != copy.spec.adapters:
            changed.append(replace(copy, spec=replace(copy.spec, adapters=desired[base])))
    return state.add_copies(changed)


def plan_environments(state: EndpointState, context: PlanContext) -> EndpointState:
    """The state with as many environments as each serverless variant should have now."""
    for deployment, variant in state.variants():
        if variant.serverless is not None:
            state = _plan_environments(state, deployment, variant, context)
    return state


def list_ready_environments(
    state: EndpointState, deployment: Deployment, variant: EndpointVariant
) -> list[Copy]:
    """The variant's environments that take requests."""
    return [it for it in list_environments(state, deployment, variant) if is_routable(it)]


def list_environments(
    state: EndpointState, deployment: Deployment, variant: EndpointVariant
) -> list[Copy]:
    """The variant's environments that are not draining, the oldest first."""
    return state.list_variant_copies(deployment.generation, variant.variant.name, None)


def count_needed_environments(variant: EndpointVariant) -> int:
    """The environments that must be ready before a deployment counts as up.

    One environment shows that the model starts, unless none is desired. A deployment waits for all
    provisioned environments.
    """
    config = variant.serverless
    provisioned = 0 if config is None else config.provisioned_concurrency
    return min(variant.environments, max(1, provisioned))


def _plan_environments(
    state: EndpointState, deployment: Deployment, variant: EndpointVariant, context: PlanContext
) -> EndpointState:
    hosts = state.hosts(deployment.generation, variant.variant.name)
    assert variant.serverless is not None, "only serverless variants have environments"
    shape = variant.serverless.shape  # it follows MaxConcurrency, which is changed in place
    state = state.add_instances(replace(it, shape=shape) for it in hosts)
    state = state.add_copies(stop_failed_copies(state.list_copies_on(hosts, None), context.now))
    able = state.able(hosts, context.now)
    present = state.list_copies_on(hosts, None)
    staying = {it.id for it in state.staying(hosts)}
    stay = [it for it in present if it.instance_id in staying]
    current = [it for it in stay if it.spec.id not in state.restarting]
    ids = {it.spec.id for it in current}
    replaced = [it for it in present if it.spec.id not in ids]
    missing = max(0, variant.environments - len(current))
    room = sum(_count_room(state, it, variant) for it in able)
    in_the_way = [it for it in replaced if it.instance_id in staying]
    num_ready = sum(1 for it in current if is_routable(it))
    surplus = [
        *_find_surplus(current, variant.environments, variant),
        *_find_surplus(replaced, variant.environments - num_ready, variant),
        *_find_surplus(in_the_way, len(in_the_way) - (missing - room), variant),
    ]
    state = state.add_copies(drain_copy(it, context) for it in surplus)
    if variant.model is None or not able:
        return state
    spec = build_model_spec(variant, variant.model.containers[0])
    for _ in range(min(missing, room) if _is_restarting(state, able) else missing):
        host = _find_least_used(state, able)
        state = state.add_copies([build_copy(host, None, host.generation, spec, context)])
    return state


def _is_restarting(state: EndpointState, hosts: Sequence[Instance]) -> bool:
    """Whether an environment is there that another one replaces, and may have to end first."""
    copies = [copy for host in hosts for copy in state.list_copies_at(host.id)]
    return any(it.spec.id in state.restarting for it in copies)


def _count_room(state: EndpointState, host: Instance, variant: EndpointVariant) -> int:
    """How many more environments the instance holds."""
    config = variant.serverless
    most = 0 if config is None else config.max_concurrency
    return max(0, most - len(state.list_copies_at(host.id)))


def _find_surplus(copies: Sequence[Copy], keep: int, variant: EndpointVariant) -> list[Copy]:
    """Those beyond the `keep` most useful ones."""
    least_useful_first = sorted(copies, key=lambda it: _rank_usefulness(it, variant))
    return least_useful_first[: max(0, len(copies) - max(0, keep))]


def _find_least_used(state: EndpointState, hosts: Sequence[Instance]) -> Instance:
    return min(hosts, key=lambda it: (len(state.list_copies_at(it.id)), it.created_at, it.id))


def _rank_usefulness(copy: Copy, variant: EndpointVariant) -> tuple[bool, bool, float, str]:
    is_idle = copy.spec.id in variant.idle
    return (not is_idle, is_routable(copy), -copy.created_at, copy.spec.id)
