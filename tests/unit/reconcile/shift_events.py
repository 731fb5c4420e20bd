"""Updates of a model endpoint, as events of a life."""

from dataclasses import replace

from tests.unit.reconcile.samples import Town, deployment, variant

from hostelry.domain.endpoint import EndpointStatus, UpdateGuard
from hostelry.domain.traffic import FleetSize, FleetUnit, TrafficPolicy, TrafficType


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
    """One instance after the other of two, where there is room for three."""
    town.switches.max_instances = 3
    size = FleetSize(unit=FleetUnit.INSTANCE_COUNT, value=1)
    policy = TrafficPolicy(type=TrafficType.ROLLING, size=size, wait_s=1.0, rollback_size=size)
    pending = deployment(variant(model="m3", count=2), generation=4)
    guarded = replace(pending, started_at=town.clock.now(), guard=UpdateGuard(traffic=policy))
    town.change_endpoint(status=EndpointStatus.UPDATING, pending=guarded)


def go_on(town: Town) -> None:
    """Nothing: what is under way has further time."""


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
