"""Inference experiments start, run and end with their endpoints, despite any kills."""

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.selection import first_alone, numbers
from tests.unit.reconcile.experiment_rig import (
    HOUR_S,
    PRODUCTION,
    SHADOW,
    ExperimentTown,
    experiment,
)
from tests.unit.reconcile.samples import IMAGE, NOW, SCOPE, deployment, model, variant
from tests.unit.reconcile.test_reconcile_faults import FaultyStore, Killed

from hostelry.domain.copy import CopyPhase
from hostelry.domain.data_capture import DataCapture
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.inference_experiment import (
    ExperimentStatus,
    ExperimentVariant,
    VariantAction,
)
from hostelry.domain.resize import replace_active, set_instances
from hostelry.reconcile.overview import experiment_overview

CREATED, STARTING = ExperimentStatus.CREATED, ExperimentStatus.STARTING
RUNNING, UPDATING = ExperimentStatus.RUNNING, ExperimentStatus.UPDATING
COMPLETED, CANCELLED = ExperimentStatus.COMPLETED, ExperimentStatus.CANCELLED
IN_SERVICE = EndpointStatus.IN_SERVICE
FIRST = experiment()


@pytest.fixture
def place() -> Iterator[ExperimentTown]:
    found = ExperimentTown()
    yield found
    found.town.close()


def test_production_is_not_touched_where_its_instances_stay(place: ExperimentTown) -> None:
    place.serve(count=2)
    copies = place.production_copies()
    place.add()
    place.turn(15)
    assert place.status() is RUNNING
    assert (place.production_copies(), place.mirrored()) == (copies, ("shadow", 0.5, 1))
    assert place.endpoint.active.config.name.startswith("trial-run-")
    assert place.endpoint.status is IN_SERVICE

    place.town.clock.advance(HOUR_S)
    place.turn(15)
    assert place.status() is COMPLETED
    assert (place.production_copies(), place.mirrored()) == (copies, None)
    assert place.endpoint.active.config.name == "config-1"
    assert len(place.town.instance_records()) == 2, "fewer than before would cost requests"
    assert (place.endpoint.status, place.endpoint.failure_reason) == (IN_SERVICE, None)


def test_an_endpoint_that_is_not_there_is_made(place: ExperimentTown) -> None:
    place.add(experiment(start_at=NOW + 60))
    place.turn(5)
    assert (place.status(), place.town.find_endpoint()) == (CREATED, None)
    place.town.clock.advance(60)
    place.turn(20)
    assert (place.status(), place.mirrored()) == (RUNNING, ("shadow", 0.5, 1))
    config = place.state.endpoint_configs.get(SCOPE, place.endpoint.active.config.name)
    assert config is not None
    assert len(config.value.given["ShadowProductionVariants"]) == 1
    place.stop(is_completed=True, reason="enough")
    place.turn(15)
    done = place.experiment()
    assert (done.status, done.status_reason, place.mirrored()) == (COMPLETED, "enough", None)
    assert [it.variant.name for it in place.endpoint.active.variants] == ["AllTraffic"]


@cases(
    "desired, is_same",
    case("with its copies", (), True),
    case("on more instances", (replace(SHADOW, instance_count=2),), False),
    case("on other instances", (replace(SHADOW, instance_type="ml.big"),), False),
)
def test_a_promoted_shadow_takes_over_without_a_gap(
    place: ExperimentTown, desired: tuple[ExperimentVariant, ...], is_same: bool
) -> None:
    place.serve(count=2)
    before = place.production_copies()
    place.add()
    place.turn(15)
    shadows = place.shadow_copies()
    place.promote(reason="better", desired=desired)
    for _ in range(40):
        place.turn()
        assert place.production_copies()
    assert place.status() is COMPLETED
    (left,) = place.endpoint.active.variants
    assert (left.variant.name, left.variant.is_shadow, left.model) == (
        "shadow",
        False,
        model("s", "good"),
    )
    assert not place.production_copies() & before
    assert (place.production_copies() == shadows) is is_same
    assert len(place.production_copies()) == len(place.town.instance_records())
    assert place.mirrored() is None


def test_a_shadow_that_is_down_is_promoted_on_new_instances(place: ExperimentTown) -> None:
    place.serve()
    place.add()
    place.turn(15)
    (shadow,) = place.shadow_copies()
    place.town.fleet.set_phase(shadow, CopyPhase.UNHEALTHY)
    place.turn(2)
    place.promote()
    for _ in range(40):
        place.turn()
        assert place.production_copies()
    assert place.status() is COMPLETED
    assert shadow not in place.production_copies()


