"""Steps: their kinds, their sums by endpoint and operation, and their price."""

from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.cost.attribution import NO_ENDPOINT, ChargeKind, attribute
from hostelry.cost.prices import PriceList
from hostelry.cost.report import build_report, select_name
from hostelry.cost.steps import KINDS, StepKind, find_step_kind, sum_steps
from hostelry.cost.usage import STEPS, HourUsage, UsageSum, gather_hours

UNPRICED = PriceList(currency="USD")
PRICED = replace(UNPRICED, per_step=0.5)
HOURS = gather_hours(
    [
        UsageSum(STEPS, {"Operation": "CreateModel"}, 0.0, 3.0),
        UsageSum(STEPS, {"Operation": "CreateEndpoint", "EndpointName": "b"}, 0.0, 1.0),
        UsageSum(STEPS, {"Operation": "restart", "EndpointName": "b"}, 0.0, 1.0),
        UsageSum(STEPS, {"Operation": "UpdateEndpoint", "EndpointName": "b"}, 3600.0, 2.0),
        UsageSum(STEPS, {"Operation": "UpdateEndpoint", "EndpointName": "b"}, 7200.0, 2.0),
    ]
)


@cases(
    "operation, kind",
    case("a new endpoint", "CreateEndpoint", StepKind.DEPLOY),
    case("a changed number of copies", "UpdateInferenceComponentRuntimeConfig", StepKind.CHANGE),
    case("a scaling policy", "PutScalingPolicy", StepKind.SCALING),
    case("a deleted component", "DeleteInferenceComponent", StepKind.REMOVE),
    case("an act", "drain", StepKind.ACT),
)
def test_kinds_of_steps(operation: str, kind: StepKind) -> None:
    assert find_step_kind(operation) is kind


def test_no_step_only_reads() -> None:
    assert not [it for _, it in KINDS if it.startswith(("Describe", "List", "Get", "Invoke"))]


def test_steps_are_summed_by_endpoint_and_operation_in_the_order_of_kinds() -> None:
    rows = [(it.endpoint, it.kind.value, it.operation, it.num) for it in sum_steps(HOURS, None)]
    assert rows == [
        ("", "deploy", "CreateModel", 3.0),
        ("b", "deploy", "CreateEndpoint", 1.0),
        ("b", "change", "UpdateEndpoint", 4.0),
        ("b", "operator's act", "restart", 1.0),
    ]


def test_without_a_price_steps_are_counted_and_no_cost_is_missing() -> None:
    report = build_report(attribute(HOURS, UNPRICED), HOURS, "endpoint", 10_800)
    assert {it.amount for it in report.steps} == {None}
    assert (report.total.value, report.missing_prices, report.rows) == (0.0, [], [])


def test_priced_steps_are_charges_of_their_endpoint() -> None:
    charges = attribute(HOURS, PRICED)
    assert {it.kind for it in charges} == {ChargeKind.STEP}
    report = build_report(charges, HOURS, "endpoint", 10_800)
    assert {it.name: it.amount.value for it in report.rows} == {"b": 3.0, NO_ENDPOINT: 1.5}
    assert sum(it.amount or 0 for it in report.steps) == report.total.value == 4.5


def test_a_name_selects_its_own_steps() -> None:
    charges, hours = select_name("b", attribute(HOURS, PRICED), HOURS)
    report = build_report(charges, hours, "endpoint", 10_800)
    assert {it.endpoint for it in report.steps} == {"b"}
    assert report.total.value == 3.0


def test_a_price_of_zero_is_known() -> None:
    free = build_report(attribute(HOURS, replace(PRICED, per_step=0.0)), HOURS, "hour", 10_800)
    assert {it.amount for it in free.steps} == {0.0}


def test_an_hour_without_steps_has_none() -> None:
    assert sum_steps([HourUsage(at=0.0)], 1.0) == []
