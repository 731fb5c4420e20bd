"""Budgets over calendar periods, and the rows of CSV files."""

from datetime import UTC, datetime

from tests.cases import case, cases

from hostelry.cost.attribution import Charge, ChargeKind, Idle
from hostelry.cost.budget import evaluate_budgets, find_period_start
from hostelry.cost.export import (
    FOCUS_COLUMNS,
    REPORT_COLUMNS,
    guard_cell,
    list_focus_rows,
    list_report_rows,
)
from hostelry.cost.prices import Budget
from hostelry.cost.report import build_report
from hostelry.cost.usage import UsageTarget


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NOW = at("2026-12-03T10:30")  # a Thursday


@cases(
    "period, expected",
    case("a day", "day", "2026-12-03"),
    case("a week begins on Monday", "week", "2026-11-30"),
    case("a month", "month", "2026-12-01"),
)
def test_a_period_begins_in_utc(period: str, expected: str) -> None:
    assert find_period_start(period, NOW) == at(expected)


def charge(when: str, endpoint: str | None, price: float | None = 1.0, **more: object) -> Charge:
    who = None if endpoint is None else UsageTarget(endpoint=endpoint, variant="v")
    kind = ChargeKind.STORAGE if endpoint is None else ChargeKind.INSTANCE
    fields = {"instance_type": "ml.a", "quantity": 1.0, **more}
    return Charge(at=at(when), kind=kind, unit_price=price, target=who, **fields)  # type: ignore[arg-type]


CHARGES = [
    charge("2026-11-30T00:00", "chat", 4.0),
    charge("2026-12-02T00:00", "chat", 2.0),
    charge("2026-12-03T10:00", "chat", 1.0),
    charge("2026-12-03T10:00", "search", 8.0),
    charge("2026-12-03T10:00", "rare", None),
    charge("2026-12-03T10:00", None, 16.0),
]
TAGS = {"search": {"team": "a"}, "rare": {"team": "a"}, "quiet": {"team": "c"}}


@cases(
    "given, spent, unknown, is_over",
    case("everything of the day", {"period": "day", "amount": 25}, 25.0, 1, False),
    case("above the budget", {"period": "day", "amount": 24}, 25.0, 1, True),
    case("an endpoint by week", {"period": "week", "amount": 5, "endpoint": "chat"}, 7, 0, True),
    case("an endpoint by month", {"period": "month", "amount": 5, "endpoint": "chat"}, 3, 0, False),
    case("a tag", {"period": "day", "amount": 1, "tag": ("team", "a")}, 8, 1, True),
    case("a quiet endpoint", {"period": "day", "amount": 0, "endpoint": "quiet"}, 0, 0, False),
    case("a quiet tag", {"period": "day", "amount": 0, "tag": ("team", "c")}, 0, 0, False),
    case(
        "an endpoint that is gone", {"period": "day", "amount": 9, "endpoint": "chat"}, 1, 0, False
    ),
)
def test_a_budget_covers_its_period_and_scope(
    given: dict[str, object], spent: float, unknown: int, is_over: bool
) -> None:
    budget = Budget(name="b", **given)  # type: ignore[arg-type]
    (state,) = evaluate_budgets([budget], CHARGES, TAGS, NOW)
    assert (state.spent.known, state.spent.num_unknown, state.is_over) == (spent, unknown, is_over)


@cases(
    "given, why",
    case("an endpoint that never was", {"endpoint": "chta"}, "no endpoint chta exists or has"),
    case("a tag of no endpoint", {"tag": ("team", "b")}, "no endpoint has the tag team=b"),
    case("a key of no endpoint", {"tag": ("t", "a")}, "no endpoint has the tag t=a"),
)
def test_a_budget_of_no_endpoint_is_unknown(given: dict[str, object], why: str) -> None:
    budget = Budget(name="b", period="day", amount=0, **given)  # type: ignore[arg-type]
    (state,) = evaluate_budgets([budget], CHARGES, TAGS, NOW)
    assert (state.spent.value, state.spent.is_complete, state.is_over) == (None, False, False)
    assert state.unmatched is not None
    assert state.unmatched.startswith(why)


# FOCUS 1.2's columns that must be present, and among them the columns that must not be null.
MANDATORY = {
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd",
    "BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargePeriodEnd",
    "ChargePeriodStart", "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost",
    "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "ServiceCategory",
    "ServiceName",
}  # fmt: skip
NULL = {"BillingAccountName", "ChargeClass"}


def test_focus_has_every_mandatory_column_and_known_prices_alone() -> None:
    header, *rows = list_focus_rows(CHARGES, "EUR", "111122223333", "us-east-1")
    assert tuple(header) == FOCUS_COLUMNS
    assert set(header) >= MANDATORY
    assert len(rows) == len(CHARGES) - 1
    for row in rows:
        found = dict(zip(header, row, strict=True))
        assert not [it for it in MANDATORY - NULL if not found[it]]
    first = dict(zip(header, rows[0], strict=True))
    assert (first["ChargePeriodStart"], first["ChargePeriodEnd"]) == (
        "2026-11-30T00:00:00Z",
        "2026-11-30T01:00:00Z",
    )
    assert (first["BillingPeriodStart"], first["BillingPeriodEnd"]) == (
        "2026-11-01T00:00:00Z",
        "2026-12-01T00:00:00Z",
    )
    assert (first["BilledCost"], first["PricingUnit"], first["SkuId"]) == ("4", "Hours", "ml.a")


def test_the_rows_of_a_report_have_one_shape() -> None:
    idle = charge("2026-12-03T10:00", "chat", 0.1, idle=Idle.UNRESERVED)
    report = build_report([*CHARGES, idle], [], "endpoint", 3600)
    header, *rows = list_report_rows(report, "EUR")
    assert tuple(header) == REPORT_COLUMNS
    assert {len(it) for it in rows} == {len(REPORT_COLUMNS)}
    named = {it[0]: it[1:4] for it in rows}
    assert tuple(named["rare"]) == ("false", "", "false")
    assert tuple(named["chat: not reserved by any copy"]) == ("true", "0.1", "true")


@cases(
    "text, expected",
    case("a name", "model-1", "model-1"),
    case("a formula", "=HYPERLINK(1)", "'=HYPERLINK(1)"),
    case("an at sign", "@sum", "'@sum"),
)
def test_no_cell_is_a_formula(text: str, expected: str) -> None:
    assert guard_cell(text) == expected
