"""The progress of an update, as clients and the command line read it."""

from dataclasses import replace
from typing import Any

import pytest
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


@pytest.mark.parametrize(
    ("changes", "pace", "text"),
    [
        pytest.param({"pending": NEW}, 1.0, None, id="it comes up"),
        pytest.param(
            {"pending": ALONE, "shift": Shift(step=2, since=NOW - 40.0)},
            1.0,
            "step 2 of 5: 40 % of traffic; baking 40 s of 300 s; alarms watched: errors, slow",
            id="a step",
        ),
        pytest.param(
            {"pending": NEW, "shift": Shift(step=1, since=NOW - 3.0)},
            10.0,
            "step 1 of 4: 25 to 50 % of traffic; baking 3 s of 30 s; alarms watched: errors, slow",
            id="variants of different size, at another pace",
        ),
        pytest.param(
            {"pending": IN_BATCHES, "shift": Shift(step=2, since=NOW - 40.0)},
            1.0,
            "batch 2 of 5: 40 % of traffic; baking 40 s of 300 s; no alarm is watched",
            id="a batch",
        ),
        pytest.param(
            {
                "pending": IN_BATCHES,
                "shift": Shift(step=2, since=NOW, stage=ShiftStage.LEAVING),
            },
            1.0,
            "batch 2 of 5: 40 % of traffic; the old instances that it replaces are being"
            " terminated; no alarm is watched",
            id="its old instances leave",
        ),
        pytest.param(
            {"pending": IN_BATCHES, "shift": Shift(step=2, since=NOW, stage=ShiftStage.COMING)},
            1.0,
            "batch 2 of 5: 40 % of traffic; batch 3 comes up; no alarm is watched",
            id="the next batch comes up",
        ),
        pytest.param(
            {"active": NEW, "bake": Bake(before=OLD, since=NOW + 5.0)},
            1.0,
            "step 4 of 4: 100 % of traffic; baking 0 s of 600 s; alarms watched: errors, slow",
            id="on trial, after the clock was set back",
        ),
        pytest.param(
            {"active": PLAIN, "bake": Bake(before=OLD, since=NOW - 9.0)},
            1.0,
            "step 1 of 1: 100 % of traffic; baking 9 s of 60 s; no alarm is watched",
            id="on trial, all at once",
        ),
        pytest.param(
            {"pending": NEW, "shift": Shift(step=1, since=NOW, failure="an alarm")},
            1.0,
            None,
            id="on its way back",
        ),
        pytest.param(
            {
                "pending": NEW,
                "shift": Shift(step=1, since=NOW),
                "status": EndpointStatus.DELETING,
            },
            1.0,
            None,
            id="being deleted",
        ),
        pytest.param({"status": EndpointStatus.IN_SERVICE}, 1.0, None, id="no update"),
    ],
)
def test_progress(changes: dict[str, Any], pace: float, text: str | None) -> None:
    found = replace(endpoint(OLD, UPDATING), **changes)
    assert update_progress(found, NOW, pace) == text
