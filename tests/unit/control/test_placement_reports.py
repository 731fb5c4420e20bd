"""Reports on placement: made again when records change or they grow old, not at each look."""

from tests.cases import case, cases
from tests.unit.reconcile.samples import Town, component, deployment, endpoint, variant

from hostelry.control.reports import PLACEMENT_AGE_S, PlacementReports
from hostelry.reconcile.plan.endpoint_state import InstanceFacts


@cases(
    "later_s, writes, num_more",
    case("nothing has changed", PLACEMENT_AGE_S - 1, False, 0),
    case("the report is old", PLACEMENT_AGE_S, False, 1),
    case("a record has changed", 0.0, True, 1),
)
def test_when_a_report_is_made_again(later_s: float, writes: bool, num_more: int) -> None:
    town = Town()
    town.add(endpoint(deployment(variant())), component(copies=2))
    town.settle()
    now_s = [100.0]
    facts: dict[str, InstanceFacts] = dict(town.facts())
    reports = PlacementReports(town.state, lambda: facts, lambda: now_s[0])
    (first,) = reports.endpoints()
    assert len(first["placement"]["why"]) == 2
    now_s[0] += later_s
    if writes:
        town.add(component(name="other", copies=1))
    (second,) = reports.endpoints()
    assert (second["placement"] is not first["placement"]) == bool(num_more)
    assert len(second["components"]) == 1 + writes
    town.close()
