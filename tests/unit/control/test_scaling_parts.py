"""Routes that `hostelry scaling` reads."""

import json

from msgspec.structs import replace
from tests.unit.scaling.loop.scaling_town import ScalingTown

from hostelry.control.scaling_routes import ScalingRoutes
from hostelry.domain.endpoint import EndpointStatus, Shift
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.scaling.loop.history import History


def routes_of(town: ScalingTown) -> ScalingRoutes:
    history = History(town.state, MemoryMetrics(town.clock), town.loads, town.scaler.capacities)
    history.write(town.now)
    return ScalingRoutes(town.state, town.scaler, history, town.clock)


def test_the_command_line_gets_every_target_with_its_policies_and_acts() -> None:
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
    assert timeline["update"] is None
    stored = town.state.endpoints.get(town.base.scope, "ep")
    assert stored is not None
    pending = replace(stored.value.active, generation=9)
    shift = Shift(step=1, since=town.now - 3.0)
    shifting = replace(stored.value, status=EndpointStatus.UPDATING, pending=pending, shift=shift)
    town.state.endpoints.put(town.base.scope, "ep", shifting, expect=stored.version)
    (timeline,) = routes.timelines("ep", "base", 900.0)["timelines"]
    assert timeline["update"].startswith("step 1 of 1: 100 % of traffic; baking 3 s of 0 s;")
    (update,) = json.loads(json.dumps(routes.timelines("ep", None, 900.0)))["updates"]
    assert (update["outcome"], update["ended_at"]) == ("under way", None)
    assert [it["name"] for it in update["steps"]] == ["step 1 of 1"]
    assert routes.timelines("ep", "base", 900.0)["updates"] == []
    assert routes.timelines("ep", "other", 900.0)["timelines"] == []
    assert routes.timelines("none", None, 900.0)["timelines"] == []


def test_a_target_whose_component_is_gone_is_still_reported() -> None:
    town = ScalingTown(copies=1)
    routes = routes_of(town)
    found = town.state.components.get(town.base.scope, "base")
    assert found is not None
    town.state.components.delete(town.base.scope, "base", expect=found.version)
    (target,) = routes.document()["targets"]
    assert (target["desired"], target["endpoint"]) == (None, None)
