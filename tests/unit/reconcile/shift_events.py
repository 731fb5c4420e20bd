"""Guarded updates of a model endpoint, as events of a life."""

from dataclasses import replace

from tests.unit.reconcile.samples import Town, deployment, variant

from hostelry.domain.endpoint import EndpointStatus, UpdateGuard
from hostelry.domain.traffic import FleetSize, FleetUnit, TrafficPolicy, TrafficType


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


def linear_endpoint(town: Town) -> None:
    size = FleetSize(unit=FleetUnit.CAPACITY_PERCENT, value=50)
    policy = TrafficPolicy(type=TrafficType.LINEAR, size=size, wait_s=3.0)
    pending = deployment(variant(model="m4", count=4), generation=5)
    town.change_endpoint(
        status=EndpointStatus.UPDATING, pending=replace(pending, guard=UpdateGuard(traffic=policy))
    )
