"""The update of an endpoint that a verdict decides on: the compared fleets, and since when."""

from hostelry.comparison.fleet_verdict import WatchedUpdate
from hostelry.domain.endpoint import Endpoint, EndpointStatus
from hostelry.domain.update_progress import share_of


def watched_update(endpoint: Endpoint | None) -> WatchedUpdate | None:
    """The update under way that has a gate. None without an update, or if it is rolled back."""
    if endpoint is None or endpoint.status is not EndpointStatus.UPDATING:
        return None
    bake, under_way = endpoint.bake, endpoint.shift or endpoint.bake
    new = endpoint.active if bake is not None else endpoint.pending
    old = endpoint.active if bake is None else bake.before
    if new is None or new.guard is None or new.guard.allowance is None:
        return None
    if under_way is not None and under_way.failure is not None:
        return None
    has_all = all(share_of(endpoint, new, it) >= 1.0 for it in new.production)
    names = {it.variant.name for it in old.production}
    return WatchedUpdate(
        scope=endpoint.scope,
        endpoint_name=endpoint.name,
        generation=new.generation,
        variants=tuple(it.variant.name for it in new.production if it.variant.name in names),
        old_config=old.config.name,
        new_config=new.config.name,
        began_at=new.started_at,
        since=None if under_way is None else under_way.since,
        is_trial=under_way is not None and has_all,
        num_steps=new.num_steps,
        allowance=new.guard.allowance,
    )
