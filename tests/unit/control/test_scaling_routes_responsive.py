"""Control's answers on targets that chose the responsive policy."""

from tests.unit.reconcile.samples import NOW, SCOPE
from tests.unit.scaling.loop.scaling_town import NAME, ScalingTown

from hostelry.base.clock import ManualClock
from hostelry.cli.scaling import status_lines
from hostelry.control.scaling_routes import ScalingRoutes
from hostelry.domain.scope import TagSet
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.scaling.loop.history import History


def test_a_target_shows_its_choice_and_the_reason_where_it_is_refused() -> None:
    town = ScalingTown()
    arn = SCOPE.arn("inference-component", "base")
    tags = TagSet(scope=SCOPE, arn=arn, tags={"hostelry:responsive": "5 max-growth=4"})
    town.state.tags.put(SCOPE, arn, tags, expect=None)
    clock = ManualClock(NOW)
    history = History(town.state, MemoryMetrics(clock), town.loads, town.scaler.capacities)
    routes = ScalingRoutes(town.state, town.scaler, history, clock)
    shown = routes.document()
    assert shown["not_responsive"] == []
    assert any(
        "responsive, concurrency per copy 5 max-growth=4" in line
        for line in status_lines(shown["targets"])
    )
    found = town.state.scalable_targets.get(SCOPE, NAME)
    assert found is not None
    town.state.scalable_targets.delete(SCOPE, NAME, expect=found.version)
    (refused,) = routes.document()["not_responsive"]
    assert refused["arn"] == arn
    assert "RegisterScalableTarget" in refused["why"]