def test_an_endpoint_that_cannot_be_made_ends_the_experiment(place: ExperimentTown) -> None:
    place.town.switches.broken_images["good"] = "model.joblib is not there"
    place.add()
    place.turn(40)
    done = place.experiment()
    assert (done.status, place.endpoint.status) == (CANCELLED, EndpointStatus.FAILED)
    assert "model.joblib is not there" in (done.status_reason or "")
    assert place.town.instance_records() == []


def test_a_stop_while_the_endpoint_is_made_leaves_production_alone(place: ExperimentTown) -> None:
    place.town.switches.slow = True
    place.add()
    place.turn(6)
    assert (place.status(), place.endpoint.status) == (STARTING, EndpointStatus.CREATING)
    place.stop()
    place.turn(3)
    for _ in range(6):
        place.town.fleet.tick()
        place.turn(3)
    assert (place.status(), place.endpoint.status) == (CANCELLED, IN_SERVICE)
    assert (len(place.town.instance_records()), place.mirrored()) == (1, None)


def test_a_shadow_that_stays_is_captured_no_more(place: ExperimentTown) -> None:
    place.serve()
    place.add(experiment(capture=DataCapture(percent=100, uri="s3://captured")))
    place.turn(15)
    place.stop(shadow=VariantAction.RETAIN)
    place.turn(10)
    assert (place.status(), place.mirrored()) == (CANCELLED, ("shadow", 0.5, 1))
    assert place.endpoint.active.capture is None


def test_a_shadow_that_cannot_come_up_ends_the_experiment(place: ExperimentTown) -> None:
    place.serve()
    copies = place.production_copies()
    place.town.switches.broken_images["good"] = "model.joblib is not there"
    place.add()
    place.turn(40)
    done = place.experiment()
    assert done.status is CANCELLED
    assert "model.joblib is not there" in (done.status_reason or "")
    assert (place.production_copies(), place.endpoint.active.config.name) == (copies, "config-1")
    assert len(place.town.instance_records()) == 1


def test_a_promotion_that_fails_leaves_production_as_it_was(place: ExperimentTown) -> None:
    place.serve()
    copies = place.production_copies()
    place.add()
    place.turn(15)
    place.town.switches.broken_images["good"] = "it does not start again"
    place.promote(desired=(replace(SHADOW, instance_count=2),))
    place.turn(60)
    done = place.experiment()
    assert done.status is CANCELLED
    assert "production stays as it was" in (done.status_reason or "")
    assert (place.production_copies(), place.mirrored()) == (copies, None)


@cases(
    "change",
    case("other instances", {"instance_type": "ml.small"}),
    case("another model", {"model_name": "m2"}),
)
def test_other_instances_or_another_model_for_production_replace_its_fleet(
    place: ExperimentTown, change: dict[str, Any]
) -> None:
    place.serve()
    before = place.production_copies()
    production = replace(PRODUCTION, **change)
    models = {"AllTraffic": model(production.model_name, IMAGE), "shadow": model("s", "good")}
    place.add(experiment(variants=(production, SHADOW), models=models))
    for _ in range(30):
        place.turn()
        assert place.production_copies()
    assert (place.status(), place.mirrored()) == (RUNNING, ("shadow", 0.5, 1))
    assert not place.production_copies() & before
    (serving,) = place.endpoint.active.production
    assert serving.model is not None
    assert serving.model.name == serving.variant.model_name == production.model_name
    place.stop()
    for _ in range(40):
        place.turn()
        assert place.production_copies()
    assert place.status() is CANCELLED
    assert [it.instance_type for it in place.town.instance_records()] == ["ml.big"]
    (serving,) = place.endpoint.active.production
    assert serving.model is not None
    assert serving.model.name == "m"


def test_a_stop_while_another_fleet_comes_up_drops_it(place: ExperimentTown) -> None:
    place.serve()
    copies = place.production_copies()
    place.town.switches.slow = True
    place.add(experiment(variants=(replace(PRODUCTION, instance_type="ml.small"), SHADOW)))
    place.turn(8)
    assert len(place.endpoint.deployments) == 2
    place.stop(reason="changed my mind")
    place.turn(8)
    assert (place.status(), place.production_copies()) == (CANCELLED, copies)
    assert (place.endpoint.status, len(place.endpoint.deployments)) == (IN_SERVICE, 1)


def test_the_share_changes_in_place(place: ExperimentTown) -> None:
    place.serve()
    place.add()
    place.turn(15)
    place.change(percent=10, status=UPDATING, deadline_at=place.town.clock.now() + 600)
    place.turn(6)
    assert (place.status(), place.mirrored()) == (RUNNING, ("shadow", 0.1, 1))


