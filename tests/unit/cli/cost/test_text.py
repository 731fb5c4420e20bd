"""The tables of `hostelry cost`."""

from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.cli.cost.command import By
from hostelry.cli.cost.text import (
    cost_lines,
    write_amount,
    write_money,
)
from hostelry.cost.attribution import Idle
from hostelry.cost.budget import BudgetState
from hostelry.cost.document import build_document
from hostelry.cost.prices import Budget
from hostelry.cost.report import BY, Amount, CostReport, CostRow, IdleRow, Saving
from hostelry.cost.steps import StepCount, StepKind
from hostelry.cost.usage import Calls

KNOWN = Amount(known=2.0, num_known=1, instance_h=1.5)
PARTLY = Amount(known=2.0, num_known=1, num_unknown=1)
UNKNOWN = Amount(num_unknown=1)
REPORT = CostReport(
    rows=[
        CostRow(name="chat", amount=KNOWN, calls=Calls(requests=4)),
        CostRow(name="rare", amount=UNKNOWN, calls=Calls()),
    ],
    idle=[IdleRow(endpoint="chat", component=None, reason=Idle.UNRESERVED, amount=KNOWN)],
    savings=[Saving(endpoint="rare", num_hours=3, amount=UNKNOWN, is_uncalled=True)],
    total=PARTLY,
    missing_prices=['instances."ml.x"'],
    recorded_s=1800.0,
    period_s=7200.0,
    steps=[
        StepCount(
            endpoint="chat", kind=StepKind.CHANGE, operation="UpdateEndpoint", num=2.0, amount=None
        ),
        StepCount(endpoint="", kind=StepKind.DEPLOY, operation="CreateModel", num=1.0, amount=0.5),
    ],
)
BUDGETS = [
    BudgetState(budget=Budget(name="all", amount=1.0, period="day"), since=0.0, spent=PARTLY),
]


def test_every_part_of_a_report_is_shown() -> None:
    text = "\n".join(cost_lines(REPORT, BUDGETS, "EUR", "endpoint"))
    lines = [" ".join(it.split()) for it in text.split("\n")]
    for expected in (
        "ENDPOINT EUR INSTANCE HOURS CALLS PER 1,000 CALLS TOKENS PER 1,000 TOKENS",
        "chat 2.0000 1.50 4 500.0000 - -",
        "rare unknown 0.00 0 - - -",
        "chat not reserved by any copy 2.0000 1.50",
        "total: at least 2.0000 EUR",
        "records: 0.50 of 2.00 hours",
        "rare 3 unknown not called in this period",
        "STEPS OF KIND OPERATION STEPS EUR",
        "chat change UpdateEndpoint 2 -",
        "(models and configurations) deploy CreateModel 1 0.5000",
        "all day >= 2.0000 EUR 1.0000 over budget",
        'No price is known for: instances."ml.x".',
    ):
        assert expected in lines


def test_the_option_has_every_kind_of_row() -> None:
    assert tuple(By) == BY


def test_a_period_without_usage_has_one_line() -> None:
    empty = CostReport(
        rows=[], idle=[], savings=[], total=Amount(), missing_prices=[], recorded_s=0, period_s=3600
    )
    assert cost_lines(empty, [], "EUR", "hour") == [
        "No usage is recorded in this period.",
        "",
        "total: 0.0000 EUR",
        "instances: 0.00 hours",
        "records: 0.00 of 1.00 hours",
    ]


def test_without_prices_hours_calls_and_steps_are_shown() -> None:
    amount = Amount(num_unknown=1, instance_h=2.5)
    row = CostRow(name="chat", amount=amount, calls=Calls(requests=4))
    report = replace(REPORT, rows=[row], idle=[], total=amount)
    lines = [" ".join(it.split()) for it in cost_lines(report, [], "", "endpoint")]
    for expected in (
        "ENDPOINT COST INSTANCE HOURS CALLS PER 1,000 CALLS TOKENS PER 1,000 TOKENS",
        "chat unknown 2.50 4 - - -",
        "total: unknown",
        "instances: 2.50 hours",
        "chat change UpdateEndpoint 2 -",
    ):
        assert expected in lines
    assert build_document(report, [], "", "endpoint")["currency"] is None


def test_an_unknown_amount_is_null_for_programs() -> None:
    found = build_document(REPORT, BUDGETS, "EUR", "endpoint")
    assert [it["amount"] for it in found["rows"]] == [2.0, None]
    assert found["total"] == {"amount": 2.0, "is_complete": False, "instance_h": 0.0}
    assert found["budgets"][0]["is_over"] is True


@cases(
    "amount, expected",
    case("known", KNOWN, "2.0000"),
    case("in part", PARTLY, ">= 2.0000"),
    case("unknown", UNKNOWN, "unknown"),
    case("nothing to pay", Amount(), "0.0000"),
)
def test_an_amount(amount: Amount, expected: str) -> None:
    assert write_amount(amount) == expected


def test_small_amounts_are_not_rounded_to_nothing() -> None:
    assert write_money(0.000012345) == "1.2e-05"
    assert write_money(None) == "-"
