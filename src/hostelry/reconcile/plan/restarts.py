"""Stage: copies that a person asked to have replaced, one copy of each group at a time.

A group is a component, or the model of a variant. The stages of copies and instances bring up the
replacement, since they count a restarting copy as missing. The old copy serves meanwhile.

a restart                                               result
-----------------------------------------------------   ------------------------------------
the endpoint or its component does not serve any more   over
its copy drains or is gone, and its group is whole      over
an update of the endpoint is under way                  given up, as that replaces copies
under way: a replacement FAILED, or is late             given up, with the rest of the group
none of its group is under way, and the group is        begins
whole, or the copy does not serve
any other                                               waits
"""

from collections.abc import Iterator, Mapping

import msgspec
from msgspec.structs import replace

from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import Copy, CopyPhase, Instance, InstanceState, complete_sets
from hostelry.domain.endpoint import CopyRestart, Deployment, EndpointVariant
from hostelry.domain.resize import copies_deadline
from hostelry.domain.status import start_deadline
from hostelry.reconcile.plan.desired_copies import count_desired_copies
from hostelry.reconcile.plan.endpoint_state import (
    SERVING_COMPONENT,
    SERVING_ENDPOINT,
    EndpointState,
    PlanContext,
    is_routable,
)
from hostelry.reconcile.plan.status import (
    build_failure_reason,
    describe_copy_failure,
    describe_missing,
)

UPDATED = "An update of the endpoint began, which replaces copies itself."


class RestartGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A restart's group without the copies that are being replaced.

    `num_ready` counts the copies that serve, or the instances of a model that has whole instances.
    A replacement should be ready `start_s` after it began.
    """

    desired: int
    num_ready: int
    copies: tuple[Copy, ...]
    instances: tuple[Instance, ...] = ()
    start_s: float
    is_settled: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether all that is desired serves."""
        return self.num_ready >= self.desired


def plan_restarts(state: EndpointState, context: PlanContext) -> EndpointState:
    """The state with each restart begun, given up or over. See the table above."""
    endpoint = state.endpoint
    if endpoint is None or not endpoint.restarts:
        return state
    busy = {it.group for it in endpoint.restarts if it.is_under_way}
    groups = {it.group: it for it in endpoint.restarts}
    found = {key: _find_group(state, it, context) for key, it in groups.items()}
    left: list[CopyRestart] = []
    for restart in endpoint.restarts:
        group = found[restart.group]
        after = None if group is None else _advance(state, restart, group, context)
        if after is not None and after.group not in busy and _can_begin(state, after, group):
            after = replace(after, began_at=context.now)
            busy.add(after.group)
        left += [] if after is None else [after]
    # A copy that cannot be replaced stops the others: they would most likely fail, too.
    failed = {it.group: it.copy_id for it in left if it.began_at is not None and it.failure}
    restarts = tuple(_give_up(failed, it) for it in left)
    if restarts == endpoint.restarts:
        return state
    return state.replace_endpoint(replace(endpoint, restarts=restarts))


def list_restart_instants(state: EndpointState, context: PlanContext) -> Iterator[float]:
    """Instants at which time alone may give a restart up."""
    for restart in () if state.endpoint is None else state.endpoint.restarts:
        group = _find_group(state, restart, context) if restart.is_under_way else None
        if group is not None and restart.began_at is not None:
            yield restart.began_at + group.start_s


def _find_group(
    state: EndpointState, restart: CopyRestart, context: PlanContext
) -> RestartGroup | None:
    """The group of a restart. None if it does not serve any more."""
    endpoint = state.endpoint
    if endpoint is None or endpoint.status not in SERVING_ENDPOINT:
        return None
    active = endpoint.active
    named = (it for it in active.variants if it.variant.name == restart.variant_name)
    variant = next(named, None)
    if variant is None:
        return None
    if restart.component_name is None:
        return _build_model_group(state, active, variant)
    component = state.components.get(restart.component_name)
    if component is None or component.status not in SERVING_COMPONENT or component.spec is None:
        return None
    found = count_desired_copies(state, component, active, context)
    return RestartGroup(
        desired=component.desired_copies,
        num_ready=sum(1 for it in found.current if is_routable(it)),
        copies=found.current,
        start_s=copies_deadline(component.spec, variant.variant, 0.0),
        is_settled=component.status is ComponentStatus.IN_SERVICE,
    )


