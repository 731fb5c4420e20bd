"""When a copy that drains is stopped: once nobody holds a connection to it, or at its limit."""

from collections.abc import Iterator
from dataclasses import replace

from hostelry.domain.copy import Copy, CopyPhase
from hostelry.reconcile.plan.endpoint_state import DRAIN_S, EndpointState, PlanContext, stopped

UNTOLD_S = 4.0  # how long an agent may take to say which connections are open
# One that an agent's successor has taken over is proven again while it answers.
ANSWERING = frozenset({CopyPhase.READY, CopyPhase.UNHEALTHY, CopyPhase.PROVING})


def plan_drains(state: EndpointState, context: PlanContext) -> EndpointState:
    """The state in which copies that have drained are stopped."""
    leaving = [_begun(it, context.now) for it in state.copies.values() if it.draining]
    return state.with_copies(
        stopped(it, context.now) if _is_drained(it, context.now) else it for it in leaving
    )


def drain_instants(copy: Copy) -> Iterator[float]:
    """When time alone may end the copy's drain."""
    if copy.drain_started_at is not None:
        yield copy.drain_started_at + DRAIN_S
        yield copy.drain_started_at + UNTOLD_S


def _begun(copy: Copy, now: float) -> Copy:
    """The copy with a drain that has begun by now, also where the clock was set back meanwhile.

    It has as long as it had; one that was not to drain at all is stopped still.
    """
    ends_at, began_at = copy.drain_deadline_at, copy.drain_started_at
    if ends_at is None:
        return copy
    if began_at is None:
        return replace(copy, drain_deadline_at=min(ends_at, now))
    ahead_s = max(0.0, began_at - now)
    return replace(copy, drain_started_at=began_at - ahead_s, drain_deadline_at=ends_at - ahead_s)


def _is_drained(copy: Copy, now: float) -> bool:
    if copy.drain_started_at is None or copy.drain_deadline_at is None:
        return False
    if copy.drain_deadline_at <= now:
        return False  # its time is over anyway
    if copy.status.phase not in ANSWERING:
        return True
    still_open = copy.status.open_connections
    wait_s = UNTOLD_S if still_open is None else DRAIN_S
    return now >= copy.drain_started_at + wait_s and not still_open
