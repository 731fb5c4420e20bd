"""Operator's acts, and updates of a model endpoint, as events in the life of a town."""

import contextlib
import random
from collections.abc import Callable

from msgspec.structs import replace
from tests.unit.reconcile.samples import KEY, SCOPE, Town, deployment, variant

from hostelry.base.errors import ServiceError
from hostelry.domain.endpoint import Endpoint, EndpointStatus, UpdateGuard
from hostelry.domain.traffic import FleetSize, FleetUnit, TrafficPolicy, TrafficType
from hostelry.reconcile.acts.act import PlannedAct
from hostelry.reconcile.acts.drain import plan_drain, plan_undrain
from hostelry.reconcile.acts.restart import plan_restart
from hostelry.reconcile.plan.endpoint_state import EndpointState
from hostelry.reconcile.record import load


def ask(town: Town, decide: Callable[[EndpointState], PlannedAct]) -> PlannedAct:
    loaded = load(town.state, KEY, town.facts())
    act = decide(loaded.state)
    record = act.record
    if isinstance(record, Endpoint):
        expect = loaded.versions["endpoint"][record.name]
        town.state.endpoints.put(SCOPE, record.name, record, expect=expect)
    elif record is not None:
        expect = loaded.versions["instance"][record.id]
        town.state.instances.put(SCOPE, record.id, record, expect=expect)
    return act


def restart(town: Town, *, component: str | None = None, copy_id: str | None = None) -> PlannedAct:
    context = town.context()
    return ask(town, lambda it: plan_restart(it, context, component=component, copy_id=copy_id))


def drain(town: Town, instance_id: str) -> PlannedAct:
    context = town.context()
    return ask(town, lambda it: plan_drain(it, instance_id, context))


def undrain(town: Town, instance_id: str) -> PlannedAct:
    return ask(town, lambda it: plan_undrain(it, instance_id))


def restart_all(town: Town) -> None:
    """Restart all copies, if the endpoint allows it now."""
    with contextlib.suppress(ServiceError):
        restart(town)


def drain_first(town: Town) -> None:
    """Drain the oldest instance, if the endpoint allows it now."""
    oldest = sorted(it.id for it in town.instance_records())[:1]
    for instance_id in oldest:
        with contextlib.suppress(ServiceError):
            drain(town, instance_id)


def cancel_drains(town: Town) -> None:
    for instance in town.instance_records():
        if instance.drain_since is not None:
            with contextlib.suppress(ServiceError):
                undrain(town, instance.id)


def restart_and_drain(town: Town) -> None:
    restart_all(town)
    drain_first(town)


def drain_and_cancel(town: Town) -> None:
    drain_first(town)
    town.turn(1)
    cancel_drains(town)


def restart_any(town: Town, dice: random.Random) -> None:
    with contextlib.suppress(ServiceError):
        restart(town, copy_id=dice.choice([None, *sorted(town.running_copies())]))


def drain_any(town: Town, dice: random.Random) -> None:
    for instance in town.instance_records():
        if dice.random() < 0.5:
            with contextlib.suppress(ServiceError):
                drain(town, instance.id)


def cancel_any(town: Town, dice: random.Random) -> None:
    cancel_drains(town)


MISFORTUNES = (restart_any, drain_any, cancel_any)
ALL = [restart_all, drain_first, restart_and_drain, drain_and_cancel]


def update_endpoint(town: Town) -> None:
    pending = deployment(variant(model="m2", count=1), generation=2)
    town.change_endpoint(status=EndpointStatus.UPDATING, pending=pending)


def bake_endpoint(town: Town) -> None:
    pending = deployment(variant(model="m2", count=1), generation=3)
    guarded = replace(pending, guard=UpdateGuard(bake_s=4.0))
    town.change_endpoint(status=EndpointStatus.UPDATING, pending=guarded)


def canary_endpoint(town: Town) -> None:
    size = FleetSize(unit=FleetUnit.INSTANCE_COUNT, value=1)
    policy = TrafficPolicy(type=TrafficType.CANARY, size=size, wait_s=3.0)
    pending = deployment(variant(model="m3", count=2), generation=4)
    guarded = replace(pending, guard=UpdateGuard(bake_s=2.0, traffic=policy))
    town.change_endpoint(status=EndpointStatus.UPDATING, pending=guarded)


def roll_endpoint(town: Town) -> None:
    """Update two instances one after another, with room for three."""
    town.switches.max_instances = 3
    size = FleetSize(unit=FleetUnit.INSTANCE_COUNT, value=1)
    policy = TrafficPolicy(type=TrafficType.ROLLING, size=size, wait_s=1.0, rollback_size=size)
    pending = deployment(variant(model="m3", count=2), generation=4)
    guarded = replace(pending, started_at=town.clock.now(), guard=UpdateGuard(traffic=policy))
    town.change_endpoint(status=EndpointStatus.UPDATING, pending=guarded)


def go_on(town: Town) -> None:
    """Do nothing, so that changes under way have more time."""


def linear_endpoint(town: Town) -> None:
    size = FleetSize(unit=FleetUnit.CAPACITY_PERCENT, value=50)
    policy = TrafficPolicy(type=TrafficType.LINEAR, size=size, wait_s=3.0)
    pending = deployment(variant(model="m4", count=4), generation=5)
    town.change_endpoint(
        status=EndpointStatus.UPDATING, pending=replace(pending, guard=UpdateGuard(traffic=policy))
    )


ON_TRIAL = (update_endpoint, bake_endpoint)
IN_STEPS = (canary_endpoint, linear_endpoint)
IN_BATCHES = (roll_endpoint, go_on)