def _build_model_group(
    state: EndpointState, active: Deployment, variant: EndpointVariant
) -> RestartGroup:
    hosts = state.staying(state.hosts(active.generation, variant.variant.name))
    copies = [it for it in state.list_copies_on(hosts, None) if it.spec.id not in state.restarting]
    ready = [it for it in copies if is_routable(it)]
    by_instance = variant.serverless is None
    rule = variant.variant
    return RestartGroup(
        desired=variant.desired_instance_count if by_instance else variant.environments,
        num_ready=len(complete_sets(variant, hosts, ready)) if by_instance else len(ready),
        copies=tuple(copies),
        instances=tuple(hosts) if by_instance else (),
        start_s=start_deadline(
            0.0, rule.download_timeout_s, rule.startup_timeout_s, rule.provisioning_s
        ),
    )


def _advance(
    state: EndpointState, restart: CopyRestart, group: RestartGroup, context: PlanContext
) -> CopyRestart | None:
    """The restart in its present state. None if it is over."""
    endpoint, copy = state.endpoint, state.copies.get(restart.copy_id)
    assert endpoint is not None, "its record has the restarts"
    leaves = copy is None or copy.draining
    if restart.failure is not None:
        return None if leaves else restart
    if endpoint.pending is not None or endpoint.bake is not None:
        return replace(restart, failure=UPDATED)
    if restart.began_at is None:
        return None if leaves else restart
    if leaves and group.is_whole:
        return None
    # A clock that was set back must not make it last longer.
    restart = replace(restart, began_at=min(restart.began_at, context.now))
    return replace(restart, failure=_find_failure(state, restart, group, context))


def _can_begin(state: EndpointState, restart: CopyRestart, group: RestartGroup | None) -> bool:
    """Whether the restart's copy may be replaced now, as far as its group is concerned."""
    copy = state.copies.get(restart.copy_id)
    if restart.began_at is not None or restart.failure is not None:
        return False
    if group is None or copy is None or not group.is_settled:
        return False
    return group.is_whole or not is_routable(copy)


def _find_failure(
    state: EndpointState, restart: CopyRestart, group: RestartGroup, context: PlanContext
) -> str | None:
    """Why the replacement of a copy does not come up. None while it may."""
    assert restart.began_at is not None, "only a restart under way has a replacement"
    new = [it for it in group.copies if it.created_at >= restart.began_at]
    failed = next((it for it in new if it.status.phase is CopyPhase.FAILED), None)
    if failed is not None:
        return describe_copy_failure(failed)
    launching = [it for it in group.instances if it.state is InstanceState.LAUNCHING]
    troubles = [(it, state.get_facts(it.id)) for it in launching]
    texts = [f"instance {it.id}: {facts.problem}" for it, facts in troubles if facts.problem]
    if any(facts.terminal for _, facts in troubles):
        return build_failure_reason(f"The instance for it could not start: {'; '.join(texts)}")
    if context.now < restart.began_at + group.start_s or group.is_whole:
        return None
    missing = describe_missing(group.desired, group.copies)
    return build_failure_reason(
        "; ".join([f"Its replacement was not ready in time: {missing}", *texts])
    )


def _give_up(failed: Mapping[tuple[str | None, str], str], restart: CopyRestart) -> CopyRestart:
    """The restart, given up where another one of its group failed."""
    if restart.failure is not None or restart.group not in failed:
        return restart
    why = f"Copy {failed[restart.group]} could not be replaced, so this one was not, either."
    return replace(restart, failure=why)
