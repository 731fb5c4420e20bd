"""A cost report as JSON, for programs and the console. Pure."""

from collections.abc import Sequence
from typing import Any

from hostelry.cost.budget import BudgetState
from hostelry.cost.report import Amount, CostReport


def build_document(
    report: CostReport, budgets: Sequence[BudgetState], currency: str, by: str
) -> dict[str, Any]:
    """The report for programs. An unknown amount is null, as is the currency without prices."""
    return {
        "by": by,
        "currency": currency or None,
        "rows": [
            {
                "name": row.name,
                **_build_amount(row.amount),
                "calls": None if row.calls is None else row.calls.requests,
                "service_s": None if row.calls is None else row.calls.service_s,
                "tokens_in": None if row.calls is None else row.calls.tokens_in,
                "tokens_out": None if row.calls is None else row.calls.tokens_out,
                "per_1000_calls": row.per_1000_calls,
                "per_1000_tokens": row.per_1000_tokens,
            }
            for row in report.rows
        ],
        "idle": [
            {
                "endpoint": idle.endpoint,
                "component": idle.component,
                "reason": idle.reason.value,
                **_build_amount(idle.amount),
            }
            for idle in report.idle
        ],
        "total": _build_amount(report.total),
        "recorded_s": report.recorded_s,
        "period_s": report.period_s,
        "missing_prices": list(report.missing_prices),
        "hours_without_calls": [
            {
                "endpoint": saving.endpoint,
                "hours": saving.num_hours,
                "is_uncalled": saving.is_uncalled,
                **_build_amount(saving.amount),
            }
            for saving in report.savings
        ],
        "steps": [
            {
                "endpoint": step.endpoint,
                "kind": step.kind.value,
                "operation": step.operation,
                "steps": step.num,
                "amount": step.amount,
            }
            for step in report.steps
        ],
        "budgets": [
            {
                "name": state.budget.name,
                "period": state.budget.period,
                "since": state.since,
                "budget": state.budget.amount,
                "is_over": state.is_over,
                "unmatched": state.unmatched,
                **_build_amount(state.spent),
            }
            for state in budgets
        ],
    }


def _build_amount(amount: Amount) -> dict[str, Any]:
    return {
        "amount": amount.value,
        "is_complete": amount.is_complete,
        "instance_h": amount.instance_h,
    }
