"""The cost of a period: the charges of its hours, and the reports on them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hostelry.cost.attribution import Charge, attribute
from hostelry.cost.budget import BudgetState, Tags, evaluate_budgets, find_period_start
from hostelry.cost.period import Period
from hostelry.cost.prices import PriceList
from hostelry.cost.report import CostReport, build_report, select_name
from hostelry.cost.usage import HourUsage, UsageSum


class CostView:
    """The charges of all given hours, and the reports on those within the period."""

    def __init__(
        self, prices: PriceList, hours: Sequence[HourUsage], period: Period, until: float
    ) -> None:
        self._prices = prices
        self._length_s = until - period.since
        self._all = attribute(hours, prices)
        self._hours = [it for it in hours if period.since <= it.at < period.until]
        starts = {it.at for it in self._hours}
        self._charges = [it for it in self._all if it.at in starts]

    def select(self, name: str | None) -> tuple[list[Charge], list[HourUsage]]:
        """The charges and hours of the period, of one name or of all."""
        if name is None:
            return self._charges, self._hours
        return select_name(name, self._charges, self._hours)

    def build(self, name: str | None, by: str) -> CostReport:
        """The report of the period."""
        charges, hours = self.select(name)
        return build_report(charges, hours, by, self._length_s)

    def evaluate(self, tags: Tags, now: float) -> list[BudgetState]:
        """The budgets' present periods, whatever the period of the report is."""
        return evaluate_budgets(self._prices.budgets, self._all, tags, now)


def find_first(period: Period, prices: PriceList, now: float) -> float:
    """The first hour that the report or a budget needs."""
    starts = (find_period_start(it.period, now) for it in prices.budgets)
    return min(period.since, *starts, now)


def read_sums(answer: Mapping[str, Any]) -> Iterable[UsageSum]:
    """The sums in control's answer."""
    for one in answer["sums"]:
        for at, value in one["hours"]:
            yield UsageSum(one["metric"], one["dimensions"], at, value)
