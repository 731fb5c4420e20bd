"""Desired copies of a component on one deployment. Pure counting.

*Current* copies are of the newest specification (or of the specification that a rollback returns
to), on an instance that stays and is reachable, and not restarting. All *others* are replaced.

    D = desired copies, N = new copies of the rollout    current    others kept
    --------------------------------------------------   --------   --------------------------------
    no rolling update                                    D          D - ready current
    rolling update, batch by batch                       N          D - copies of proven batches
    rolling back, batch by batch                         D - N      N
    any                                                             at least D - ready current
"""

from collections.abc import Collection, Sequence

import msgspec

from hostelry.domain.component import (
    ComponentSpec,
    ComponentStatus,
    InferenceComponent,
    PlacementStrategy,
    Rollout,
)
from hostelry.domain.copy import Copy, CopyPhase
from hostelry.domain.endpoint import Deployment
from hostelry.reconcile.plan.endpoint_state import EndpointState, PlanContext, is_routable


class DesiredCopies(msgspec.Struct, frozen=True, kw_only=True):
    """Copies that a component should have on one deployment, and the copies that it has.

    `count` copies of `spec` and, until those serve, `keep` others. If a new copy has no room,
    others may stop first while `min_ready` copies serve. None: one exchange at a time.
    """

    component: InferenceComponent
    spec: ComponentSpec
    count: int
    keep: int
    min_ready: int | None
    current: tuple[Copy, ...]
    others: tuple[Copy, ...]

    @property
    def missing(self) -> int:
        """The number of copies still to be placed."""
        return max(0, self.count - len(self.current))

    @property
    def surplus(self) -> list[Copy]:
        """Copies beyond the desired counts."""
        return [*self.current[self.count :], *self.others[self.keep :]]

    @property
    def num_ready(self) -> int:
        """The number of copies that serve."""
        return sum(1 for it in (*self.current, *self.others) if is_routable(it))


def count_desired_copies(
    state: EndpointState,
    component: InferenceComponent,
    deployment: Deployment,
    context: PlanContext,
) -> DesiredCopies:
    """The desired copies of a base component on the deployment."""
    spec = get_next_spec(component)
    copies = state.list_variant_copies(
        deployment.generation, component.variant_name, component.name
    )
    hosts_of_copies = {it.instance_id for it in copies}
    lost = {it for it in hosts_of_copies if not state.is_able(it, context.now)}
    restarting = state.restarting
    current: list[Copy] = []
    others: list[Copy] = []
    for copy in copies:
        if is_moving(state, copy):
            continue
        is_current = copy.generation == spec.generation and copy.instance_id not in lost
        is_current = is_current and copy.spec.id not in restarting
        (current if is_current else others).append(copy)
    ready = sum(1 for it in current if is_routable(it))
    count, keep = component.desired_copies, component.desired_copies - ready
    min_ready: int | None = None
    rollout = component.rollout if _is_active(state, deployment) else None
    if rollout is not None:
        count, keep = _in_batches(component, rollout, ready)
        # Old copies that died, or stayed on another deployment, are replaced ahead of their batch:
        # a rolling update must not serve with fewer copies than are desired.
        count = max(count, component.desired_copies - len(others))
        min_ready = max(0, component.desired_copies - get_exchange_size(component, rollout))
    return DesiredCopies(
        component=component,
        spec=spec,
        count=count,
        keep=max(0, keep),
        min_ready=min_ready,
        current=tuple(_best_first(state, current, spec.scheduling.strategy, lost)),
        others=tuple(_best_first(state, others, spec.scheduling.strategy, lost)),
    )


def get_next_spec(component: InferenceComponent) -> ComponentSpec:
    """The specification of new copies. During a rollback, the one before the update."""
    assert component.spec is not None, "a base component has a spec"
    if component.rollout is not None and component.rollout.failure is not None:
        return component.previous_spec or component.spec
    return component.spec


def get_batch_size(component: InferenceComponent, rollout: Rollout) -> int:
    """The number of copies exchanged at once. All of them if a rollback has no batches."""
    size = rollout.policy.max_batch if rollout.failure is None else rollout.policy.rollback_batch
    return component.desired_copies if size is None else size.copies(component.desired_copies)


def get_exchange_size(component: InferenceComponent, rollout: Rollout) -> int:
    """The number of copies that may be missing if old and new ones do not fit together."""
    size = rollout.policy.rollback_batch if rollout.failure is not None else None
    return (size or rollout.policy.max_batch).copies(component.desired_copies)


def is_moving(state: EndpointState, copy: Copy) -> bool:
    """Whether a copy moves: it comes up for one that serves elsewhere, and does not count yet."""
    if copy.replaces is None or copy.component_name is None:
        return False
    component = state.components.get(copy.component_name)
    old = state.copies.get(copy.replaces)
    settled = component is not None and component.status is ComponentStatus.IN_SERVICE
    return settled and old is not None and not old.draining


def _in_batches(component: InferenceComponent, rollout: Rollout, ready: int) -> tuple[int, int]:
    """Desired current copies of a rolling update, and the others it keeps."""
    desired = component.desired_copies
    if rollout.failure is not None:
        # During a rollback `new_copies` counts the copies of the failed generation that may stay.
        return desired - rollout.new_copies, max(rollout.new_copies, desired - ready)
    size = get_batch_size(component, rollout)
    proven = (max(rollout.new_copies - 1, 0) // size) * size
    return rollout.new_copies, max(desired - proven, desired - ready)


def _is_active(state: EndpointState, deployment: Deployment) -> bool:
    endpoint = state.endpoint
    return endpoint is not None and deployment.generation == endpoint.active.generation


def _best_first(
    state: EndpointState,
    copies: Sequence[Copy],
    strategy: PlacementStrategy,
    lost: Collection[str],
) -> list[Copy]:
    """The copies to keep first: serving ones, then by strategy, spread out or close together."""
    if len(copies) < 2:
        return list(copies)
    packed = strategy is PlacementStrategy.BINPACK
    nth: dict[str, int] = {}
    rank: dict[str, int] = {}
    for copy in copies:
        rank[copy.spec.id] = nth[copy.instance_id] = nth.get(copy.instance_id, 0) + 1
        if packed:
            rank[copy.spec.id] = -len(state.list_copies_at(copy.instance_id))
    return sorted(
        copies,
        key=lambda it: (
            it.status.phase is CopyPhase.FAILED,
            not is_routable(it),
            it.instance_id in lost,
            rank[it.spec.id],
            it.created_at,
            it.spec.id,
        ),
    )
