"""Overview for `hostelry status`, with the progress of restarts and drains."""

import dataclasses
from typing import Any

from msgspec.structs import replace
from tests.unit.reconcile.life_events import drain, restart
from tests.unit.reconcile.samples import IMAGE, Town, component, deployment, endpoint, variant

from hostelry.domain.copy import CopyPhase
from hostelry.reconcile.overview import overview
from hostelry.reconcile.record import load_all


def test_an_endpoint_whose_copies_are_not_ready_serves_nothing() -> None:
    town = Town()
    town.add(endpoint(deployment(variant())), component("chat"))
    town.settle()
    (shown,) = overview(load_all(town.state), {})
    assert shown["serving"] == {"ready": 1, "desired": 1, "tone": None, "trouble": None}
    (state,) = load_all(town.state)
    (copy,) = state.copies.values()
    lost = replace(copy, status=dataclasses.replace(copy.status, phase=CopyPhase.UNHEALTHY))
    (shown,) = overview([state.add_copies([lost])], {})
    assert shown["serving"]["trouble"] == "serves nothing: 0 of 1 copy ready"
    town.close()


def test_the_variables_that_a_copy_does_not_get_are_shown() -> None:
    town = Town()
    town.add(endpoint(deployment(variant())), component("chat"))
    town.settle()
    facts_by_instance = {}
    for instance, facts in town.facts().items():
        assert facts.observation is not None
        copies = tuple(
            dataclasses.replace(copy, left_out=("LD_PRELOAD",)) for copy in facts.observation.copies
        )
        facts_by_instance[instance] = replace(
            facts, observation=replace(facts.observation, copies=copies)
        )
    (shown,) = overview(load_all(town.state), facts_by_instance)
    assert [it["variables_left_out"] for it in shown["copies"]] == [["LD_PRELOAD"]]
    town.close()


def shown(town: Town) -> dict[str, Any]:
    (found,) = overview(load_all(town.state), town.facts())
    return found


def restarts(town: Town) -> dict[str, dict[str, Any] | None]:
    return {it["id"]: it["restart"] for it in shown(town)["copies"]}


def drains(town: Town) -> dict[str, dict[str, Any]]:
    found = {it["id"]: it["drain"] for it in shown(town)["instances"]}
    return {name: it for name, it in found.items() if it is not None}


def begin(town: Town, *, model: bool = False) -> None:
    town.add(endpoint(deployment(variant(model="m" if model else None))))
    if not model:
        town.add(component(copies=2))
    town.settle()


def test_a_restart_names_the_new_copy_and_why_it_was_given_up(town: Town) -> None:
    begin(town)
    first, second = sorted(town.running_copies())
    assert restarts(town) == {first: None, second: None}
    town.switches.slow = True
    restart(town)
    town.turn(2)
    new = next(it for it in town.running_copies() if it not in (first, second))
    of_first, of_second = restarts(town)[first], restarts(town)[second]
    assert of_first is not None
    assert of_second is not None
    assert (of_first["replaced_by"], of_first["failed"]) == (new, False)
    assert of_first["reason"] == f"being replaced by {new}, which is pending"
    assert of_second["reason"].startswith("waits until the other copies")
    town.switches.broken_images[IMAGE] = "no driver"
    town.fleet.tick()
    town.turn(3)
    of_first, of_second = restarts(town)[first], restarts(town)[second]
    assert of_first is not None
    assert of_second is not None
    assert of_first["failed"]
    assert "no driver" in of_first["reason"]
    assert of_second["reason"].startswith(f"Copy {first} could not be replaced")


def test_a_drain_has_what_it_waits_for(town: Town) -> None:
    begin(town, model=True)
    (instance,) = town.instance_records()
    town.switches.no_capacity["ml.big"] = "no ml.big is free"
    drain(town, instance.id)
    town.turn(3)
    (found,) = drains(town).values()
    assert (found["copies_left"], found["serving"]) == (1, 1)
    assert "no ml.big is free" in found["reason"]
    town.switches.no_capacity.clear()
    town.switches.slow = True
    town.turn(5, seconds=1.0)
    assert drains(town)[instance.id]["reason"].startswith("other copies come up first: 0 of 1")
    (old,) = town.fleet.machines[instance.id].copies
    town.switches.open_connections[old] = 1
    town.switches.slow = False
    for _ in range(6):
        town.fleet.tick()
    town.turn(5)
    assert drains(town)[instance.id]["reason"] == "its copies end with their last requests"


def test_a_drain_has_the_reason_of_a_component_that_fits_nowhere(town: Town) -> None:
    begin(town)
    (instance,) = town.instance_records()
    town.switches.no_capacity["ml.big"] = "no ml.big is free"
    drain(town, instance.id)
    town.turn(3)
    assert "instance i-" in drains(town)[instance.id]["reason"]
    assert drains(town)[instance.id]["serving"] == 2