def test_other_instances_after_the_stop(place: ExperimentTown) -> None:
    place.serve()
    place.add()
    place.turn(15)
    place.stop(desired=(replace(PRODUCTION, instance_count=3),), is_completed=True)
    place.turn(25)
    assert (place.status(), len(place.production_copies())) == (COMPLETED, 3)
    assert place.endpoint.active.config.name.startswith("trial-after-")


def test_one_experiment_after_another_gets_its_own_shadow(place: ExperimentTown) -> None:
    place.serve()
    place.add()
    place.turn(15)
    place.stop()
    place.turn(1)
    second = experiment(
        name="second",
        arn=SCOPE.arn("inference-experiment", "second"),
        models={"AllTraffic": model("m"), "shadow": model("s2", "good")},
    )
    place.add(second)
    place.turn(40)
    assert place.experiment("second").status is RUNNING
    shadow = place.endpoint.active.shadow
    assert shadow is not None
    assert shadow.model == model("s2", "good")
    copies = [it.value for it in place.state.copies.list() if it.value.variant_name == "shadow"]
    assert [it.spec.container for it in copies] == [*model("s2", "good").containers]
    assert len({it.instance_id for it in copies}) == 1


def test_the_capture_lasts_as_long_as_the_experiment(place: ExperimentTown) -> None:
    place.serve()
    capture = DataCapture(percent=100, uri="s3://captured")
    place.add(experiment(capture=capture))
    place.turn(15)
    route = place.town.endpoint_route()
    assert route.variants[0].capture == capture
    assert route.shadow is not None
    assert route.shadow.capture == capture
    place.stop()
    place.turn(10)
    route = place.town.endpoint_route()
    assert route.variants[0].capture is None


def test_a_second_look_changes_nothing(place: ExperimentTown) -> None:
    place.serve()
    place.add()
    place.turn(20)
    revision = place.state.store.revision()
    place.experiments.loop.one_pass()
    place.experiments.loop.one_pass()
    assert place.state.store.revision() == revision


def test_status_shows_what_is_not_over(place: ExperimentTown) -> None:
    place.add()
    place.add(*(replace(FIRST, name=f"old-{it}", status=CANCELLED) for it in range(30)))
    shown = experiment_overview(it.value for it in place.state.inference_experiments.list())
    assert len(shown) == 21
    (one,) = (it for it in shown if it["status"] == "Creating")
    assert (one["endpoint"], one["percent"], one["end_at"]) == ("ep", 50, NOW + HOUR_S)


def run_out(place: ExperimentTown) -> None:
    place.town.clock.advance(HOUR_S)


def stop_it(place: ExperimentTown) -> None:
    if place.experiment().stop is None:
        place.stop()


def promote_it(place: ExperimentTown) -> None:
    if place.experiment().stop is None:
        place.promote()


@pytest.mark.parametrize("is_there", [True, False], ids=["an endpoint", "no endpoint yet"])
@cases(
    "end, status, name",
    case("its time is over", run_out, COMPLETED, "AllTraffic"),
    case("stopped", stop_it, CANCELLED, "AllTraffic"),
    case("promoted", promote_it, COMPLETED, "shadow"),
)
def test_a_control_killed_at_any_write_changes_nothing_in_the_end(
    end: Callable[[ExperimentTown], None],
    status: ExperimentStatus,
    name: str,
    is_there: bool,
    pytestconfig: pytest.Config,
) -> None:
    def lead(fails_at: int | None) -> int:
        store = FaultyStore(Killed())
        place = ExperimentTown(store)
        if is_there:
            place.serve()
        store.fails_at, store.armed = fails_at, True
        survive(place, lambda it: it.add() if not it.state.inference_experiments.list() else None)
        survive(place, lambda it: it.turn(12))
        survive(place, end)
        survive(place, lambda it: it.turn(20))
        assert place.status() is status, f"after a kill at write {fails_at}"
        assert [it.variant.name for it in place.endpoint.active.variants] == [name]
        assert place.endpoint.status is IN_SERVICE
        assert len(place.town.instance_records()) == 1
        assert len(place.production_copies()) == 1
        place.town.close()
        return store.num_writes

    for fails_at in numbers(pytestconfig, lead(None)):
        lead(fails_at)


def survive(place: ExperimentTown, step: Callable[[ExperimentTown], None]) -> None:
    """Do `step`, and where control is killed in it, start control and do it again."""
    try:
        step(place)
    except Killed:
        place.restart_control()
        step(place)


