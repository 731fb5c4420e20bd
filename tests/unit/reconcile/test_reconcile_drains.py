"""A draining copy is stopped once it has no open connection, or at its time limit."""

from collections.abc import Callable

from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.samples import (
    SCOPE,
    Town,
    adapter,
    component,
    deployment,
    endpoint,
    variant,
)

from hostelry.domain.async_request import AsyncInference
from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import CopyPhase
from hostelry.domain.endpoint import EndpointStatus
from hostelry.reconcile.plan.endpoint_state import DELETE_DRAIN_S, DRAIN_S, MAX_DRAIN_S


def begin(town: Town, still_open: int) -> str:
    """Scale a component from two copies to one. Returns the surplus copy, with connections."""
    town.add(endpoint(deployment(variant())), component(copies=2), adapter())
    town.settle()
    for copy_id in town.running_copies():
        town.switches.open_connections[copy_id] = still_open
    town.change_component(status=ComponentStatus.UPDATING, desired_copies=1)
    town.turn(3)
    (going,) = set(town.running_copies()) - set(town.routed_copies())
    return going


def report_connections(town: Town, copy_id: str, still_open: int) -> None:
    town.switches.open_connections[copy_id] = still_open
    town.fleet.tick()


def test_it_runs_on_while_a_connection_is_open_and_no_longer(town: Town) -> None:
    going = begin(town, still_open=2)
    town.turn(100, seconds=1.0)
    assert going in town.running_copies()
    assert town.component_status() is ComponentStatus.IN_SERVICE, "which nobody waits for"
    report_connections(town, going, 0)
    town.turn(3)
    assert going not in town.running_copies()
    assert len(town.copy_records()) == 1


def test_how_many_connections_are_open_is_not_worth_a_write(town: Town) -> None:
    going = begin(town, still_open=7)
    town.turn(5, seconds=1.0)
    revision = town.state.store.revision()
    for count in (6, 3, 1):
        report_connections(town, going, count)
        town.turn(2)
    assert town.state.store.revision() == revision


@cases(
    "left_s, runs",
    case("a moment before the limit", 1.0, True),
    case("after the limit", -1.0, False),
)
def test_a_connection_that_never_ends_is_cut_at_the_limit(
    town: Town, left_s: float, runs: bool
) -> None:
    going = begin(town, still_open=1)
    (copy,) = [it for it in town.copy_records() if it.spec.id == going]
    assert copy.drain_started_at is not None
    town.clock.advance(copy.drain_started_at + MAX_DRAIN_S - left_s - town.clock.now())
    town.turn(2, seconds=0.01)
    assert (going in town.running_copies()) is runs


def test_a_copy_of_an_asynchronous_endpoint_may_finish_a_request_of_an_hour(town: Town) -> None:
    made = deployment(variant(model="m", count=2))
    settings = AsyncInference(output_uri="s3://out/x")
    queued = replace(made, config=replace(made.config, async_inference=settings))
    town.add(endpoint(queued))
    town.settle()
    for copy_id in town.running_copies():
        town.switches.open_connections[copy_id] = 1
    fewer = tuple(replace(it, desired_instance_count=1) for it in queued.variants)
    town.change_endpoint(status=EndpointStatus.UPDATING, active=replace(queued, variants=fewer))
    town.turn(3)
    town.clock.advance(3600)
    town.turn(2)
    assert len(town.running_copies()) == 2
    town.clock.advance(20)
    town.turn(3)
    assert len(town.running_copies()) == 1


def test_a_delete_waits_less(town: Town) -> None:
    begin(town, still_open=1)
    for name in ("spanish", "base"):
        town.change_component(name, status=ComponentStatus.DELETING, modified_at=town.clock.now())
    town.turn(2)
    assert len(town.running_copies()) == 2
    town.clock.advance(DELETE_DRAIN_S)
    town.turn(4)
    assert town.running_copies() == {}
    assert town.find_component() is None


def silent_agent(town: Town, copy_id: str) -> None:
    """The agent dies with its report of open connections."""
    machine = next(it for it in town.fleet.machines.values() if copy_id in it.copies)
    town.switches.hung_instances.add(machine.instance_id)


