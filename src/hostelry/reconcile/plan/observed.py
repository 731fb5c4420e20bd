"""Takes what the agents reported into the records; what nobody reported keeps its last state."""

from collections.abc import Mapping
from dataclasses import replace

from hostelry.domain.copy import (
    AdapterPhase,
    AdapterPlacement,
    Copy,
    CopyPhase,
    CopyStatus,
    Instance,
    InstanceState,
)
from hostelry.fleet.protocol import Observation
from hostelry.reconcile.plan.endpoint_state import EndpointState, InstanceFacts


def with_observations(state: EndpointState, now: float) -> EndpointState:
    """The state with every instance and copy as its agent saw it last."""
    instances = [_seen_instance(it, state.facts_of(it.id)) for it in state.instances.values()]
    seen = {it: _by_id(facts.observation) for it, facts in state.facts.items()}
    copies = [
        _seen_copy(it, state.facts_of(it.instance_id), seen.get(it.instance_id, {}), now)
        for it in state.copies.values()
    ]
    return state.with_instances(instances).with_copies(copies)


def _by_id(observation: Observation | None) -> Mapping[str, CopyStatus]:
    return {} if observation is None else {it.id: it for it in observation.copies}


def _seen_instance(instance: Instance, facts: InstanceFacts) -> Instance:
    """RUNNING once its agent answered; the address follows an agent that was started again."""
    if facts.observation is None or facts.address is None:
        return instance
    launched = instance.state is InstanceState.LAUNCHING
    state = InstanceState.RUNNING if launched else instance.state
    if (state, facts.address) == (instance.state, instance.agent_address):
        return instance
    return replace(instance, state=state, agent_address=facts.address)


def _seen_copy(
    copy: Copy, facts: InstanceFacts, seen: Mapping[str, CopyStatus], now: float
) -> Copy:
    status = _status(copy, facts, seen.get(copy.spec.id))
    ready_at, unready_since = copy.ready_at, copy.unready_since
    if status.phase is not CopyPhase.READY:
        unready_since = now if ready_at is not None else unready_since
        ready_at = None
    elif ready_at is None and adapters_settled(copy.spec.adapters, status):
        ready_at = now
    proven = frozenset(it.id for it in status.adapters if it.phase is AdapterPhase.READY)
    if ready_at is not None:
        unready_since = None
    after = replace(
        copy,
        status=status,
        ready_at=ready_at,
        unready_since=unready_since,
        proven_adapters=proven,
    )
    return copy if after == copy else after


def _status(copy: Copy, facts: InstanceFacts, seen: CopyStatus | None) -> CopyStatus:
    if facts.observation is None:
        return copy.status
    if seen is None:
        lost = copy.spec.id in facts.applied
        return CopyStatus(id=copy.spec.id, phase=CopyPhase.PENDING) if lost else copy.status
    return _steady(seen, copy.status)


def _steady(seen: CopyStatus, known: CopyStatus) -> CopyStatus:
    """`seen`, or `known` where only what need not be written has moved.

    That is the memory in use, and how many connections are open as long as some are.
    """
    if seen == known:
        return known
    still_open = known.open_connections if seen.open_connections else seen.open_connections
    unmoved = replace(
        seen,
        memory_bytes=known.memory_bytes,
        peak_memory_bytes=known.peak_memory_bytes,
        open_connections=still_open if still_open else seen.open_connections,
    )
    return known if unmoved == known else seen


def adapters_settled(wanted: tuple[AdapterPlacement, ...], status: CopyStatus) -> bool:
    """Whether each wanted adapter is registered, or known to be impossible, on the copy."""
    settled = {it.id for it in status.adapters if it.phase is not AdapterPhase.PENDING}
    return all(it.id in settled for it in wanted)
