"""Progress of restarts and drains as JSON values, for status and explain. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.domain.copy import Copy, CopyPhase, Instance, InstanceState
from hostelry.domain.endpoint import CopyRestart
from hostelry.reconcile.plan.endpoint_state import (
    NOTHING_KNOWN,
    EndpointState,
    InstanceFacts,
    is_routable,
)
from hostelry.reconcile.plan.reasons import describe_missing

WAITS = "waits until the other copies of its component or variant serve"
COMES_UP = "its replacement comes up"


def restart_progress(state: EndpointState, copy: Copy) -> dict[str, Any] | None:
    """The restart that was asked for a copy: who replaces it, or why it serves on; None: none."""
    restarts = () if state.endpoint is None else state.endpoint.restarts
    restart = next((it for it in restarts if it.copy_id == copy.spec.id), None)
    if restart is None:
        return None
    new = _replacement(state, restart, copy) if restart.is_under_way else None
    reason = restart.failure or (WAITS if restart.began_at is None else COMES_UP)
    if new is not None:
        reason = f"being replaced by {new.spec.id}, which is {new.status.phase.value}"
        reason += f": {new.status.reason}" if new.status.reason else ""
    return {
        "asked_at": restart.asked_at,
        "began_at": restart.began_at,
        "replaced_by": None if new is None else new.spec.id,
        "failed": restart.failure is not None,
        "reason": reason,
    }


def _replacement(state: EndpointState, restart: CopyRestart, old: Copy) -> Copy | None:
    """The newest copy that came up since the restart began, in the place of `old`."""
    came = [
        copy
        for copy in state.copies_of(restart.component_name)
        if copy.variant_name == restart.variant_name
        and copy.spec.container.hostname == old.spec.container.hostname
        and copy.created_at >= (restart.began_at or 0.0)
        and not copy.draining
        and copy.spec.id != old.spec.id
    ]
    return came[-1] if came else None


def drain_progress(
    state: EndpointState, facts: Mapping[str, InstanceFacts], instance: Instance
) -> dict[str, Any] | None:
    """The drain of an instance: the copies left, and why it has not ended; None: none."""
    if instance.drain_since is None:
        return None
    copies = state.copies_at(instance.id)
    serving = [it for it in copies if not it.draining]
    return {
        "since": instance.drain_since,
        "copies_left": len(copies),
        "serving": len(serving),
        "reason": _why_there(state, facts, instance, serving, len(copies)),
    }


def _why_there(
    state: EndpointState,
    facts: Mapping[str, InstanceFacts],
    instance: Instance,
    serving: Sequence[Copy],
    num_copies: int,
) -> str:
    """Why a draining instance is still there: what it waits for."""
    if instance.state is InstanceState.TERMINATING or not serving:
        return "its copies end with their last requests" if num_copies else "it is ending"
    names = sorted({it.component_name for it in serving if it.component_name is not None})
    notes = [(it, state.components[it].placement_note) for it in names if it in state.components]
    found = [f"component {name}: {note}" for name, note in notes if note]
    hosts = state.staying(state.hosts(instance.generation, instance.variant_name))
    problems = [(it.id, facts.get(it.id, NOTHING_KNOWN).problem) for it in hosts]
    found += [f"instance {name}: {problem}" for name, problem in problems if problem]
    new = [it for host in hosts for it in state.copies_at(host.id) if not it.draining]
    waiting = [it for it in new if not is_routable(it)]
    failed = any(it.status.phase is CopyPhase.FAILED for it in waiting)
    if not found or failed:
        found.append(f"other copies come up first: {describe_missing(len(new), new)}")
    return "; ".join(found)
