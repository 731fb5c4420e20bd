"""The instances that cost something, and the shares that copies reserve."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from tests.unit.reconcile.samples import Town, component, deployment, endpoint, needs, variant

from hostelry.cost.holding import HeldInstance
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.serverless import ServerlessConfig
from hostelry.reconcile.holdings import list_held
from hostelry.reconcile.record import load_all


@pytest.fixture
def town() -> Iterator[Town]:
    found = Town()
    yield found
    found.close()


def held(town: Town) -> list[HeldInstance]:
    return list(list_held(load_all(town.state)))


def test_components_have_the_shares_that_they_reserve(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(copies=2, requirements=needs(1, 2, 3)))
    town.settle()
    (instance,) = held(town)
    shape = town.instance_records()[0].shape
    assert instance.shares == {"base": pytest.approx(2 / shape.accelerators)}
    assert (instance.endpoint, instance.variant) == ("ep", "AllTraffic")
    assert instance.since == town.instance_records()[0].created_at


def test_a_model_has_whole_instances_until_they_have_ended(town: Town) -> None:
    town.add(endpoint(deployment(variant(model="m", count=3))))
    assert held(town) == [], "no agent has answered"
    town.settle()
    assert [it.shares for it in held(town)] == [{None: 1.0}] * 3
    town.change_endpoint(status=EndpointStatus.DELETING)
    assert len(held(town)) == 3
    town.settle()
    assert held(town) == []


def test_instances_of_serverless_variants_are_left_out(town: Town) -> None:
    town.add(endpoint(deployment(variant(model="m", count=1))))
    town.settle()
    active = town.endpoint.active
    config = ServerlessConfig(memory_mb=1024, max_concurrency=1)
    variants = tuple(replace(it, serverless=config) for it in active.variants)
    town.change_endpoint(active=replace(active, variants=variants))
    assert held(town) == []