def crash(town: Town, copy_id: str) -> None:
    town.fleet.set_phase(copy_id, CopyPhase.STARTING)


def delete_endpoint(town: Town, copy_id: str) -> None:
    assert copy_id
    town.change_endpoint(status=EndpointStatus.DELETING)


@cases(
    "event", case("whose process ends", crash), case("whose endpoint is deleted", delete_endpoint)
)
def test_a_copy_is_not_waited_for(town: Town, event: Callable[[Town, str], None]) -> None:
    going = begin(town, still_open=1)
    event(town, going)
    town.turn(5, seconds=1.0)
    assert going not in town.running_copies()


def test_one_that_its_agents_successor_proves_again_goes_on(town: Town) -> None:
    """It answered all the while: its requests do not depend on the agent."""
    going = begin(town, still_open=1)
    town.fleet.set_phase(going, CopyPhase.PROVING)
    town.turn(20, seconds=1.0)
    assert going in town.running_copies()
    town.fleet.tick()  # it is proven
    report_connections(town, going, 0)
    town.turn(3)
    assert going not in town.running_copies()


HOUR_S = 3600.0


@cases(
    "still_open, runs_s, ends_s",
    case("nothing is open: it goes as soon as ever", 0, 0.0, 10.0),
    case("it is waited for, and no longer than else", 1, 60.0, MAX_DRAIN_S + 10.0),
)
def test_a_clock_that_is_set_back_an_hour_makes_no_drain_longer(
    town: Town, still_open: int, runs_s: float, ends_s: float
) -> None:
    going = begin(town, still_open)
    town.clock.advance(-HOUR_S)
    town.turn(2, seconds=runs_s / 2)
    assert going in town.running_copies() or not runs_s
    town.turn(4, seconds=(ends_s - runs_s) / 4)
    town.turn(2)
    assert going not in town.running_copies()
    town.turn(4, seconds=30.0)
    assert [it.spec.id for it in town.copy_records()] == list(town.running_copies())


def test_a_clock_that_is_set_back_starts_nothing_that_was_stopped_again(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component())
    town.settle()
    (stopped,) = town.routed_copies()
    town.fleet.set_phase(stopped, CopyPhase.STARTING)
    town.turn()
    town.change_component(status=ComponentStatus.UPDATING, desired_copies=0)
    town.pass_once()
    town.clock.advance(-HOUR_S)
    town.turn(3)
    assert town.desired_by_instance() == []
    assert town.running_copies() == {}


def test_an_agent_without_a_report_is_given_a_moment(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component())
    town.settle()
    (going,) = town.routed_copies()
    silent_agent(town, going)
    town.change_component(status=ComponentStatus.UPDATING, desired_copies=0)
    town.turn()
    town.clock.advance(DRAIN_S)
    town.turn()
    assert [it.spec.id for it in town.copy_records()] == [going]
    town.turn(10, seconds=2.0)
    assert town.copy_records() == []
    town.switches.hung_instances.clear()
    town.settle()
    assert town.running_copies() == {}, "the agent stops them once it answers again"


def test_control_that_restarts_keeps_waiting(town: Town) -> None:
    going = begin(town, still_open=1)
    town.restart_control()
    town.turn(20, seconds=1.0)
    assert going in town.running_copies()
    report_connections(town, going, 0)
    town.turn(3)
    assert going not in town.running_copies()


def test_a_component_is_in_service_only_after_its_surplus_has_left_the_routes(town: Town) -> None:
    """Each write is seen by itself: never InService with more copies than are desired."""
    town.add(endpoint(deployment(variant())), component(copies=3))
    town.settle()
    town.change_component(status=ComponentStatus.UPDATING, desired_copies=0)
    town.pass_once()
    assert town.component_status() is ComponentStatus.IN_SERVICE
    settled = town.state.components.get(SCOPE, "base")
    copies = town.state.copies.list(SCOPE)
    assert settled is not None
    assert [it.value.draining for it in copies] == [True] * 3
    assert settled.version > max(it.version for it in copies)
