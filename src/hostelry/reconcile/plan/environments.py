"""Stage: the environments of serverless variants, all on the variant's one instance.

an environment                       result
----------------------------------   -----------------------------------------------------------
FAILED, RETRY_S after its creation   stopped, and another one in its place while it is needed
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
    state = state.with_instances(replace(it, shape=shape) for it in hosts)
    state = state.with_copies(without_failed(state.copies_on(hosts, None), context.now))
    present = state.copies_on(hosts, None)
    num_surplus = max(0, len(present) - variant.environments)
    surplus = sorted(present, key=lambda it: _usefulness(it, variant))[:num_surplus]
    state = state.with_copies(drained(it, context) for it in surplus)
    able = state.able(hosts, context.now)
    if variant.model is None or not able:
        return state
    spec = model_spec(variant, variant.model.containers[0])
    for _ in range(variant.environments - len(present)):
        host = _least_used(state, able)
        state = state.with_copies([new_copy(host, None, host.generation, spec, context)])
    return state


def _least_used(state: EndpointState, hosts: Sequence[Instance]) -> Instance:
    return min(hosts, key=lambda it: (len(state.copies_at(it.id)), it.created_at, it.id))


def _usefulness(copy: Copy, variant: EndpointVariant) -> tuple[bool, bool, float, str]:
    is_idle = copy.spec.id in variant.idle
    return (not is_idle, is_routable(copy), -copy.created_at, copy.spec.id)
