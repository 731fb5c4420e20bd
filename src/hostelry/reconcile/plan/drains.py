"""Stage: stops copies that have drained.

    a draining copy                                               result
    -----------------------------------------------------------   ----------------------
    its time limit passed                                         stopped already
    its model server does not run                                 stopped
    reports no open connection, DRAIN_S after the drain began     stopped
    reports nothing, CONNECTION_REPORT_S after the drain began    stopped
    reports open connections                                      drains on
    one of several containers of a model                          stopped once all of its instance
                                                                  would be: a request may come to
                                                                  it from another one

DRAIN_S covers the routes: until every gateway has the new ones, requests still arrive.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from hostelry.domain.copy import Copy, CopyPhase
from hostelry.reconcile.plan.endpoint_state import DRAIN_S, EndpointState, PlanContext, stop_copy

ASYNC_DRAIN_S = 3610.0  # the longest InvocationTimeoutSeconds, and a little
CONNECTION_REPORT_S = 4.0  # how long an agent may take to report open connections
# PROVING too: an agent that was restarted proves a copy again while that copy answers requests.
ANSWERING = frozenset({CopyPhase.READY, CopyPhase.UNHEALTHY, CopyPhase.PROVING})


def plan_drains(state: EndpointState, context: PlanContext) -> EndpointState:
    """The state in which copies that have drained are stopped."""
    now = context.now
    leaving = [_begin_by_now(it, now) for it in state.dirty_copies() if it.draining]
    busy = {_get_stop_group(it) for it in leaving if _is_kept(it, now) and not _is_drained(it, now)}
    return state.add_copies(
        copy if _get_stop_group(copy) in busy else stop_copy(copy, now) for copy in leaving
    )


def _get_stop_group(copy: Copy) -> tuple[str, str]:
    """The group that the copy is stopped with: the containers of its instance, or itself."""
    is_one_of_several = copy.spec.container.hostname is not None
    return (copy.instance_id, "" if is_one_of_several else copy.spec.id)


def set_drain_limit(state: EndpointState, context: PlanContext) -> PlanContext:
    """The context with the drain limit of this endpoint: queued requests may take an hour."""
    deployments = () if state.endpoint is None else state.endpoint.deployments
    if all(it.config.async_inference is None for it in deployments):
        return context
    return replace(context, max_drain_s=max(context.max_drain_s, ASYNC_DRAIN_S))


def list_drain_instants(copy: Copy) -> Iterator[float]:
    """Instants at which time alone may end the copy's drain."""
    if copy.drain_started_at is not None:
        yield copy.drain_started_at + DRAIN_S
        yield copy.drain_started_at + CONNECTION_REPORT_S


def _begin_by_now(copy: Copy, now: float) -> Copy:
    """The copy with a drain that has begun by now, also where the clock was set back meanwhile.

    The drain keeps its length. A copy that had to stop at once still has to.
    """
    ends_at, began_at = copy.drain_deadline_at, copy.drain_started_at
    if ends_at is None:
        return copy
    if began_at is None:
        return replace(copy, drain_deadline_at=min(ends_at, now))
    ahead_s = began_at - now
    if ahead_s <= 0:
        return copy
    return replace(copy, drain_started_at=began_at - ahead_s, drain_deadline_at=ends_at - ahead_s)


def _is_kept(copy: Copy, now: float) -> bool:
    return copy.drain_deadline_at is not None and copy.drain_deadline_at > now


def _is_drained(copy: Copy, now: float) -> bool:
    if copy.drain_started_at is None or copy.drain_deadline_at is None:
        return False
    if not _is_kept(copy, now):
        return False  # stopped already
    if copy.status.phase not in ANSWERING:
        return True
    still_open = copy.status.open_connections
    wait_s = CONNECTION_REPORT_S if still_open is None else DRAIN_S
    return now >= copy.drain_started_at + wait_s and not still_open
