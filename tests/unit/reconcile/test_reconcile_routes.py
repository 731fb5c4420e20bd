"""The routes that the gateway gets, and how it gets them."""

import asyncio

import msgspec
import pytest
from msgspec.structs import replace
from tests.unit.reconcile.samples import Town, adapter, component, deployment, endpoint, variant

from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import CopyPhase
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import RouteSnapshot
from hostelry.reconcile.plan.routes import plan_routes
from hostelry.reconcile.record import load_all
from hostelry.reconcile.route_board import RouteBoard


@pytest.mark.parametrize("status", list(EndpointStatus))
def test_only_what_serves_has_routes(town: Town, status: EndpointStatus) -> None:
    town.add(endpoint(deployment(variant(model="m"))))
    town.settle()
    town.change_endpoint(status=status)
    serving = {"InService", "Updating", "SystemUpdating", "RollingBack", "UpdateRollbackFailed"}
    assert (town.find_endpoint_route() is not None) == (status.value in serving)


@pytest.mark.parametrize("status", list(ComponentStatus))
def test_failed_and_leaving_components_have_no_routes(town: Town, status: ComponentStatus) -> None:
    town.add(endpoint(deployment(variant())), component())
    town.settle()
    town.change_component(status=status)
    assert (town.find_component_route() is not None) == (status.value not in ("Failed", "Deleting"))


def test_a_failed_component_leaves_its_reason(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(), adapter())
    town.settle()
    town.change_component(status=ComponentStatus.FAILED, failure_reason="It ran out of memory.")
    (route,) = town.routes().endpoints
    assert [(it.name, it.reason) for it in route.failed][:1] == [("base", "It ran out of memory.")]


@pytest.mark.parametrize("phase", list(CopyPhase))
def test_only_ready_copies_are_in_the_routes(town: Town, phase: CopyPhase) -> None:
    town.add(endpoint(deployment(variant())), component(copies=2))
    town.settle()
    first, second = town.routed_copies()
    town.fleet.set_phase(first, phase)
    town.turn(2)
    expected = (first, second) if phase is CopyPhase.READY else (second,)
    assert town.routed_copies() == expected


def test_equal_content_has_an_equal_version_and_other_content_another(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(copies=2), adapter())
    empty = town.routes().version
    town.settle()
    full = town.routes()
    assert full.version != empty
    assert plan_routes(reversed(load_all(town.state)), lambda _: True).version == full.version
    town.change_component(modified_at=5.0)
    assert town.routes().version == full.version
    assert msgspec.json.decode(msgspec.json.encode(full), type=RouteSnapshot) == full


def test_weights_and_strategies_are_the_endpoints_own(town: Town) -> None:
    one = replace(variant(model="m", name="one"), weight=3.0)
    two = replace(
        variant(model="m", name="two"), routing=RoutingStrategy.LEAST_OUTSTANDING_REQUESTS
    )
    town.add(endpoint(deployment(one, two)))
    town.settle()
    route = town.endpoint_route()
    shown = [(it.name, it.weight, it.routing.value, len(it.copies)) for it in route.variants]
    assert shown == [("one", 3.0, "RANDOM", 1), ("two", 1.0, "LEAST_OUTSTANDING_REQUESTS", 1)]


def test_an_image_that_is_no_llm_server_is_not_offered_to_openai_clients(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(image="sklearn"))
    town.settle()
    route = town.component_route()
    assert not route.serves_llm


def snapshot(version: str) -> RouteSnapshot:
    return RouteSnapshot(version=version, endpoints=())


async def test_the_board_shows_nothing_before_the_first_routes_and_wakes_all_who_wait() -> None:
    board = RouteBoard()
    assert board.snapshot is None
    assert await board.newer_than(None, 0.0) is None
    waiting = [asyncio.create_task(board.newer_than(it, 30)) for it in (None, "a", "old")]
    await asyncio.sleep(0)
    board.publish(snapshot("a"))
    first, second, third = waiting
    assert await first == await third == snapshot("a")
    await asyncio.sleep(0)
    board.publish(snapshot("a"))
    await asyncio.sleep(0)
    assert not second.done(), "the same version again is nothing new"
    board.publish(snapshot("b"))
    assert await second == snapshot("b")
    assert await board.newer_than("a", 30) == snapshot("b")
    assert await board.newer_than("b", 0.0) is None
    last = asyncio.create_task(board.newer_than("b", 30))
    await asyncio.sleep(0)
    board.close()
    assert await last is None, "closing lets go of everyone"
    assert await board.newer_than(None, 30) is None
