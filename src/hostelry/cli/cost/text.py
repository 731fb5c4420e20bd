"""The tables of `hostelry cost`. Pure."""

from collections.abc import Iterable, Sequence

from hostelry.cli.status_text import columns
from hostelry.cost.attribution import HOUR_S, NO_ENDPOINT
from hostelry.cost.budget import BudgetState
from hostelry.cost.report import Amount, CostReport, CostRow

UNKNOWN, COST = "unknown", "COST"
SMALLEST_PLAIN = 0.01


def cost_lines(
    report: CostReport, budgets: Sequence[BudgetState], currency: str, by: str
) -> list[str]:
    """The table, then idle cost, the total, savings, budgets and unknown prices.

    Without prices the currency is empty.
    """
    total = write_total(report.total, currency) if currency else UNKNOWN
    currency = currency or COST
    lines = _row_lines(report.rows, currency, by)
    if report.idle:
        rows = [["IDLE", "WHY", currency, "INSTANCE HOURS"]]
        for one in report.idle:
            name, hours = one.component or one.endpoint, one.amount.instance_h
            rows.append([name, one.reason.value, write_amount(one.amount), f"{hours:.2f}"])
        lines += ["", *columns(rows)]
    lines += ["", f"total: {total}"]
    lines += [f"instances: {report.total.instance_h:.2f} hours"]
    lines += [
        f"records: {_write_hours(report.recorded_s)} of {_write_hours(report.period_s)} hours"
    ]
    lines += _saving_lines(report, currency)
    lines += _step_lines(report, currency)
    lines += _budget_lines(budgets, currency)
    if report.missing_prices:
        lines += [
            "",
            f"No price is known for: {', '.join(report.missing_prices)}.",
            "Add them to prices.toml, with 0 for what costs nothing.",
        ]
    return lines


def _row_lines(rows: Sequence[CostRow], currency: str, by: str) -> list[str]:
    if not rows:
        return ["No usage is recorded in this period."]
    heads = ["INSTANCE HOURS", "CALLS", "PER 1,000 CALLS", "TOKENS", "PER 1,000 TOKENS"]
    table = [[by.upper(), currency, *heads]]
    for row in rows:
        calls = row.calls
        table.append(
            [
                row.name,
                write_amount(row.amount),
                f"{row.amount.instance_h:.2f}",
                "-" if calls is None else f"{calls.requests:.0f}",
                write_money(row.per_1000_calls),
                "-" if calls is None or not calls.tokens else f"{calls.tokens:.0f}",
                write_money(row.per_1000_tokens),
            ]
        )
    return columns(table)


def _saving_lines(report: CostReport, currency: str) -> list[str]:
    if not report.savings:
        return []
    rows = [["HOURS WITHOUT A CALL", "HOURS", "SCALE TO ZERO WOULD SAVE AT MOST", ""]]
    for one in report.savings:
        note = "not called in this period" if one.is_uncalled else ""
        amount = write_with_currency(one.amount, currency)
        rows.append([one.endpoint, str(one.num_hours), amount, note])
    return ["", *columns(rows)]


def _step_lines(report: CostReport, currency: str) -> list[str]:
    if not report.steps:
        return []
    rows = [["STEPS OF", "KIND", "OPERATION", "STEPS", currency]]
    for one in report.steps:
        name = one.endpoint or NO_ENDPOINT
        rows.append([name, one.kind, one.operation, f"{one.num:.0f}", write_money(one.amount)])
    return ["", *columns(rows)]


def _budget_lines(budgets: Iterable[BudgetState], currency: str) -> list[str]:
    rows = [["BUDGET", "PERIOD", "SPENT", "OF", ""]]
    for one in budgets:
        budget = one.budget
        spent = write_with_currency(one.spent, currency)
        note = one.unmatched or ("over budget" if one.is_over else "")
        rows.append([budget.name, budget.period, spent, write_money(budget.amount), note])
    return ["", *columns(rows)] if len(rows) > 1 else []


def write_amount(amount: Amount) -> str:
    """An amount. It begins with ">=" if a price is unknown, and is "unknown" if all are."""
    if amount.value is None:
        return UNKNOWN
    return f"{'' if amount.is_complete else '>= '}{write_money(amount.value)}"


def write_with_currency(amount: Amount, currency: str) -> str:
    """An amount with its currency, which an unknown amount has not."""
    text = write_amount(amount)
    return text if amount.value is None else f"{text} {currency}"


def write_total(amount: Amount, currency: str) -> str:
    """The total in words."""
    if amount.value is None:
        return UNKNOWN
    least = "" if amount.is_complete else "at least "
    return f"{least}{write_money(amount.value)} {currency}"


def write_money(value: float | None) -> str:
    """Four decimals, or two digits of a smaller value."""
    if value is None:
        return "-"
    return f"{value:.2g}" if 0 < value < SMALLEST_PLAIN else f"{value:.4f}"


def _write_hours(seconds: float) -> str:
    return f"{seconds / HOUR_S:.2f}"
