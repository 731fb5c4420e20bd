"""Overview for `hostelry status`."""

from dataclasses import replace

from tests.unit.reconcile.samples import Town, component, deployment, endpoint, variant

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
    lost = replace(copy, status=replace(copy.status, phase=CopyPhase.UNHEALTHY))
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
        copies = tuple(replace(it, left_out=("LD_PRELOAD",)) for it in facts.observation.copies)
        facts_by_instance[instance] = replace(
            facts, observation=replace(facts.observation, copies=copies)
        )
    (shown,) = overview(load_all(town.state), facts_by_instance)
    assert [it["variables_left_out"] for it in shown["copies"]] == [["LD_PRELOAD"]]
    town.close()
