"""The progress of an update, as clients and the command line read it."""

from typing import Any

from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.samples import NOW, deployment, endpoint, variant

from hostelry.domain.endpoint import Bake, EndpointStatus, Shift, ShiftStage, UpdateGuard
from hostelry.domain.traffic import FleetSize, FleetUnit, TrafficPolicy, TrafficType
from hostelry.domain.update_history import update_progress

UPDATING = EndpointStatus.UPDATING
ONE = FleetSize(unit=FleetUnit.INSTANCE_COUNT, value=1)
GUARD = UpdateGuard(
    alarm_names=("errors", "slow"),
    bake_s=600.0,
    traffic=TrafficPolicy(type=TrafficType.LINEAR, size=ONE, wait_s=300.0),
)
OLD = deployment(variant(model="a", count=2, name="A"), variant(model="b", count=4, name="B"))
NEW = replace(OLD, generation=2, guard=GUARD)
ALONE = replace(deployment(variant(model="a", count=5), generation=2), guard=GUARD)
ROLLING = UpdateGuard(traffic=replace(GUARD.traffic, type=TrafficType.ROLLING))
IN_BATCHES = replace(ALONE, guard=ROLLING)
PLAIN = replace(deployment(variant(model="a"), generation=2), guard=UpdateGuard(bake_s=60.0))


@cases(
    "changes, pace, text",
    case("it comes up", {"pending": NEW}, 1.0, None),
    case(
        "a step",
        {"pending": ALONE, "shift": Shift(step=2, since=NOW - 40.0)},
        1.0,
        "step 2 of 5: 40 % of traffic; baking 40 s of 300 s; alarms watched: errors, slow",
    ),
    case(
        "variants of different size, at another pace",
        {"pending": NEW, "shift": Shift(step=1, since=NOW - 3.0)},
        10.0,
        "step 1 of 4: 25 to 50 % of traffic; baking 3 s of 30 s; alarms watched: errors, slow",
    ),
    case(
        "a batch",
        {"pending": IN_BATCHES, "shift": Shift(step=2, since=NOW - 40.0)},
        1.0,
        "batch 2 of 5: 40 % of traffic; baking 40 s of 300 s; no alarm is watched",
    ),
    case(
        "its old instances leave",
        {"pending": IN_BATCHES, "shift": Shift(step=2, since=NOW, stage=ShiftStage.LEAVING)},
        1.0,
        "batch 2 of 5: 40 % of traffic; the old instances that it replaces are being"
        " terminated; no alarm is watched",
    ),
    case(
        "the next batch comes up",
        {"pending": IN_BATCHES, "shift": Shift(step=2, since=NOW, stage=ShiftStage.COMING)},
        1.0,
        "batch 2 of 5: 40 % of traffic; batch 3 comes up; no alarm is watched",
    ),
    case(
        "on trial, after the clock was set back",
        {"active": NEW, "bake": Bake(before=OLD, since=NOW + 5.0)},
        1.0,
        "step 4 of 4: 100 % of traffic; baking 0 s of 600 s; alarms watched: errors, slow",
    ),
    case(
        "on trial, all at once",
        {"active": PLAIN, "bake": Bake(before=OLD, since=NOW - 9.0)},
        1.0,
        "step 1 of 1: 100 % of traffic; baking 9 s of 60 s; no alarm is watched",
    ),
    case(
        "on its way back",
        {"pending": NEW, "shift": Shift(step=1, since=NOW, failure="an alarm")},
        1.0,
        None,
    ),
    case(
        "being deleted",
        {"pending": NEW, "shift": Shift(step=1, since=NOW), "status": EndpointStatus.DELETING},
        1.0,
        None,
    ),
    case("no update", {"status": EndpointStatus.IN_SERVICE}, 1.0, None),
)
def test_progress(changes: dict[str, Any], pace: float, text: str | None) -> None:
    found = replace(endpoint(OLD, UPDATING), **changes)
    assert update_progress(found, NOW, pace) == text
