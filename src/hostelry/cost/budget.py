"""Evaluates budgets over calendar periods, in UTC. Pure."""

from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from hostelry.cost.attribution import Charge
from hostelry.cost.prices import Budget
from hostelry.cost.report import UNKNOWN, Amount, sum_charges

Tags = Mapping[str, Mapping[str, str]]  # by endpoint. It has every endpoint that exists


class BudgetState(msgspec.Struct, frozen=True, kw_only=True):
    """The cost within a budget since `since`, the start of its present period.

    `unmatched` says why the budget covers no endpoint, so that its cost is unknown.
    """

    budget: Budget
    since: float
    spent: Amount
    unmatched: str | None = None

    @property
    def is_over(self) -> bool:
        """True if the known cost is above the budget."""
        return self.spent.known > self.budget.amount


def find_period_start(period: str, now: float) -> float:
    """The start of the day, week (on Monday) or month that contains `now`."""
    at = datetime.fromtimestamp(now, UTC)
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "week":
        day -= timedelta(days=day.weekday())
    elif period == "month":
        day = day.replace(day=1)
    return day.timestamp()


def evaluate_budgets(
    budgets: Iterable[Budget], charges: Sequence[Charge], tags: Tags, now: float
) -> list[BudgetState]:
    """The state of each budget. `charges` begin with the longest period's start or earlier.

    Storage counts only for a budget of everything. An endpoint that has been deleted has no tags.
    """
    used = {it.target.endpoint for it in charges if it.target is not None}
    states = []
    for budget in budgets:
        since = find_period_start(budget.period, now)
        unmatched = _explain_unmatched(budget, used, tags)
        spent = [it for it in charges if since <= it.at <= now and _is_within(budget, it, tags)]
        amount = sum_charges(spent) if unmatched is None else UNKNOWN
        states.append(BudgetState(budget=budget, since=since, spent=amount, unmatched=unmatched))
    return states


def _explain_unmatched(budget: Budget, used: Container[str], tags: Tags) -> str | None:
    """Why no endpoint is within the budget. None: one is, or the budget covers everything."""
    name = budget.endpoint
    if name is not None:
        if name in tags or name in used:
            return None
        return f"no endpoint {name} exists or has recorded usage: correct the budget's endpoint"
    if budget.tag is None:
        return None
    key, value = budget.tag
    if any(it.get(key) == value for it in tags.values()):
        return None
    return f"no endpoint has the tag {key}={value}: correct the budget's tag, or tag an endpoint"


def _is_within(budget: Budget, charge: Charge, tags: Tags) -> bool:
    endpoint = None if charge.target is None else charge.target.endpoint
    if budget.endpoint is not None:
        return endpoint == budget.endpoint
    if budget.tag is None:
        return True
    key, value = budget.tag
    return endpoint is not None and tags.get(endpoint, {}).get(key) == value
