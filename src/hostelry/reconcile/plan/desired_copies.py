"""How many copies of which generation a component should have on a deployment. Pure counting.

An update replaces *other* copies (of another generation, or on an instance that is leaving or out
of reach) by *current* ones. Without a rolling policy all current ones come at once; with one, batch
by batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredCopies:
    """What a component is to have on one deployment, beside what it has.

    `want` copies of `spec` and, until those serve, `keep` others. Where there is no room for a new
    one, others may be stopped first as long as `floor` copies serve; None: one exchange at a time.
    """

    component: InferenceComponent
    spec: ComponentSpec
    want: int
    keep: int
    floor: int | None
    current: tuple[Copy, ...]
    others: tuple[Copy, ...]

    @property
    def missing(self) -> int:
        """How many copies are to be placed."""
        return max(0, self.want - len(self.current))

    @property
    def surplus(self) -> list[Copy]:
        """The copies that are not wanted any more."""
        return [*self.current[self.want :], *self.others[self.keep :]]

    @property
    def num_ready(self) -> int:
        """How many copies serve."""
        return sum(1 for it in (*self.current, *self.others) if is_routable(it))


def aim_of(
    state: EndpointState,
    component: InferenceComponent,
    deployment: Deployment,
    context: PlanContext,
) -> DesiredCopies:
    """What the component, which is a base, is to have on the deployment."""
    spec = next_spec(component)
    hosts = state.hosts(deployment.generation, component.variant_name)
    lost = {it.id for it in hosts} - {it.id for it in state.able(hosts, context.now)}
    current: list[Copy] = []
    others: list[Copy] = []
    for copy in state.copies_on(hosts, component.name):
        if is_moving(state, copy):
            continue
        is_current = copy.generation == spec.generation and copy.instance_id not in lost
        (current if is_current else others).append(copy)
    ready = sum(1 for it in current if is_routable(it))
    want, keep = component.desired_copies, component.desired_copies - ready
    floor: int | None = None
    rollout = component.rollout if _is_active(state, deployment) else None
    if rollout is not None:
        want, keep = _in_batches(component, rollout, ready)
        # Where old copies have died, or stayed on another deployment, new ones stand in for them.
        want = max(want, component.desired_copies - len(others))
        floor = max(0, component.desired_copies - exchange_size(component, rollout))
    return DesiredCopies(
        component=component,
        spec=spec,
        want=want,
        keep=max(0, keep),
        floor=floor,
        current=tuple(_best_first(state, current, spec.scheduling.strategy, lost)),
        others=tuple(_best_first(state, others, spec.scheduling.strategy, lost)),
    )


def next_spec(component: InferenceComponent) -> ComponentSpec:
    """What new copies run: the specification, or the one that a rolling update goes back to."""
    assert component.spec is not None, "a base component has a spec"
    if component.rollout is not None and component.rollout.failure is not None:
        return component.previous_spec or component.spec
    return component.spec


def batch_size(component: InferenceComponent, rollout: Rollout) -> int:
    """How many copies are exchanged at once; all of them where a rollback has no batches."""
    size = rollout.policy.max_batch if rollout.failure is None else rollout.policy.rollback_batch
    return component.desired_copies if size is None else size.copies(component.desired_copies)


def exchange_size(component: InferenceComponent, rollout: Rollout) -> int:
    """How many copies may be missing at once where old and new ones have no room beside."""
    size = rollout.policy.rollback_batch if rollout.failure is not None else None
    return (size or rollout.policy.max_batch).copies(component.desired_copies)


def is_moving(state: EndpointState, copy: Copy) -> bool:
    """Whether a copy comes up on another instance for one that serves: it is not counted yet."""
    if copy.replaces is None or copy.component_name is None:
        return False
    component = state.components.get(copy.component_name)
    old = state.copies.get(copy.replaces)
    settled = component is not None and component.status is ComponentStatus.IN_SERVICE
    return settled and old is not None and not old.draining


def _in_batches(component: InferenceComponent, rollout: Rollout, ready: int) -> tuple[int, int]:
    """How many current copies a rolling update wants, and how many others it keeps."""
    desired = component.desired_copies
    if rollout.failure is not None:
        # `new_copies` of the generation that failed may still be there.
        return desired - rollout.new_copies, max(rollout.new_copies, desired - ready)
    size = batch_size(component, rollout)
    proven = (max(rollout.new_copies - 1, 0) // size) * size
    return rollout.new_copies, max(desired - proven, desired - ready)


def _is_active(state: EndpointState, deployment: Deployment) -> bool:
    endpoint = state.endpoint
    return endpoint is not None and deployment.generation == endpoint.active.generation


def _best_first(
    state: EndpointState, copies: Sequence[Copy], strategy: PlacementStrategy, lost: set[str]
) -> list[Copy]:
    """Those that serve first; then as they are to lie: one on each instance, or close together."""
    packed = strategy is PlacementStrategy.BINPACK
    nth: dict[str, int] = {}
    rank: dict[str, int] = {}
    for copy in copies:
        rank[copy.spec.id] = nth[copy.instance_id] = nth.get(copy.instance_id, 0) + 1
        if packed:
            rank[copy.spec.id] = -len(state.copies_at(copy.instance_id))
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
