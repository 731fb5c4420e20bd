"""When a copy that drains is stopped: once nobody holds a connection to it, or at its limit."""

from collections.abc import Iterator

from hostelry.domain.copy import Copy, CopyPhase
from hostelry.reconcile.world import DRAIN_S, Givens, World, stopped

UNTOLD_S = 4.0  # how long an agent may take to say which connections are open


def plan_drains(world: World, givens: Givens) -> World:
    """The world in which copies that have drained are stopped."""
    return world.with_copies(
        stopped(it, givens.now) for it in world.copies.values() if _is_drained(it, givens.now)
    )


def drain_instants(copy: Copy) -> Iterator[float]:
    """When time alone may end the copy's drain."""
    if copy.drain_started_at is not None:
        yield copy.drain_started_at + DRAIN_S
        yield copy.drain_started_at + UNTOLD_S


def _is_drained(copy: Copy, now: float) -> bool:
    if copy.drain_started_at is None or copy.drain_deadline_at is None:
        return False
    if copy.drain_deadline_at <= now:
        return False  # its time is over anyway
    if copy.status.phase not in (CopyPhase.READY, CopyPhase.UNHEALTHY):
        return True
    still_open = copy.status.open_connections
    wait_s = UNTOLD_S if still_open is None else DRAIN_S
    return now >= copy.drain_started_at + wait_s and not still_open
