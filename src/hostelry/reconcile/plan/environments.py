"""Stage: the environments of serverless variants, all on the variant's one instance.

an environment                       result
----------------------------------   -----------------------------------------------------------
FAILED, RETRY_S after its creation   stopped, and another one in its place while it is needed
restarting, or on an instance that   another is started; it drains once that is ready, or first
drains                               where the instance holds no more
surplus                              drains: those known to be idle first, then those not ready,
                                     then the newest
missing                              started
"""

from collections.abc import Sequence
from dataclasses import replace

from hostelry.domain.copy import Copy, Instance
from hostelry.domain.endpoint import Deployment, EndpointVariant
from hostelry.reconcile.plan.endpoint_state import (
    EndpointState,
    PlanContext,
    drained,
    is_routable,
)
from hostelry.reconcile.plan.model_copies import model_spec, new_copy, without_failed


def plan_environments(state: EndpointState, context: PlanContext) -> EndpointState:
    """The state with as many environments as each serverless variant should have now."""
    for deployment, variant in state.variants():
        if variant.serverless is not None:
            state = _counted(state, deployment, variant, context)
    return state


def ready_environments(
    state: EndpointState, deployment: Deployment, variant: EndpointVariant
) -> list[Copy]:
    """The variant's environments that take requests."""
    return [it for it in environments_of(state, deployment, variant) if is_routable(it)]


def environments_of(
    state: EndpointState, deployment: Deployment, variant: EndpointVariant
) -> list[Copy]:
    """The variant's environments that are not draining, the oldest first."""
    return state.copies_on(state.hosts(deployment.generation, variant.variant.name), None)


def needed_environments(variant: EndpointVariant) -> int:
    """The environments that must be ready before a deployment counts as up.

    One shows that the model starts, unless none is desired; provisioned ones are all waited for.
    """
    config = variant.serverless
    provisioned = 0 if config is None else config.provisioned_concurrency
    return min(variant.environments, max(1, provisioned))


def _counted(
    state: EndpointState, deployment: Deployment, variant: EndpointVariant, context: PlanContext
) -> EndpointState:
    hosts = state.hosts(deployment.generation, variant.variant.name)
    assert variant.serverless is not None, "only serverless variants have environments"
    shape = variant.serverless.shape  # it follows MaxConcurrency, which is changed in place
    state = state.add_instances(replace(it, shape=shape) for it in hosts)
    state = state.add_copies(without_failed(state.copies_on(hosts, None), context.now))
    able = state.able(hosts, context.now)
    present = state.copies_on(hosts, None)
    staying = {it.id for it in state.staying(hosts)}
    stay = [it for it in present if it.instance_id in staying]
    current = [it for it in stay if it.spec.id not in state.restarting]
    ids = {it.spec.id for it in current}
    replaced = [it for it in present if it.spec.id not in ids]
    missing = max(0, variant.environments - len(current))
    room = sum(_room(state, it, variant) for it in able)
    in_the_way = [it for it in replaced if it.instance_id in staying]
    num_ready = sum(1 for it in current if is_routable(it))
    surplus = [
        *_surplus(current, variant.environments, variant),
        *_surplus(replaced, variant.environments - num_ready, variant),
        *_surplus(in_the_way, len(in_the_way) - (missing - room), variant),
    ]
    state = state.add_copies(drained(it, context) for it in surplus)
    if variant.model is None or not able:
        return state
    spec = model_spec(variant, variant.model.containers[0])
    for _ in range(min(missing, room) if _is_restarting(state, able) else missing):
        host = _least_used(state, able)
        state = state.add_copies([new_copy(host, None, host.generation, spec, context)])
    return state


def _is_restarting(state: EndpointState, hosts: Sequence[Instance]) -> bool:
    """Whether an environment is there that another one replaces, and may have to end first."""
    return any(it.spec.id in state.restarting for host in hosts for it in state.copies_at(host.id))


def _room(state: EndpointState, host: Instance, variant: EndpointVariant) -> int:
    """How many more environments the instance holds."""
    config = variant.serverless
    most = 0 if config is None else config.max_concurrency
    return max(0, most - len(state.copies_at(host.id)))


def _surplus(copies: Sequence[Copy], keep: int, variant: EndpointVariant) -> list[Copy]:
    """Those beyond the `keep` most useful ones."""
    least_useful_first = sorted(copies, key=lambda it: _usefulness(it, variant))
    return least_useful_first[: max(0, len(copies) - max(0, keep))]


def _least_used(state: EndpointState, hosts: Sequence[Instance]) -> Instance:
    return min(hosts, key=lambda it: (len(state.copies_at(it.id)), it.created_at, it.id))


def _usefulness(copy: Copy, variant: EndpointVariant) -> tuple[bool, bool, float, str]:
    is_idle = copy.spec.id in variant.idle
    return (not is_idle, is_routable(copy), -copy.created_at, copy.spec.id)