def test_the_copies_of_a_shadow_that_is_down_do_not_serve(place: ExperimentTown) -> None:
    place.serve()
    place.add()
    place.turn(15)
    for machine in place.town.fleet.machines.values():
        for copy_id, found in machine.copies.items():
            machine.copies[copy_id] = dataclasses.replace(
                found, phase=CopyPhase.UNHEALTHY, reason="it hangs"
            )
    place.turn(5)
    assert place.status() is RUNNING, "only its own metrics suffer"


def stop_somehow(place: ExperimentTown, dice: random.Random) -> None:
    if place.status() not in (CREATED, STARTING, RUNNING):
        return
    if place.status() is RUNNING and dice.random() < 0.5:
        count = dice.randint(1, 2)
        desired = (replace(SHADOW, instance_count=count),) if dice.random() < 0.5 else ()
        place.promote(desired=desired)
    else:
        place.stop(shadow=dice.choice([VariantAction.REMOVE, VariantAction.RETAIN]))


def change_share(place: ExperimentTown, dice: random.Random) -> None:
    if place.status() is RUNNING:
        deadline_at = place.town.clock.now() + 600
        place.change(percent=dice.randint(0, 100), status=UPDATING, deadline_at=deadline_at)


def update_by_hand(place: ExperimentTown, dice: random.Random) -> None:
    found = place.town.find_endpoint()
    if found is not None and found.status is IN_SERVICE:
        pending = deployment(variant(model="m"), generation=place.state.store.revision() + 1)
        place.town.change_endpoint(status=EndpointStatus.UPDATING, pending=pending)


def scale(place: ExperimentTown, dice: random.Random) -> None:
    found = place.town.find_endpoint()
    if found is not None and found.status is IN_SERVICE:
        name = found.active.production[0].variant.name
        active = set_instances(found.active, name, dice.randint(1, 3))
        changed = replace_active(found, active, place.town.clock.now())
        place.town.change_endpoint(active=changed.active, status=changed.status)


def delete_by_hand(place: ExperimentTown, dice: random.Random) -> None:
    if place.town.find_endpoint() is not None and dice.random() < 0.3:
        place.town.change_endpoint(status=EndpointStatus.DELETING, deadline_at=None)


def crash_copy(place: ExperimentTown, dice: random.Random) -> None:
    running = sorted(place.town.running_copies())
    if running:
        place.town.fleet.crash_copy(dice.choice(running), "crashed")


def move_clock(place: ExperimentTown, dice: random.Random) -> None:
    place.town.clock.advance(dice.choice([1.0, 60.0, 700.0, HOUR_S / 2]))


def restart(place: ExperimentTown, dice: random.Random) -> None:
    place.restart_control()


def break_image(place: ExperimentTown, dice: random.Random) -> None:
    broken = place.town.switches.broken_images
    if broken:
        broken.clear()
    else:
        broken["good"] = "it does not start"


@pytest.mark.parametrize("seed", first_alone(range(25), 8))
def test_random_misfortune_ends_every_experiment(place: ExperimentTown, seed: int) -> None:
    dice = random.Random(seed)
    if dice.random() < 0.7:
        place.serve(count=dice.randint(1, 2))
    production = replace(PRODUCTION, instance_type=dice.choice(["ml.big", "ml.small"]))
    place.add(experiment(variants=(production, SHADOW)))
    acts = (
        *(stop_somehow, change_share, update_by_hand, scale, delete_by_hand),
        *(crash_copy, move_clock, restart, break_image),
    )
    for _ in range(12):
        place.turn(dice.randint(0, 6))
        dice.choice(acts)(place, dice)
        place.town.check_integrity()
    place.town.switches.broken_images.clear()
    for _ in range(60):
        place.town.fleet.tick()
        place.turn(seconds=2 * HOUR_S / 60)
    assert place.experiment().is_over
    left = place.town.find_endpoint()
    if left is not None and left.status is IN_SERVICE:
        wanted = sum(it.desired_instance_count for it in left.active.variants)
        assert len(place.town.instance_records()) == wanted
        assert place.production_copies()


def test_one_that_cannot_be_planned_holds_up_no_other(place: ExperimentTown) -> None:
    place.serve()
    place.add(experiment(name="a", endpoint_name="other", shadow_name="nobody"), experiment())
    for _ in range(40):
        with contextlib.suppress(StopIteration):
            place.experiments.loop.one_pass()
        place.town.turn(seconds=0.1)
    assert place.status() is RUNNING
    with pytest.raises(StopIteration):
        place.experiments.loop.one_pass()
