"""Routes of names without copies, and desired copies that the routes do not show yet."""

import dataclasses

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.samples import (
    IMAGE,
    SCOPE,
    Town,
    adapter,
    component,
    deployment,
    endpoint,
    variant,
)

from hostelry.domain.at_zero import AtZero, Wakeable
from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import CopyPhase
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.load import LoadKey
from hostelry.domain.routes import ComponentRoute
from hostelry.domain.scaling import Dimension, ScalableTarget, target_name
from hostelry.domain.scope import Scope
from hostelry.reconcile.plan.routes import WakeRules, plan_routes
from hostelry.reconcile.record import has_desired_copies, load_all

HOLD, COMPAT = AtZero.HOLD, AtZero.COMPAT


def target(name: str = "base", maximum: int = 2, scope: Scope = SCOPE) -> ScalableTarget:
    return ScalableTarget(
        scope=scope,
        resource_id=f"inference-component/{name}",
        dimension=Dimension.COPIES,
        arn="arn",
        min_capacity=0,
        max_capacity=maximum,
        role_arn="role",
        created_at=0.0,
    )


def route_of(town: Town, name: str, waking: WakeRules) -> ComponentRoute:
    snapshot = plan_routes(load_all(town.state), lambda image: image == IMAGE, waking)
    return next(it for it in snapshot.endpoints[0].components if it.name == name)


@cases(
    "own, bases, endpoints, homes, expected",
    case("what the home says", None, None, None, HOLD, HOLD),
    case("whichever that is", None, None, None, COMPAT, COMPAT),
    case("the endpoint goes before the home", None, None, COMPAT, HOLD, COMPAT),
    case("a base before its endpoint", None, HOLD, COMPAT, COMPAT, HOLD),
    case("an adapter before its base", COMPAT, HOLD, HOLD, HOLD, COMPAT),
)
def test_whose_choice_goes_before_whose(
    town: Town,
    own: AtZero | None,
    bases: AtZero | None,
    endpoints: AtZero | None,
    homes: AtZero,
    expected: AtZero,
) -> None:
    town.add(endpoint(deployment(variant())), component(), adapter("pirate"))
    town.settle()
    town.change_endpoint(at_zero=endpoints)
    town.change_component(at_zero=bases)
    town.change_component("pirate", at_zero=own)
    waking = WakeRules(at_zero=homes)
    assert route_of(town, "pirate", waking).at_zero is expected
    assert route_of(town, "base", waking).at_zero is (bases or endpoints or homes)


@cases(
    "registered, expected",
    case("nothing", [], Wakeable.NO_TARGET),
    case("a target of the base", [target()], Wakeable.YES),
    case("a target that allows none", [target(maximum=0)], Wakeable.MAX_ZERO),
    case("a target of another component", [target("other")], Wakeable.NO_TARGET),
    case("another account's", [target(scope=Scope("999999999999", "us-west-2"))],
        Wakeable.NO_TARGET),
    case("one of another dimension", [replace(target(), dimension=Dimension.INSTANCES,
                          resource_id="endpoint/base/variant/base")], Wakeable.NO_TARGET),
)  # fmt: skip
def test_wakeable_is_set_for_bases_and_their_adapters(
    town: Town, registered: list[ScalableTarget], expected: Wakeable
) -> None:
    town.add(endpoint(deployment(variant())), component(), adapter("pirate"))
    town.settle()
    waking = WakeRules.of(HOLD, registered)
    assert route_of(town, "base", waking).wakeable is expected
    assert route_of(town, "pirate", waking).wakeable is expected


def test_a_reason_is_given_while_no_copy_serves(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component())
    town.settle()
    assert route_of(town, "base", WakeRules()).waiting_for is None
    (copy_id,) = town.routed_copies()
    copy = town.state.copies.get(SCOPE, copy_id)
    assert copy is not None
    killed = dataclasses.replace(
        copy.value.status, phase=CopyPhase.UNHEALTHY, reason="it was killed " + "x" * 500
    )
    town.state.copies.put(SCOPE, copy_id, replace(copy.value, status=killed), expect=copy.version)
    route = route_of(town, "base", WakeRules())
    assert (route.copies, route.desired_copies) == ((), 1)
    assert route.waiting_for is not None
    assert route.waiting_for.startswith("it was killed")
    assert len(route.waiting_for) == 300
    town.change_component(placement_note="no instance has room", failure_reason="an update failed")
    assert route_of(town, "base", WakeRules()).waiting_for == "no instance has room"
    gone = town.state.copies.get(SCOPE, copy_id)
    assert gone is not None
    town.state.copies.delete(SCOPE, copy_id, expect=gone.version)
    town.change_component(placement_note=None)
    assert route_of(town, "base", WakeRules()).waiting_for == "an update failed"


def key(name: str | None = "base", at: str = "ep", scope: Scope = SCOPE) -> LoadKey:
    return LoadKey(scope=scope, endpoint_name=at, variant_name="", component_name=name)


def test_what_is_recorded_as_serving_is_on_its_way_to_the_routes(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(), adapter("pirate"))
    town.settle()
    for known in (key(), key(at=""), key("pirate"), key(None)):
        assert has_desired_copies(town.state, known), known
    for unknown in (
        key("nobody"),
        key(at="elsewhere"),
        key(None, at="elsewhere"),
        key(scope=Scope("999999999999", "us-west-2")),
    ):
        assert not has_desired_copies(town.state, unknown), unknown


@pytest.mark.parametrize("status", list(ComponentStatus))
def test_a_component_that_does_not_serve_yet_or_any_more_is_not(
    town: Town, status: ComponentStatus
) -> None:
    town.add(endpoint(deployment(variant())), component())
    town.settle()
    town.change_component(status=status)
    assert has_desired_copies(town.state, key()) is (status.value in ("InService", "Updating"))
    town.change_component(status=ComponentStatus.IN_SERVICE)
    town.change_endpoint(status=EndpointStatus.DELETING)
    assert not has_desired_copies(town.state, key())


def test_at_zero_only_what_is_wakeable_has_desired_copies(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(), adapter("pirate"))
    town.settle()
    town.change_component(desired_copies=0)
    assert not has_desired_copies(town.state, key())
    registered = target()
    name = target_name(registered.resource_id, registered.dimension)
    town.state.scalable_targets.put(SCOPE, name, registered, expect=None)
    assert has_desired_copies(town.state, key())
    assert has_desired_copies(town.state, key("pirate"))
