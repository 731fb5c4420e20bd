"""Draining instances: copies are replaced elsewhere first, then the instance ends."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.life_events import drain, drain_first, restart, undrain
from tests.unit.reconcile.samples import (
    IMAGE,
    SCOPE,
    Town,
    adapter,
    component,
    component_spec,
    deployment,
    endpoint,
    needs,
    variant,
)
from tests.unit.reconcile.test_reconcile_restarts import (
    a_pipeline,
    a_shadow,
    an_environment,
    live,
    of_model,
    one_model,
    restarts,
    routed,
    three_of_a_model,
)
from tests.unit.reconcile.test_reconcile_serverless import config, serverless

from hostelry.base.errors import ServiceError
from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import CopyPhase, InstanceState
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.hidden_endpoint import HiddenKind
from hostelry.reconcile.acts.act import Way
from hostelry.reconcile.acts.drain import plan_drain
from hostelry.reconcile.plan.endpoint_state import GroupKey
from hostelry.reconcile.record import load


def first(town: Town) -> str:
    return sorted(it.id for it in town.instance_records())[0]


def two_instances(town: Town) -> None:
    town.add(endpoint(deployment(variant(count=2))), component(copies=4), adapter())
    town.settle()


def full_instances(town: Town) -> None:
    town.add(endpoint(deployment(variant(count=2))), component(copies=2, requirements=needs(4)))
    town.settle()


def managed(town: Town) -> None:
    """At its maximum, every instance full."""
    scaled = variant(count=1, max_instances=2, min_instances=1)
    town.add(endpoint(deployment(scaled)), component(copies=2, requirements=needs(4)))
    town.settle()


def pinned(town: Town) -> None:
    fixed = replace(component(copies=2), pinned=True)
    town.add(endpoint(deployment(variant(count=2))), fixed)
    town.settle()


@cases(
    "begin",
    case("with room on others", two_instances),
    case("without room on others", full_instances),
    case("at the maximum of managed scaling", managed),
    case("with a pinned component", pinned),
    case("of a model, its only one", one_model),
    case("of a model, one of three", three_of_a_model),
    case("with the containers of a pipeline", a_pipeline),
    case("of a variant beside a shadow", a_shadow),
    case("of a serverless variant", an_environment),
)
def test_copies_serve_elsewhere_before_the_instance_ends(
    town: Town, begin: Callable[[Town], None]
) -> None:
    begin(town)
    leaving, count = first(town), len(town.instance_records())
    serving, mine = routed(town), set(town.fleet.machines[leaving].copies)
    assert mine
    act = drain(town, leaving)
    assert {it.copy for it in act.steps} == mine
    assert Way.STAYS not in {it.way for it in act.steps}
    live(town, 60, least=len(serving))
    assert leaving in town.fleet.terminated
    assert len(town.instance_records()) == len(town.fleet.machines) == count
    assert not mine & set(town.running_copies())
    assert len(routed(town)) == len(serving)


@cases("begin", case("components", full_instances), case("a model", three_of_a_model))
def test_all_instances_at_once_are_replaced_without_a_gap(
    town: Town, begin: Callable[[Town], None]
) -> None:
    begin(town)
    before, serving = {it.id for it in town.instance_records()}, routed(town)
    for instance_id in before:
        drain(town, instance_id)
    live(town, 60, least=len(serving))
    assert not before & set(town.fleet.machines)
    assert len(town.fleet.machines) == len(before)


def test_requests_in_flight_keep_the_instance_until_they_end(town: Town) -> None:
    full_instances(town)
    leaving = first(town)
    (busy,) = town.fleet.machines[leaving].copies
    town.switches.open_connections[busy] = 1
    drain(town, leaving)
    live(town, 60, least=2)
    assert busy in town.running_copies()
    assert busy not in routed(town)
    town.switches.open_connections.clear()
    town.fleet.tick()
    live(town, 20, least=2)
    assert leaving not in town.fleet.machines


@cases(
    "begin",
    case("components", full_instances),
    case("a model", three_of_a_model),
    case("a serverless variant", an_environment),
)
@cases(
    "fault",
    case("no machine", lambda town: setattr(town.switches, "max_instances", 1)),
    case("no copy", lambda town: town.switches.broken_images.update({IMAGE: "no driver"})),
)
def test_what_cannot_be_replaced_serves_on_until_the_drain_is_cancelled(
    town: Town, begin: Callable[[Town], None], fault: Callable[[Town], None]
) -> None:
    begin(town)
    leaving, count, serving = first(town), len(town.instance_records()), routed(town)
    fault(town)
    drain(town, leaving)
    live(town, 100, least=len(serving))
    assert serving == routed(town)
    assert leaving in {it.id for it in town.instance_records()}
    undrain(town, leaving)
    live(town, 20, least=len(serving))
    assert serving == routed(town)
    assert len(town.instance_records()) == count
    assert all(it.drain_since is None for it in town.instance_records())


def test_a_cancelled_drain_keeps_what_serves(town: Town) -> None:
    three_of_a_model(town)
    leaving, serving = first(town), routed(town)
    town.switches.slow = True
    drain(town, leaving)
    town.turn(3)
    assert len(town.instance_records()) == 4
    undrain(town, leaving)
    live(town, 20, least=3)
    assert routed(town) == serving
    assert len(town.fleet.machines) == 3


def test_where_copies_fit_nowhere_the_component_has_the_reason(town: Town) -> None:
    small = variant(instance_type="ml.small", count=1)
    town.add(endpoint(deployment(small)), component(requirements=needs(1)))
    town.settle()
    town.switches.no_capacity["ml.small"] = "no ml.small is free"
    act = drain(town, first(town))
    assert [it.way for it in act.steps] == [Way.NEW_INSTANCE]
    live(town, 20, least=1)
    assert any("no ml.small is free" in (facts.problem or "") for facts in town.facts().values())


def scaled(copies: int) -> Callable[[Town], None]:
    def scale(town: Town) -> None:
        town.change_component(
            status=ComponentStatus.UPDATING, desired_copies=copies, modified_at=town.clock.now()
        )

    return scale


def respecified(town: Town) -> None:
    found = town.component()
    town.change_component(
        status=ComponentStatus.UPDATING,
        spec=component_spec(generation=9),
        previous_spec=found.spec,
    )


def lost(town: Town) -> None:
    """The instance's machine is lost after the drain was requested."""
    leaving = next(it.id for it in town.instance_records() if it.drain_since is not None)
    town.fleet.lose(leaving)


