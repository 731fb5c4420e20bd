"""Whole lives of endpoints on the fake fleet."""

from tests.cases import case, cases
from tests.unit.reconcile.samples import (
    NOW,
    Town,
    adapter,
    component,
    deployment,
    endpoint,
    variant,
)

from hostelry.base.errors import RetryableError, TerminalError
from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import CopyPhase, InstanceState
from hostelry.domain.endpoint import EndpointStatus


def model_endpoint(town: Town, *, count: int = 1) -> None:
    town.add(endpoint(deployment(variant(model="m", count=count))))


def test_a_model_endpoint_is_in_service_once_a_copy_on_each_instance_is_ready(town: Town) -> None:
    model_endpoint(town, count=2)
    town.switches.slow = True
    town.turn(3)
    assert town.status() is EndpointStatus.CREATING
    assert town.find_endpoint_route() is None
    for _ in range(5):
        town.fleet.tick()
        town.turn()
    assert town.status() is EndpointStatus.IN_SERVICE
    assert town.endpoint.deadline_at is None
    route = town.endpoint_route()
    assert len(route.variants[0].copies) == 2
    assert {it.owner for it in town.desired_by_instance()} == {"variant/AllTraffic"}


def test_a_component_endpoint_is_in_service_once_its_agents_answer(town: Town) -> None:
    town.add(endpoint(deployment(variant(count=3))))
    town.settle()
    assert town.status() is EndpointStatus.IN_SERVICE
    assert len(town.fleet.machines) == 3
    route = town.endpoint_route()
    assert route.takes_components
    assert route.components == ()


def test_a_component_and_its_adapter_come_into_service(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(), adapter())
    town.settle()
    assert town.status() is EndpointStatus.IN_SERVICE
    assert town.component_status() is ComponentStatus.IN_SERVICE
    assert town.component_status("spanish") is ComponentStatus.IN_SERVICE
    assert town.routed_copies() == town.routed_copies("spanish") != ()
    route = town.component_route("spanish")
    assert route.adapter_id == "spanish--g1"
    assert route.serves_llm


def test_a_failed_copy_fails_the_creation_at_once_with_its_reason_and_log(town: Town) -> None:
    model_endpoint(town)
    town.switches.slow = True
    town.turn(3)
    (copy_id,) = town.running_copies()
    town.fleet.crash_copy(copy_id, "the model server ended with code 1", "x" * 5000 + "\nBoom")
    town.turn(2)
    reason = town.endpoint.failure_reason or ""
    assert town.status() is EndpointStatus.FAILED
    assert reason.startswith("the model server ended with code 1")
    assert reason.endswith("Boom")
    assert len(reason) <= 1024
    town.settle()
    assert town.fleet.machines == {}, "a failed endpoint holds no instances"


def test_an_agent_that_cannot_start_fails_the_creation(town: Town) -> None:
    town.switches.launch_error = TerminalError("no Python here")
    model_endpoint(town)
    town.turn(3)
    assert town.status() is EndpointStatus.FAILED
    assert "no Python here" in (town.endpoint.failure_reason or "")


@cases("count, limit", case("no machine at all", 1, 0), case("one machine too few", 3, 2))
def test_a_fleet_without_room_fails_the_creation_at_its_deadline(
    town: Town, count: int, limit: int
) -> None:
    town.switches.max_instances = limit
    model_endpoint(town, count=count)
    town.turn(20)
    assert town.status() is EndpointStatus.CREATING
    deadline_at = town.endpoint.deadline_at
    assert deadline_at is not None
    town.clock.advance(deadline_at - town.clock.now())
    town.turn()
    reason = town.endpoint.failure_reason or ""
    assert reason.startswith(f"CapacityError: timed out with {limit} of {count} instances")
    assert "all" in reason
    assert "machines are taken" in reason
    town.settle()
    assert town.fleet.machines == {}


def test_a_launch_that_hangs_ends_with_the_delete(town: Town) -> None:
    town.switches.hang = True
    model_endpoint(town)
    town.pass_once()
    assert len(town.instances()) == 1
    town.change_endpoint(status=EndpointStatus.DELETING)
    town.settle()
    assert town.find_endpoint() is None
    assert town.instances() == []


