"""What measures and scales in control: parts that fail come back; what the command line is told."""

import asyncio
import json
import logging

import pytest
from tests.unit.autoscaler.scaling_town import ScalingTown

from hostelry.autoscaler.history import History
from hostelry.base.clock import ManualClock
from hostelry.base.errors import RetryableError
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.server.scaling import Part, kept_up
from hostelry.server.scaling_routes import ScalingRoutes


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(ValueError("a defect"), id="a defect"),
        pytest.param(RetryableError("the disk is full"), id="a full disk"),
        pytest.param(None, id="an end that nobody asked for"),
    ],
)
def test_a_part_that_fails_is_told_of_and_begins_again(
    fault: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    began: list[float] = []
    clock = ManualClock()

    async def run() -> None:
        began.append(clock.now())
        if len(began) == 3:
            raise asyncio.CancelledError
        if fault is not None:
            raise fault

    with caplog.at_level(logging.INFO), pytest.raises(asyncio.CancelledError):
        asyncio.run(kept_up(Part(name="the part", run=run), clock))
    assert [it - began[0] for it in began] == [0.0, 1.0, 2.0]
    assert ("the part" in caplog.text) is (fault is not None)


def routes_of(town: ScalingTown) -> ScalingRoutes:
    history = History(town.state, MemoryMetrics(town.clock), town.loads, town.scaler.capacities)
    history.write(town.now)
    return ScalingRoutes(town.state, town.scaler, history, town.clock)


def test_the_command_line_is_told_of_every_target_with_its_policies_and_acts() -> None:
    town = ScalingTown(copies=1)
    policy = town.track()
    town.alarm(policy, 12.0)
    routes = routes_of(town)
    (target,) = json.loads(json.dumps(routes.document()))["targets"]
    assert (target["endpoint"], target["component"]) == ("ep", "base")
    assert (target["desired"], target["serving"], target["status"]) == (3, 1, "Updating")
    assert [it["state"] for it in target["policies"][0]["alarms"]] == ["ALARM", "OK"]
    assert target["activities"][0]["receipt"]["t1"] == town.now
    assert "The metric is 12" in target["last_decision"]["text"]
    found = routes.timelines("ep", "base", 900.0)
    (timeline,) = found["timelines"]
    assert [it["to"] for it in timeline["acts"]] == [3]
    assert [value for _, value in timeline["series"]["desired"]] == [3.0]
    assert routes.timelines("ep", "other", 900.0)["timelines"] == []
    assert routes.timelines("none", None, 900.0)["timelines"] == []


def test_a_target_whose_component_is_gone_is_still_told_of() -> None:
    town = ScalingTown(copies=1)
    routes = routes_of(town)
    found = town.state.components.get(town.base.scope, "base")
    assert found is not None
    town.state.components.delete(town.base.scope, "base", expect=found.version)
    (target,) = routes.document()["targets"]
    assert (target["desired"], target["endpoint"]) == (None, None)
