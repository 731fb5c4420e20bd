"""Takes the agents' reports into the records. A copy without a report keeps its last state.

the copy                                          its status
-----------------------------------------------   --------------------------------------------
its agent has not answered this control process   as recorded
in the agent's report                             as reported, or as recorded if only memory in
                                                  use or the number of connections changed
applied by the agent, but not in its report       PENDING: it was lost, and starts again
not yet applied by the agent                      as recorded

A copy on another host is reached through that host's node proxy, as its agent is (`base.address`).
"""

import dataclasses
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from hostelry.base.address import on_host
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


def take_observations(state: EndpointState, now: float) -> EndpointState:
    """The state with every instance and copy as its agent reported it last."""
    news = state.instances.keys() if state.news is None else state.news
    instances = [_observe_instance(state.instances[it], state.get_facts(it)) for it in news]
    copies = {it.spec.id: it for it in state.dirty_copies()}
    for instance_id in state.news or ():  # None: all copies are among the dirty ones
        for name in _list_reported_ids(state.get_facts(instance_id)):
            if name in state.copies:
                copies[name] = state.copies[name]
    hosts = {it.instance_id for it in copies.values()}
    seen = {it: _index_statuses(state.get_facts(it).observation) for it in hosts}
    after = [
        _observe_copy(copy, state.get_facts(copy.instance_id), seen[copy.instance_id], now)
        for copy in copies.values()
    ]
    return state.add_instances(instances).add_copies(after)


def _list_reported_ids(facts: InstanceFacts) -> Iterable[str]:
    """The ids of the copies that an agent reports, and of those that it should report."""
    reported = () if facts.observation is None else facts.observation.copies
    return {*facts.applied, *(it.id for it in reported)}


def _index_statuses(observation: Observation | None) -> Mapping[str, CopyStatus]:
    return {} if observation is None else {it.id: it for it in observation.copies}


def _observe_instance(instance: Instance, facts: InstanceFacts) -> Instance:
    """The instance, RUNNING once its agent answered, with the address of its newest agent."""
    if facts.observation is None or facts.address is None:
        return instance
    launched = instance.state is InstanceState.LAUNCHING
    state = InstanceState.RUNNING if launched else instance.state
    if (state, facts.address) == (instance.state, instance.agent_address):
        return instance
    return replace(instance, state=state, agent_address=facts.address)


def _observe_copy(
    copy: Copy, facts: InstanceFacts, seen: Mapping[str, CopyStatus], now: float
) -> Copy:
    status = _find_status(copy, facts, seen.get(copy.spec.id))
    ready_at, unready_since = copy.ready_at, copy.unready_since
    if status.phase is not CopyPhase.READY:
        unready_since = now if ready_at is not None else unready_since
        ready_at = None
    elif ready_at is None and adapters_settled(copy.spec.adapters, status):
        ready_at = now
    failed_at = copy.failed_at if copy.failed_at is not None else now
    ready = AdapterPhase.READY
    proven = frozenset([it.id for it in status.adapters if it.phase is ready])
    if ready_at is not None:
        unready_since = None
    if (
        status is copy.status
        and ready_at == copy.ready_at
        and unready_since == copy.unready_since
        and (status.phase is CopyPhase.FAILED) == (copy.failed_at is not None)
        and proven == copy.proven_adapters
    ):
        return copy
    after = replace(
        copy,
        status=status,
        ready_at=ready_at,
        unready_since=unready_since,
        failed_at=failed_at if status.phase is CopyPhase.FAILED else None,
        proven_adapters=proven,
    )
    return copy if after == copy else after


def _find_status(copy: Copy, facts: InstanceFacts, status: CopyStatus | None) -> CopyStatus:
    if facts.observation is None:
        return copy.status
    if status is None:
        lost = copy.spec.id in facts.applied
        return CopyStatus(id=copy.spec.id, phase=CopyPhase.PENDING) if lost else copy.status
    return _keep_if_steady(_set_addresses(status, facts.address), copy.status)


def _set_addresses(status: CopyStatus, agent_address: str | None) -> CopyStatus:
    """`status`, with the addresses for other hosts if the agent is on another host.

    An agent reports addresses on its own host. Its node proxy there knows the copy by its id.
    """
    if agent_address is None or agent_address.startswith("http://") or status.address is None:
        return status
    models = status.models_address
    if models is not None:
        models = f"{agent_address}/{models.partition('://')[2].partition('/')[2]}"
    return dataclasses.replace(
        status, address=on_host(agent_address, status.id), models_address=models
    )


def _keep_if_steady(status: CopyStatus, known: CopyStatus) -> CopyStatus:
    """`status`, or `known` if no change is worth a write to the store.

    Memory in use is not, nor the number of open connections while some are open.
    """
    if status == known:
        return known
    both_open = known.open_connections and status.open_connections
    unmoved = dataclasses.replace(
        status,
        memory_bytes=known.memory_bytes,
        peak_memory_bytes=known.peak_memory_bytes,
        open_connections=known.open_connections if both_open else status.open_connections,
    )
    return known if unmoved == known else status


def adapters_settled(desired: tuple[AdapterPlacement, ...], status: CopyStatus) -> bool:
    """Whether every desired adapter is registered on the copy, or failed."""
    settled = {it.id for it in status.adapters if it.phase is not AdapterPhase.PENDING}
    return all(it.id in settled for it in desired)
