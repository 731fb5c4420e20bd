"""The whole plan of one endpoint: from what is recorded and observed to what should be recorded.

Pure and idempotent: a plan made again from its own result, with nothing new observed, changes
nothing. `wishes` is what the agents are to run then, `next_look_at` when time alone matters next.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from hostelry.domain.copy import Copy, CopyPhase, CopySpec, InstanceState
from hostelry.reconcile.adapters import adapter_leaves_at
from hostelry.reconcile.deadlines import with_deadlines
from hostelry.reconcile.guards import bake_instants
from hostelry.reconcile.observed import with_observations
from hostelry.reconcile.plan_adapter import FORGET_S, plan_adapter
from hostelry.reconcile.plan_component import plan_component
from hostelry.reconcile.plan_component_copies import plan_component_copies
from hostelry.reconcile.plan_copies import plan_adapters_on_copies, plan_model_copies, retry_at
from hostelry.reconcile.plan_drains import drain_instants, plan_drains
from hostelry.reconcile.plan_endpoint import plan_endpoint, reuse_instances
from hostelry.reconcile.plan_instances import launch_instants, plan_instances
from hostelry.reconcile.plan_moves import move_instants, plan_moves
from hostelry.reconcile.plan_rollout import plan_rollouts, rollout_instants
from hostelry.reconcile.plan_scale_in import plan_scale_in, scale_in_instants
from hostelry.reconcile.world import LOST_S, Givens, World, drained

MAX_ROUNDS = 50
FORGET_UNTOLD_S = 10.0
FORGET_TOLD_S = 60.0

Stage = Callable[[World, Givens], World]


def plan(world: World, givens: Givens) -> World:
    """The world as it should be recorded now."""
    world = with_observations(world, givens.now)
    for _ in range(MAX_ROUNDS):
        after = _round(world, givens)
        if after == world:
            return world
        world = after
    raise AssertionError(f"the plan of {world.endpoint} does not settle")


def wishes(world: World, now: float) -> dict[str, tuple[CopySpec, ...] | None]:
    """What each instance's agent is to run, by instance id; None: the instance is to end.

    An instance on its way out goes on until its last copy has drained.
    """
    wanted = {
        instance_id: tuple(
            it.spec
            for it in sorted(world.copies_at(instance_id), key=lambda it: it.spec.id)
            if _is_kept(it, now)
        )
        for instance_id in world.instances
    }
    return {
        instance_id: None if _is_ending(world, instance_id) and not specs else specs
        for instance_id, specs in wanted.items()
    }


def next_look_at(world: World, givens: Givens) -> float | None:
    """When this world should be planned again though nothing happened; None: never."""
    return min((at for at in _instants(world, givens) if at > givens.now), default=None)


def _round(world: World, givens: Givens) -> World:
    for stage in STAGES:
        world = stage(world, givens)
    return world


def _plan_components(world: World, givens: Givens) -> World:
    for name, component in sorted(world.components.items()):
        step = plan_component if component.adapter is None else plan_adapter
        after = step(world, component, givens)
        if after is None:
            left = {it: value for it, value in world.components.items() if it != name}
            world = replace(world, components=left)
        else:
            world = world.with_component(after)
    return world


def _without_gone(world: World, givens: Givens) -> World:
    """Forgets instances that have ended with their copies, and copies that their agents stopped."""
    ended = {
        it.id
        for it in world.instances.values()
        if it.state is InstanceState.TERMINATING and world.facts_of(it.id).gone
    }
    if ended:
        left = {name: it for name, it in world.instances.items() if name not in ended}
        world = replace(world, instances=left)
    gone = {name for name, it in world.copies.items() if _is_gone(world, it, givens.now)}
    if not gone:
        return world
    return replace(world, copies={it: one for it, one in world.copies.items() if it not in gone})


def _is_gone(world: World, copy: Copy, now: float) -> bool:
    if copy.instance_id not in world.instances:
        return True
    if copy.drain_deadline_at is None or _is_kept(copy, now):
        return False
    facts = world.facts_of(copy.instance_id)
    told = facts.observation is not None and copy.spec.id not in facts.applied
    # An agent out of reach will be told whenever it answers again: a delete need not wait for it.
    if now >= copy.drain_deadline_at + (FORGET_TOLD_S if told else FORGET_UNTOLD_S):
        return True
    if facts.observation is None or _is_ending(world, copy.instance_id):
        return False
    running = {it.id for it in facts.observation.copies}
    return told and copy.spec.id not in running


def _without_homeless(world: World, givens: Givens) -> World:
    """Copies whose component is gone leave, should a write have been lost between the two."""
    homeless = [
        it
        for it in world.copies.values()
        if it.component_name is not None and it.component_name not in world.components
    ]
    return world.with_copies([drained(it, givens) for it in homeless])


def _is_kept(copy: Copy, now: float) -> bool:
    return copy.drain_deadline_at is None or now < copy.drain_deadline_at


def _is_ending(world: World, instance_id: str) -> bool:
    return world.instances[instance_id].state is InstanceState.TERMINATING


def _instants(world: World, givens: Givens) -> Iterator[float]:
    for record in (world.endpoint, *world.components.values()):
        if record is not None and record.deadline_at is not None:
            yield record.deadline_at
    yield from bake_instants(world, givens)
    for component in world.components.values():
        yield from rollout_instants(component, givens)
        if component.adapter is not None:
            yield adapter_leaves_at(component)
            yield adapter_leaves_at(component) + FORGET_S
    for copy in world.copies.values():
        yield from _copy_instants(copy)
    for facts in world.facts.values():
        if facts.unreachable_since is not None:
            yield facts.unreachable_since + LOST_S
    yield from launch_instants(world, givens)
    yield from scale_in_instants(world, givens)


def _copy_instants(copy: Copy) -> Iterator[float]:
    yield from drain_instants(copy)
    yield from move_instants(copy)
    if copy.drain_deadline_at is not None:
        yield copy.drain_deadline_at
        yield copy.drain_deadline_at + FORGET_UNTOLD_S
        yield copy.drain_deadline_at + FORGET_TOLD_S
    if copy.status.phase is CopyPhase.FAILED:
        yield retry_at(copy)


def _deadlines(world: World, givens: Givens) -> World:
    return with_deadlines(world, givens.now)


def _reuse(world: World, givens: Givens) -> World:
    return reuse_instances(world)


STAGES: tuple[Stage, ...] = (
    _deadlines,
    _reuse,
    plan_instances,
    _without_homeless,
    plan_model_copies,
    plan_rollouts,
    plan_component_copies,
    plan_adapters_on_copies,
    _plan_components,
    plan_endpoint,
    plan_moves,
    plan_scale_in,
    plan_drains,
    _without_gone,
)