def crashed(town: Town) -> None:
    leaving = next(it.id for it in town.instance_records() if it.drain_since is not None)
    for copy_id in sorted(town.fleet.machines[leaving].copies):
        town.fleet.set_phase(copy_id, CopyPhase.UNHEALTHY)


@cases(
    "meanwhile, copies, least",
    case("scaled out", scaled(6), 6, 4),
    case("scaled in", scaled(1), 1, 1),
    case("scaled to zero", scaled(0), 0, 0),
    case("updated to another specification", respecified, 4, 4),
    case("its machine lost", lost, 4, 2),
    case("its copies crash", crashed, 4, 2),
    case("asked for again", drain_first, 4, 4),
    case("control killed", Town.restart_control, 4, 4),
)
def test_a_change_meanwhile_has_its_own_result(
    town: Town, meanwhile: Callable[[Town], None], copies: int, least: int
) -> None:
    two_instances(town)
    leaving = first(town)
    town.switches.slow = True
    drain(town, leaving)
    town.turn(1)
    meanwhile(town)
    town.turn(1)
    town.switches.slow = False
    for _ in range(100):
        town.fleet.tick()
        town.turn(seconds=0.7)
        assert len(routed(town)) >= least
        town.check_integrity()
    assert leaving not in town.fleet.machines
    assert len(town.instance_records()) == 2
    assert len(routed(town)) == copies


def test_an_instance_too_many_during_a_drain_is_not_two_too_few(town: Town) -> None:
    three_of_a_model(town)
    drain(town, first(town))
    found = town.endpoint
    (one,) = found.active.variants
    fewer = replace(found.active, variants=(replace(one, desired_instance_count=2),))
    town.change_endpoint(active=fewer)
    live(town, 40, least=2)
    assert len(town.fleet.machines) == 2
    assert len(routed(town)) == 2


def test_an_idle_instance_ends_at_once(town: Town) -> None:
    town.add(endpoint(deployment(variant(count=1))))
    town.settle()
    leaving = first(town)
    drain(town, leaving)
    live(town, 10, least=0)
    assert leaving not in town.fleet.machines
    assert len(town.fleet.machines) == 1


def test_a_serverless_variant_without_environments_moves_too(town: Town) -> None:
    asleep = serverless(config())
    (one,) = asleep.variants
    of_model(town, replace(asleep, variants=(replace(one, environments=0),)))
    leaving = first(town)
    drain(town, leaving)
    live(town, 10, least=0)
    assert leaving not in town.fleet.machines
    assert len(town.fleet.machines) == 1


def test_a_restart_of_its_copies_is_over_with_the_drain(town: Town) -> None:
    three_of_a_model(town)
    before, leaving = set(town.running_copies()), first(town)
    drain(town, leaving)
    restart(town)
    live(town, 80, least=3)
    assert not before & set(town.running_copies())
    assert restarts(town) == {}


def ending(town: Town) -> None:
    (busy,) = town.fleet.machines[first(town)].copies
    town.switches.open_connections[busy] = 1
    drain(town, first(town))
    town.turn(10)


def updating(town: Town) -> None:
    pending = deployment(variant(model="m2"), generation=2)
    town.change_endpoint(status=EndpointStatus.UPDATING, pending=pending)


@cases(
    "change, why",
    case("without a drain", lambda _: None, "is not draining"),
    case("too late", ending, "is ending already"),
    case("in an update", updating, "is being updated"),
)
def test_a_cancellation_is_refused_with_the_reason(
    town: Town, change: Callable[[Town], None], why: str
) -> None:
    one_model(town)
    leaving = first(town)
    change(town)
    with pytest.raises(ServiceError, match=why):
        undrain(town, leaving)


@cases(
    "change, asked, why",
    case("that ends", ending, None, "is ending already"),
    case("in an update", updating, None, "is being updated"),
    case("of no name", lambda _: None, "i-none", "does not exist"),
)
def test_a_drain_is_refused_with_the_reason(
    town: Town, change: Callable[[Town], None], asked: str | None, why: str
) -> None:
    one_model(town)
    leaving = first(town)
    change(town)
    with pytest.raises(ServiceError, match=why):
        drain(town, asked or leaving)


def test_a_transform_jobs_instance_is_not_drained(town: Town) -> None:
    one_model(town)
    leaving = first(town)
    found, held = town.endpoint, town.state.instances.get(SCOPE, leaving)
    assert found is not None
    assert held is not None
    hidden = f"{HiddenKind.TRANSFORM.value}job-1"
    town.state.endpoints.put(SCOPE, hidden, replace(found, name=hidden), expect=None)
    of_job = replace(held.value, endpoint_name=hidden)
    town.state.instances.put(SCOPE, leaving, of_job, expect=held.version)
    loaded = load(town.state, GroupKey(SCOPE, hidden), town.facts())
    with pytest.raises(ServiceError, match="belongs to the transform job job-1"):
        plan_drain(loaded.state, leaving, town.context())
    assert town.instances() == [(leaving, InstanceState.RUNNING)]