def test_a_copy_that_restarts_leaves_the_routes_meanwhile(town: Town) -> None:
    model_endpoint(town)
    town.settle()
    (copy_id,) = town.running_copies()
    town.fleet.set_phase(copy_id, CopyPhase.STARTING)
    town.turn(2)
    route = town.endpoint_route()
    assert route.variants[0].copies == ()
    assert town.status() is EndpointStatus.IN_SERVICE
    town.fleet.set_phase(copy_id, CopyPhase.READY)
    town.turn(2)
    route = town.endpoint_route()
    assert [it.id for it in route.variants[0].copies] == [copy_id]


def test_a_copy_that_gave_up_in_service_is_replaced_after_a_while(town: Town) -> None:
    model_endpoint(town)
    town.settle()
    (copy_id,) = town.running_copies()
    town.clock.advance(60)
    town.fleet.crash_copy(copy_id, "gone")
    town.settle()
    (replacement,) = town.running_copies()
    assert replacement != copy_id
    assert town.status() is EndpointStatus.IN_SERVICE


def test_a_dead_agent_is_started_again_and_its_copies_stay_in_the_routes(town: Town) -> None:
    model_endpoint(town)
    town.settle()
    before = town.endpoint_route()
    ((instance_id, machine),) = town.fleet.machines.items()
    town.fleet.kill_agent(instance_id)
    for _ in range(4):
        town.turn()
        assert town.endpoint_route() == before
    assert machine.life == 2
    assert machine.started == 1, "the copy was adopted"
    ((_, state),) = town.instances()
    assert state is InstanceState.RUNNING


def test_an_instance_that_vanished_comes_back_empty_and_is_filled_again(town: Town) -> None:
    model_endpoint(town)
    town.settle()
    ((instance_id, _),) = town.fleet.machines.items()
    town.fleet.lose(instance_id)
    town.settle()
    route = town.endpoint_route()
    assert len(route.variants[0].copies) == 1
    assert town.fleet.machines[instance_id].started == 1


@cases(
    "error",
    case("that says so", TerminalError("its disk is gone")),
    case("that never answers", RetryableError("no answer")),
)
def test_an_instance_that_cannot_be_started_again_is_replaced(town: Town, error: Exception) -> None:
    model_endpoint(town)
    town.settle()
    ((broken, _),) = town.fleet.machines.items()
    town.fleet.kill_agent(broken)
    town.switches.launch_error = error
    town.turn(15)
    town.switches.launch_error = None
    town.settle()
    assert broken in town.fleet.terminated
    assert len(town.fleet.machines) == 1
    assert town.status() is EndpointStatus.IN_SERVICE
    route = town.endpoint_route()
    assert len(route.variants[0].copies) == 1


def test_a_new_control_adopts_what_runs_without_starting_anything(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(copies=2), adapter())
    town.settle()
    routes, started = town.routes(), town.fleet.num_copies_started
    town.restart_control()
    for _ in range(5):
        town.turn()
        assert town.routes() == routes
    assert town.fleet.num_copies_started == started
    assert {it.life for it in town.fleet.machines.values()} == {1}


def test_deadlines_are_set_where_the_record_has_none_and_cleared_in_final_statuses(
    town: Town,
) -> None:
    town.switches.max_instances = 0
    town.add(endpoint(deployment(variant())), component(), adapter())
    town.turn()
    for record in (town.endpoint, town.component(), town.component("spanish")):
        assert record.deadline_at is not None
        assert record.deadline_at > NOW
    town.switches.max_instances = 9
    town.settle()
    for record in (town.endpoint, town.component(), town.component("spanish")):
        assert record.deadline_at is None


def test_a_delete_that_the_fleet_cannot_do_fails_with_what_is_left_and_may_be_repeated(
    town: Town,
) -> None:
    model_endpoint(town)
    town.settle()
    town.switches.terminate_error = RetryableError("busy")
    town.change_endpoint(status=EndpointStatus.DELETING)
    town.turn(5)
    assert town.status() is EndpointStatus.DELETING
    assert town.find_endpoint_route() is None
    town.clock.advance(1000)
    town.turn()
    assert town.status() is EndpointStatus.FAILED
    assert "could not be terminated" in (town.endpoint.failure_reason or "")
    town.switches.terminate_error = None
    town.change_endpoint(status=EndpointStatus.DELETING)
    town.settle()
    assert town.find_endpoint() is None
    assert town.fleet.machines == {}
