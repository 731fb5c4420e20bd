"""Instances that both deployments of a rolling update should have now, batch by batch.

the update                   instances of the new one    instances of the old one, of N in all
--------------------------   -------------------------   ---------------------------------------
the first batch comes up     batch 1                     N
batch k bakes                batches 1 to k              N, less those that batches 1 to k-1 replace
its old instances leave      batches 1 to k              N, less those that batches 1 to k replace
the next batch comes up      batches 1 to k+1            as before
goes back                    those that old instances    N
                             do not replace yet
... with                     the same                    the present ones. Once no instance leaves,
RollbackMaximumBatchSize                                 also those that replace another such batch
goes back, no old one        the present ones            as in the two rows above
serves

On the way back no new instance is launched and no old one terminated. An old instance came up once
all its copies have served. It replaces new ones from then on. It counts while it restarts, so that
a restart does not prolong the way back.
"""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from hostelry.domain.copy import Instance, InstanceState, complete_sets
from hostelry.domain.endpoint import Deployment, Endpoint, EndpointVariant, Shift, ShiftStage
from hostelry.domain.traffic import TrafficPolicy
from hostelry.reconcile.plan.endpoint_state import EndpointState, is_routable

NO_BATCH = Shift(step=0, since=0.0, stage=ShiftStage.COMING)


class RollingFleets(msgspec.Struct, frozen=True, kw_only=True):
    """The instances of one variant, old and new, in a rolling update."""

    old: EndpointVariant
    new: EndpointVariant
    old_hosts: tuple[Instance, ...]
    new_hosts: tuple[Instance, ...]
    num_back: int  # the old ones that came up
    old_serves: bool
    any_leaves: bool  # of either fleet

    @property
    def num_old(self) -> int:
        """The whole old fleet."""
        return self.old.desired_instance_count

    @property
    def num_new(self) -> int:
        """The whole new fleet."""
        return self.new.desired_instance_count

    @property
    def is_back(self) -> bool:
        """Whether the whole old fleet came up, and serves."""
        return self.num_back >= self.num_old and (self.old_serves or not self.num_old)


def get_present_fleet(state: EndpointState, deployment: Deployment) -> Deployment:
    """The deployment with the instance counts that it should have now.

    The deployment itself unless a rolling update is under way. An old variant without a successor
    keeps its counts.
    """
    endpoint = state.endpoint
    if endpoint is None or endpoint.pending is None or not endpoint.pending.is_rolling:
        return deployment
    pending, shift = endpoint.pending, endpoint.shift or NO_BATCH
    is_new = deployment.generation == pending.generation
    assert pending.guard is not None, "a rolling update has a guard"
    counts = {}
    for fleets in build_rolling_fleets(state, endpoint):
        counted = _count_forward if shift.failure is None else _count_backward
        old, new = counted(pending.guard.traffic, shift, fleets)
        counts[fleets.new.variant.name] = new if is_new else old
    return _set_counts(deployment, counts)


def get_serving_fleet(deployment: Deployment, shift: Shift) -> Deployment:
    """The deployment that traffic moves to, with the instances that its present step turned on."""
    if not deployment.is_rolling:
        return deployment
    assert deployment.guard is not None, "a rolling update has a guard"
    traffic = deployment.guard.traffic
    counts = {
        wanted.variant.name: traffic.turned_on(shift.step, wanted.desired_instance_count)
        for wanted in deployment.production
    }
    return _set_counts(deployment, counts)


def build_rolling_fleets(state: EndpointState, endpoint: Endpoint) -> list[RollingFleets]:
    """The fleets of each variant that both deployments of an update have."""
    active, pending = endpoint.active, endpoint.pending
    assert pending is not None, "an update has a deployment that comes up"
    old_by_name = {it.variant.name: it for it in active.production}
    return [
        _build_fleets(state, active, old_by_name[new.variant.name], pending, new)
        for new in pending.production
        if new.variant.name in old_by_name
    ]


def are_back(fleets: Iterable[RollingFleets]) -> bool:
    """Whether every old fleet came up again, and serves."""
    return all(it.is_back for it in fleets)


def is_mostly_new(fleets: Iterable[RollingFleets]) -> bool:
    """Whether less than half of the old instances came up again, and new ones are there."""
    fleets = tuple(fleets)
    back, old = sum(it.num_back for it in fleets), sum(it.num_old for it in fleets)
    return 2 * back < old and any(it.new_hosts for it in fleets)


def get_share_left(state: EndpointState, deployment: Deployment, variant: EndpointVariant) -> float:
    """The share of requests for the new instances that are left, on the way back."""
    hosts = state.hosts(deployment.generation, variant.variant.name)
    return min(1.0, len(hosts) / max(1, variant.desired_instance_count))


def old_batch_is_gone(state: EndpointState, endpoint: Endpoint) -> bool:
    """Whether no old instance is being terminated any more."""
    generation = endpoint.active.generation
    mine = [it for it in state.instances.values() if it.generation == generation]
    return all(it.state is not InstanceState.TERMINATING for it in mine)


def _build_fleets(
    state: EndpointState,
    active: Deployment,
    old: EndpointVariant,
    pending: Deployment,
    new: EndpointVariant,
) -> RollingFleets:
    name = new.variant.name
    old_hosts = state.hosts(active.generation, name)
    copies = state.list_copies_on(old_hosts, None)
    of_both = (active.generation, pending.generation)
    mine = [it for it in state.instances.values() if it.variant_name == name]
    states = [it.state for it in mine if it.generation in of_both]
    return RollingFleets(
        old=old,
        new=new,
        old_hosts=tuple(old_hosts),
        new_hosts=tuple(state.hosts(pending.generation, name)),
        num_back=len(complete_sets(old, old_hosts, [it for it in copies if it.has_served])),
        old_serves=bool(complete_sets(old, old_hosts, [it for it in copies if is_routable(it)])),
        any_leaves=InstanceState.TERMINATING in states,
    )


def _count_forward(traffic: TrafficPolicy, shift: Shift, fleets: RollingFleets) -> tuple[int, int]:
    """The old and the new instances of a variant, on the way to the new deployment."""
    coming = shift.stage is ShiftStage.COMING
    replaced = shift.step - (1 if shift.stage is ShiftStage.BAKING else 0)
    new = traffic.turned_on(shift.step + (1 if coming else 0), fleets.num_new)
    return fleets.num_old - traffic.count_replaced(replaced, fleets.num_old, fleets.num_new), new


def _count_backward(traffic: TrafficPolicy, shift: Shift, fleets: RollingFleets) -> tuple[int, int]:
    """The old and the new instances of a variant, on the way back."""
    num_old, num_new = fleets.num_old, fleets.num_new
    left = len(fleets.new_hosts)
    if fleets.old_serves or not num_old:
        replaced = num_new * min(fleets.num_back, num_old) // num_old if num_old else num_new
        left = min(left, num_new - replaced)
    if traffic.rollback_size is None:
        return num_old, left
    there = min(num_old, len(fleets.old_hosts))
    if fleets.any_leaves:
        return there, left
    keep = max(0, left - traffic.rollback_batch(num_new))
    wanted = num_old - (num_old * keep // num_new if num_new else 0)
    return max(there, wanted), left


def _set_counts(deployment: Deployment, counts: dict[str, int]) -> Deployment:
    variants = []
    for wanted in deployment.variants:
        count = counts.get(wanted.variant.name, wanted.desired_instance_count)
        variants.append(replace(wanted, desired_instance_count=count))
    return replace(deployment, variants=tuple(variants))
