"""Adapter components: on every copy of the base before traffic, switched without a gap."""

from tests.unit.reconcile.samples import (
    Town,
    adapter,
    adapter_spec,
    component,
    deployment,
    endpoint,
    variant,
)

from hostelry.base.errors import RetryableError
from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import AdapterPhase
from hostelry.reconcile.plan.adapters import FORGET_S
from hostelry.reconcile.plan.endpoint_state import DRAIN_S

IN_SERVICE = ComponentStatus.IN_SERVICE
BAD = "s3://b/bad.tar.gz"


def serving(town: Town, copies: int = 2) -> None:
    town.add(endpoint(deployment(variant())), component(copies=copies))
    town.settle()
    assert town.component_status() is IN_SERVICE


def reason(town: Town, name: str = "spanish") -> str:
    found = town.component(name)
    return found.failure_reason or ""


def registered(town: Town) -> set[str]:
    return {
        adapter.id
        for status in town.running_copies().values()
        for adapter in status.adapters
        if adapter.phase is AdapterPhase.READY
    }


def update(town: Town, uri: str) -> None:
    """New weights, as UpdateInferenceComponent records them."""
    found = town.component("spanish")
    assert found.adapter is not None
    town.change_component(
        "spanish",
        status=ComponentStatus.UPDATING,
        adapter=adapter_spec(uri, found.adapter.generation + 5),
        previous_adapter=found.adapter,
        modified_at=town.clock.now(),
    )


def test_an_adapter_joins_the_running_copies_without_taking_them_out(town: Town) -> None:
    serving(town)
    before, started = town.routed_copies(), town.fleet.num_copies_started
    town.add(adapter(), adapter("pirate", uri="s3://b/p.tar.gz"))
    for _ in range(20):
        town.turn()
        assert town.routed_copies() == before
    assert town.fleet.num_copies_started == started
    assert town.component_status("spanish") is IN_SERVICE
    assert town.component_status("pirate") is IN_SERVICE
    assert town.routed_copies("spanish") == town.routed_copies("pirate") == before
    assert registered(town) == {"spanish--g1", "pirate--g1"}


def test_an_adapter_that_a_copy_refuses_fails_with_its_reason_and_leaves_the_base_alone(
    town: Town,
) -> None:
    serving(town)
    before = town.routed_copies()
    town.switches.broken_adapters[BAD] = "rank 64 is larger than the limit of 16"
    town.add(adapter(uri=BAD))
    town.settle()
    assert town.component_status("spanish") is ComponentStatus.FAILED
    assert reason(town) == "rank 64 is larger than the limit of 16"
    assert town.find_component_route("spanish") is None
    assert town.routed_copies() == before
    assert all(spec.adapters == () for spec in town.desired_by_instance())


def test_a_new_base_copy_takes_traffic_only_with_its_adapters(town: Town) -> None:
    serving(town, copies=1)
    town.add(adapter())
    town.settle()
    town.switches.slow = True
    town.change_component(status=ComponentStatus.UPDATING, desired_copies=2)
    town.turn(2)
    for _ in range(4):
        town.fleet.tick()
        town.turn()
    ready = [it for it in town.running_copies().values() if it.phase.value == "ready"]
    assert len(ready) == 2
    assert len(town.routed_copies()) == 1, "its adapter is not registered yet"
    town.fleet.tick()
    town.turn(2)
    assert len(town.routed_copies()) == len(town.routed_copies("spanish")) == 2


def test_a_new_base_copy_is_not_held_up_by_an_adapter_that_it_refuses(town: Town) -> None:
    serving(town, copies=1)
    town.add(adapter(uri=BAD))
    town.settle()
    town.switches.broken_adapters[BAD] = "the object is gone"
    town.change_component(status=ComponentStatus.UPDATING, desired_copies=2)
    town.settle()
    assert town.component_status() is IN_SERVICE
    assert town.component_status("spanish") is IN_SERVICE
    assert len(town.routed_copies()) == 2
    assert len(town.routed_copies("spanish")) == 1
    assert reason(town) == "the object is gone"


def test_an_update_registers_beside_the_old_then_switches_then_removes(town: Town) -> None:
    serving(town)
    town.add(adapter())
    town.settle()
    update(town, "s3://b/new.tar.gz")
    ids: list[str | None] = []
    for _ in range(60):
        town.turn()
        route = town.component_route("spanish")
        assert len(route.copies) == 2
        ids.append(route.adapter_id)
        assert route.adapter_id in registered(town)
        if route.adapter_id == "spanish--g6" and ids.count("spanish--g6") < 10:
            assert "spanish--g1" in registered(town), "requests on their way still find it"
    assert ids[0] == "spanish--g1"
    assert ids[-1] == "spanish--g6"
    assert registered(town) == {"spanish--g6"}
    assert town.component_status("spanish") is IN_SERVICE


def test_an_update_that_a_copy_refuses_goes_on_with_the_old_adapter(town: Town) -> None:
    serving(town)
    town.add(adapter())
    town.settle()
    town.switches.broken_adapters[BAD] = "no adapter_config.json in the archive"
    update(town, BAD)
    for _ in range(60):
        town.turn()
        route = town.component_route("spanish")
        assert route.adapter_id == "spanish--g1"
        assert len(route.copies) == 2
    assert town.component_status("spanish") is IN_SERVICE
    assert reason(town) == "no adapter_config.json in the archive"
    assert registered(town) == {"spanish--g1"}


def test_an_adapter_waits_for_its_base_and_fails_at_its_deadline(town: Town) -> None:
    town.switches.slow = True
    town.add(endpoint(deployment(variant())), component(), adapter())
    town.turn(3)
    assert town.component_status("spanish") is ComponentStatus.CREATING
    town.change_component(deadline_at=town.clock.now() + 1e6)
    town.clock.advance(10_000)
    town.turn()
    assert town.component_status("spanish") is ComponentStatus.FAILED
    assert reason(town) == ("Timed out: no copy of the base base is ready to take the adapter.")


def test_a_deleted_adapter_leaves_the_routes_first_and_the_copies_after(town: Town) -> None:
    serving(town)
    town.add(adapter())
    town.settle()
    town.change_component("spanish", status=ComponentStatus.DELETING, modified_at=town.clock.now())
    town.turn()
    assert town.find_component_route("spanish") is None
    assert registered(town) == {"spanish--g1"}
    town.turn(5, seconds=1.0)
    assert town.find_component("spanish") is None
    assert registered(town) == set()
    assert town.component_status() is IN_SERVICE


def test_a_deleted_adapter_waits_for_copies_that_still_report_it_but_not_for_ever(
    town: Town,
) -> None:
    serving(town)
    town.add(adapter())
    town.settle()
    town.switches.apply_error = RetryableError("the agent takes no copies now")
    deleted_at = town.clock.now()
    town.change_component("spanish", status=ComponentStatus.DELETING, modified_at=deleted_at)
    while town.find_component("spanish") is not None and town.clock.now() < deleted_at + 100:
        town.turn(seconds=1.0)
    assert DRAIN_S + FORGET_S <= town.clock.now() - deleted_at <= DRAIN_S + FORGET_S + 2
    assert registered(town) == {"spanish--g1"}


def test_an_adapter_of_a_base_without_copies_is_in_service(town: Town) -> None:
    serving(town, copies=1)
    town.change_component(status=ComponentStatus.UPDATING, desired_copies=0)
    town.settle()
    town.add(adapter())
    town.settle()
    assert town.component_status("spanish") is IN_SERVICE
    assert town.routed_copies("spanish") == ()
