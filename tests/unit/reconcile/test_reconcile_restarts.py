"""Restarts of copies: new copies serve first if they fit. If they fail, the old ones serve."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.life_events import drain, restart
from tests.unit.reconcile.samples import (
    IMAGE,
    KEY,
    Town,
    adapter,
    component,
    component_spec,
    deployment,
    endpoint,
    model,
    needs,
    variant,
)
from tests.unit.reconcile.test_reconcile_serverless import config, serverless
from tests.unit.reconcile.test_reconcile_shadows import with_shadow

from hostelry.base.errors import ServiceError
from hostelry.domain.async_request import AsyncInference
from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import CopyPhase
from hostelry.domain.endpoint import Deployment, EndpointStatus
from hostelry.reconcile.acts.act import PlannedAct, Way
from hostelry.reconcile.acts.restart import plan_restart
from hostelry.reconcile.plan.restarts import UPDATED
from hostelry.reconcile.record import load

UPDATING, IN_SERVICE = ComponentStatus.UPDATING, ComponentStatus.IN_SERVICE


def restarts(town: Town) -> dict[str, str | None]:
    """The failures of the restarts that are recorded, by copy."""
    return {it.copy_id: it.failure for it in town.endpoint.restarts}


def routed(town: Town) -> set[str]:
    """The copies that get requests, of all variants and components."""
    route = town.find_endpoint_route()
    if route is None:
        return set()
    routes = [it.copies for it in route.variants] + [it.copies for it in route.components]
    routes += [] if route.shadow is None else [route.shadow.copies]
    return {it.id for copies in routes for it in copies}


def live(town: Town, turns: int = 40, *, least: int) -> None:
    """Turns in which at least `least` copies have requests, and at most one too many runs."""
    for _ in range(turns):
        town.turn(seconds=0.3)
        assert len(routed(town)) >= least
        assert town.status() is EndpointStatus.IN_SERVICE
        town.check_integrity()


def pipeline() -> Deployment:
    made = deployment(variant(model="m"))
    (one,) = made.variants
    return replace(made, variants=(replace(one, model=model("m", count=2)),))


def on_components(town: Town, copies: int = 2, *, instances: int = 1, each: int = 1) -> None:
    town.add(
        endpoint(deployment(variant(count=instances))),
        component(copies=copies, requirements=needs(each)),
    )
    town.settle()


def one_component(town: Town) -> None:
    on_components(town, 1)


def two_copies(town: Town) -> None:
    on_components(town, 2)


def with_adapter(town: Town) -> None:
    town.add(adapter())
    on_components(town, 2)


def three_instances(town: Town) -> None:
    on_components(town, 3, instances=3)


def of_model(town: Town, made: Deployment) -> None:
    town.add(endpoint(made))
    town.settle()


def one_model(town: Town) -> None:
    of_model(town, deployment(variant(model="m")))


def three_of_a_model(town: Town) -> None:
    of_model(town, deployment(variant(model="m", count=3)))


def two_variants(town: Town) -> None:
    one, two = (variant(model="m", count=2, name=it) for it in ("one", "two"))
    of_model(town, deployment(one, two))


def a_pipeline(town: Town) -> None:
    of_model(town, pipeline())


def a_shadow(town: Town) -> None:
    of_model(town, with_shadow())


def an_asynchronous_one(town: Town) -> None:
    made = deployment(variant(model="m"))
    queued = replace(made.config, async_inference=AsyncInference(output_uri="s3://out"))
    of_model(town, replace(made, config=queued))


def managed(town: Town) -> None:
    scaled = variant(count=1, max_instances=2, min_instances=0, consolidate=True)
    town.add(endpoint(deployment(scaled)), component(copies=2))
    town.settle()


def an_environment(town: Town) -> None:
    of_model(town, serverless(config(most=4)))


@cases(
    "begin, way, most_beside",
    case("a component with one copy", one_component, Way.BESIDE, 1),
    case("a component with two copies", two_copies, Way.BESIDE, 1),
    case("a base with an adapter", with_adapter, Way.BESIDE, 1),
    case("a component on three instances", three_instances, Way.BESIDE, 1),
    case("a component under managed scaling", managed, Way.BESIDE, 1),
    case("a model on one instance", one_model, Way.NEW_INSTANCE, 1),
    case("an asynchronous endpoint", an_asynchronous_one, Way.NEW_INSTANCE, 1),
    case("a model on three instances", three_of_a_model, Way.NEW_INSTANCE, 1),
    case("two variants, each one by one", two_variants, Way.NEW_INSTANCE, 2),
    case("two containers in a pipeline", a_pipeline, Way.NEW_INSTANCE, 2),
    case("a variant and its shadow", a_shadow, Way.NEW_INSTANCE, 2),
    case("a serverless environment", an_environment, Way.BESIDE, 1),
)
def test_new_copies_serve_before_old_ones_leave(
    town: Town, begin: Callable[[Town], None], way: Way, most_beside: int
) -> None:
    begin(town)
    before, serving = set(town.running_copies()), routed(town)
    act = restart(town)
    assert {it.way for it in act.steps} == {way}
    assert {it.copy for it in act.steps} == before
    for _ in range(60):
        live(town, 1, least=len(serving))
        staying = [it for it in town.state.copies.list() if not it.value.draining]
        assert len(staying) <= len(before) + most_beside
    assert not before & set(town.running_copies())
    assert len(town.running_copies()) == len(before)
    assert restarts(town) == {}


def test_one_copy_of_a_component_is_replaced_at_a_time(town: Town) -> None:
    three_instances(town)
    before = set(town.running_copies())
    town.switches.slow = True
    restart(town, component="base")
    for number in range(1, 4):
        town.turn(2)
        assert len(set(town.running_copies()) - before) == number
        for _ in range(6):
            town.fleet.tick()
            town.turn(1, seconds=0.5)
    live(town, least=3)
    assert not before & set(town.running_copies())


def test_only_the_copy_that_is_named_is_replaced(town: Town) -> None:
    two_copies(town)
    first, second = sorted(town.running_copies())
    act = restart(town, copy_id=first)
    assert (act.target, [it.copy for it in act.steps]) == (f"copy {first}", [first])
    live(town, least=2)
    assert first not in town.running_copies()
    assert second in town.running_copies()


def test_an_adapters_base_has_its_adapters_before_it_serves(town: Town) -> None:
    with_adapter(town)
    restart(town, component="base")
    for _ in range(40):
        live(town, 1, least=2)
        assert len(town.routed_copies("spanish")) == len(town.routed_copies("base"))


@cases(
    "copies, meanwhile",
    case("the only one", 1, "requests wait until the new one is ready"),
    case("one of two", 2, "1 serves until the new one is ready"),
)
def test_without_room_for_both_the_old_copy_ends_first(
    town: Town, copies: int, meanwhile: str
) -> None:
    on_components(town, copies, each=4 // copies)
    before = set(town.running_copies())
    act = restart(town, component="base")
    assert {it.way for it in act.steps} == {Way.ENDED_FIRST}
    assert all(meanwhile in it.text for it in act.steps)
    live(town, 80, least=copies - 1)
    assert not before & set(town.running_copies())
    assert len(routed(town)) == copies
    assert restarts(town) == {}


def test_without_room_an_environment_ends_first(town: Town) -> None:
    of_model(town, serverless(config(most=1)))
    (before,) = town.running_copies()
    act = restart(town)
    assert [it.way for it in act.steps] == [Way.ENDED_FIRST]
    for _ in range(40):
        town.turn(seconds=0.3)
        assert len(town.copy_records()) <= 1
        assert len(town.state.copies.list()) <= 1
    (after,) = routed(town)
    assert after != before


@cases(
    "begin",
    case("of a component", two_copies),
    case("of a model with instances of its own", three_of_a_model),
    case("of a pipeline", a_pipeline),
    case("of a serverless variant", an_environment),
)
def test_a_replacement_that_cannot_start_leaves_the_old_copies(
    town: Town, begin: Callable[[Town], None]
) -> None:
    begin(town)
    before, instances = set(town.running_copies()), len(town.instance_records())
    serving = routed(town)
    town.switches.broken_images[IMAGE] = "the driver is gone"
    restart(town)
    started = town.fleet.num_copies_started
    live(town, 60, least=len(serving))
    failures = restarts(town)
    assert set(failures) == before
    assert sum("the driver is gone" in (it or "") for it in failures.values()) >= 1
    assert all(failures.values())
    assert set(town.running_copies()) == before
    assert len(town.instance_records()) == instances
    assert town.fleet.num_copies_started - started <= 2, "no storm of attempts"
    town.switches.broken_images.clear()
    restart(town)
    live(town, 80, least=len(serving))
    assert not before & set(town.running_copies())
    assert restarts(town) == {}


def test_a_replacement_that_is_late_leaves_the_old_copy(town: Town) -> None:
    one_component(town)
    (before,) = town.running_copies()
    town.switches.slow = True
    restart(town)
    town.turn(3)
    assert len(town.running_copies()) == 2
    town.clock.advance(900.0)
    town.turn(3)
    assert "was not ready in time" in (restarts(town)[before] or "")
    assert list(town.running_copies()) == [before]
    assert routed(town) == {before}


def test_without_capacity_for_an_instance_the_old_one_serves_on(town: Town) -> None:
    one_model(town)
    (before,) = town.running_copies()
    town.switches.max_instances = 1
    restart(town)
    live(town, 20, least=1)
    assert restarts(town) == {before: None}
    town.clock.advance(900.0)
    live(town, 20, least=1)
    assert "machines are taken" in (restarts(town)[before] or "")
    assert len(town.instance_records()) == 1
    assert list(town.running_copies()) == [before]


def test_a_copy_that_does_not_serve_is_replaced_before_the_others(town: Town) -> None:
    two_copies(town)
    first, second = sorted(town.running_copies())
    town.fleet.set_phase(second, CopyPhase.UNHEALTHY)
    town.turn(1)
    restart(town, component="base")
    town.turn(1)
    (begun,) = (it.copy_id for it in town.endpoint.restarts if it.began_at is not None)
    assert begun == second
    live(town, 60, least=1)
    assert not {first, second} & set(town.running_copies())


def scaled(copies: int) -> Callable[[Town], None]:
    def scale(town: Town) -> None:
        town.change_component(status=UPDATING, desired_copies=copies, modified_at=town.clock.now())

    return scale


def respecified(town: Town) -> None:
    found = town.component()
    town.change_component(
        status=UPDATING, spec=component_spec(generation=9), previous_spec=found.spec
    )


def drained(town: Town) -> None:
    drain(town, sorted(it.id for it in town.instance_records())[0])


def asked_again(town: Town) -> None:
    pending = town.endpoint.restarts
    restart(town, component="base")
    assert not pending or town.endpoint.restarts == pending, (
        "what is under way begins no second time"
    )


@cases(
    "meanwhile, copies",
    case("scaled out", scaled(4), 4),
    case("scaled in", scaled(1), 1),
    case("scaled to zero", scaled(0), 0),
    case("updated to another specification", respecified, 3),
    case("an instance drained", drained, 3),
    case("asked for again", asked_again, 3),
    case("control killed", Town.restart_control, 3),
)
@pytest.mark.parametrize("turns", [0, 1, 4], ids=["at once", "as it begins", "within it"])
def test_a_change_meanwhile_has_its_own_result(
    town: Town, meanwhile: Callable[[Town], None], copies: int, turns: int
) -> None:
    three_instances(town)
    before = set(town.running_copies())
    restart(town, component="base")
    town.turn(turns, seconds=0.3)
    meanwhile(town)
    for _ in range(80):
        town.turn(seconds=0.3)
        assert len(routed(town)) >= min(copies, 2)
        town.check_integrity()
    assert town.component_status() is IN_SERVICE
    assert len(routed(town)) == len(town.running_copies()) == copies
    assert restarts(town) == {}
    if copies > 1:
        assert not before & set(town.running_copies())


def test_a_component_that_is_deleted_meanwhile_leaves_nothing(town: Town) -> None:
    two_copies(town)
    town.switches.slow = True
    restart(town)
    town.turn(2)
    town.change_component(status=ComponentStatus.DELETING, modified_at=town.clock.now())
    town.settle()
    assert (town.find_component(), town.running_copies(), restarts(town)) == (None, {}, {})


def test_an_update_of_the_endpoint_ends_restarts(town: Town) -> None:
    three_of_a_model(town)
    before = set(town.running_copies())
    town.switches.slow = True
    restart(town)
    town.turn(2)
    pending = deployment(variant(model="m2", count=3), generation=2)
    town.change_endpoint(status=EndpointStatus.UPDATING, pending=pending)
    town.turn(2)
    assert set(restarts(town).values()) == {UPDATED}
    town.switches.slow = False
    for _ in range(8):
        town.fleet.tick()
        town.turn(5, seconds=0.5)
    assert town.status() is EndpointStatus.IN_SERVICE
    assert not before & set(town.running_copies())
    assert len(town.running_copies()) == 3
    assert restarts(town) == {}


def updating(town: Town) -> None:
    pending = deployment(variant(model="m2"), generation=2)
    town.change_endpoint(status=EndpointStatus.UPDATING, pending=pending)


def component_updating(town: Town) -> None:
    town.change_component(status=UPDATING)


@cases(
    "begin, change, asked, why",
    case("an update is under way", one_model, updating, {}, "is being updated"),
    case(
        "the component is being updated",
        two_copies,
        component_updating,
        {"component": "base"},
        "base is Updating: try again",
    ),
    case(
        "an adapter",
        with_adapter,
        lambda _: None,
        {"component": "spanish"},
        "an adapter on the copies of base: restart base",
    ),
    case("none of that name", two_copies, lambda _: None, {"component": "no"}, "does not exist"),
    case("a copy gone", two_copies, lambda _: None, {"copy_id": "c-9"}, "is ending already"),
)
def test_a_restart_is_refused_with_the_reason(
    town: Town,
    begin: Callable[[Town], None],
    change: Callable[[Town], None],
    asked: dict[str, str],
    why: str,
) -> None:
    begin(town)
    change(town)
    with pytest.raises(ServiceError, match=why):
        restart(town, **asked)
    assert restarts(town) == {}


def test_transform_jobs_and_endpoints_without_copies_are_refused(town: Town) -> None:
    def refusal() -> str:
        with pytest.raises(ServiceError) as caught:
            restart(town)
        return str(caught.value)

    town.add(endpoint(deployment(variant())))
    assert "is Creating, and does not serve" in refusal()
    town.settle()
    assert "has no copy now" in refusal()


def test_a_dry_run_records_nothing(town: Town) -> None:
    two_copies(town)
    revision = town.state.store.revision()
    act: PlannedAct = plan_restart(load(town.state, KEY, town.facts()).state, town.context())
    assert len(act.steps) == 2
    assert town.state.store.revision() == revision
