"""Evaluates budgets over calendar periods, in UTC. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hostelry.cost.attribution import Charge
from hostelry.cost.prices import Budget
from hostelry.cost.report import Amount, sum_charges

Tags = Mapping[str, Mapping[str, str]]  # by endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState:
    """The cost within a budget since `since`, the start of its present period."""

    budget: Budget
    since: float
    spent: Amount

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
    states = []
    for budget in budgets:
        since = find_period_start(budget.period, now)
        spent = [it for it in charges if since <= it.at <= now and _is_within(budget, it, tags)]
        states.append(BudgetState(budget=budget, since=since, spent=sum_charges(spent)))
    return states


def _is_within(budget: Budget, charge: Charge, tags: Tags) -> bool:
    endpoint = None if charge.target is None else charge.target.endpoint
    if budget.endpoint is not None:
        return endpoint == budget.endpoint
    if budget.tag is None:
        return True
    key, value = budget.tag
    return endpoint is not None and tags.get(endpoint, {}).get(key) == value
