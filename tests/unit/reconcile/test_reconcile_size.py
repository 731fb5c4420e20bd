"""A thousand copies on a hundred instances, planned as one endpoint."""

import itertools
from dataclasses import replace

from tests.unit.reconcile.samples import (
    GB,
    NOW,
    component,
    deployment,
    endpoint,
    get_shape,
    needs,
    variant,
)

from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import CopyPhase
from hostelry.fleet.protocol import Observation
from hostelry.reconcile.plan.endpoint_state import (
    EndpointState,
    InstanceFacts,
    PlanContext,
    build_state,
)
from hostelry.reconcile.plan.plan import desired_by_instance, next_plan_at, plan

NUM_COMPONENTS, COPIES_EACH, NUM_INSTANCES = 50, 20, 100


def context(now: float) -> PlanContext:
    numbers = itertools.count(int((now - NOW) * 10_000))
    return PlanContext(
        now=now,
        new_instance_id=lambda: f"i-{next(numbers):07}",
        new_copy_id=lambda: f"c-{next(numbers):07}",
        get_shape=get_shape,
    )


def town_hall() -> EndpointState:
    """The desired state, with nothing observed yet."""
    components = [
        component(
            f"m{number:02}",
            copies=COPIES_EACH,
            requirements=needs(accelerators=number % 5 // 4, memory_gb=1 + number % 9),
        )
        for number in range(NUM_COMPONENTS)
    ]
    return build_state(
        endpoint(deployment(variant(count=NUM_INSTANCES))), {it.name: it for it in components}
    )


def observed(state: EndpointState) -> EndpointState:
    """The state with every copy seen ready by its agent."""
    facts = {}
    for instance_id in state.instances:
        copies = state.list_copies_at(instance_id)
        seen = tuple(
            replace(copy.status, phase=CopyPhase.READY, address=f"http://{copy.spec.id}")
            for copy in copies
        )
        facts[instance_id] = InstanceFacts(
            address=f"http://{instance_id}",
            observation=Observation(instance_id=instance_id, version="1", copies=seen),
            applied=frozenset(it.spec.id for it in copies),
        )
    return replace(state, facts=facts)


def test_all_are_placed_at_once_within_what_is_declared() -> None:
    state = plan(town_hall(), context(NOW))
    assert len(state.copies) == NUM_COMPONENTS * COPIES_EACH
    assert len(state.instances) == NUM_INSTANCES
    for instance in state.instances.values():
        held = [it.spec.requirements for it in state.list_copies_at(instance.id)]
        assert sum(it.min_memory_bytes for it in held if it) <= 192 * GB
        assert sum(it.accelerators for it in held if it) <= instance.shape.accelerators
        copies = state.list_copies_at(instance.id)
        devices = [device for it in copies for device in it.spec.device_ids]
        assert len(devices) == len(set(devices))


def test_a_plan_of_a_settled_state_creates_nothing() -> None:
    """Which is why looking at a large fleet once more costs next to nothing."""
    state = plan(observed(plan(town_hall(), context(NOW))), context(NOW + 1))
    statuses = {it.status for it in state.components.values()}
    assert statuses == {ComponentStatus.IN_SERVICE}
    again = plan(state, context(NOW + 2))
    assert again == state
    assert all(again.copies[it] is copy for it, copy in state.copies.items())
    assert next_plan_at(state, context(NOW + 2)) is None
    assert sum(len(it or ()) for it in desired_by_instance(state, NOW + 2).values()) == len(
        state.copies
    )
