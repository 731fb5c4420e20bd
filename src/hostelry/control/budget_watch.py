"""Publishes the state of the operator's budgets as metrics, so that alarms can watch them."""

import logging
from collections.abc import Iterable, Iterator

from hostelry.base.clock import Clock
from hostelry.control.usage_sums import MAX_SUMS, TooManySumsError, list_sums, list_tags
from hostelry.cost.attribution import attribute
from hostelry.cost.budget import BudgetState, evaluate_budgets, find_period_start
from hostelry.cost.usage import UsageSum, gather_hours
from hostelry.domain.metric import OWN_NAMESPACE, Metric, Sample
from hostelry.domain.scope import Scope
from hostelry.home.price_file import PriceFile
from hostelry.metrics.protocol import MetricStore
from hostelry.store.records import State

LOG = logging.getLogger(__name__)


class BudgetWatch:
    """Evaluates the budgets in a price file over the records of usage of `owner`.

    `most_sums` limits the sums of an evaluation.
    """

    def __init__(
        self,
        owner: Scope,
        state: State,
        metrics: MetricStore,
        prices: PriceFile,
        clock: Clock,
        most_sums: int = MAX_SUMS,
    ) -> None:
        self._owner = owner
        self._state = state
        self._metrics = metrics
        self._prices = prices
        self._clock = clock
        self._most_sums = most_sums
        self._warned: dict[str, str] = {}

    def publish(self) -> None:
        """Write BudgetSpent and BudgetUsed of each budget. Nothing without budgets.

        A budget that covers no endpoint has no metrics, because its cost is unknown.
        """
        prices = self._prices.get()
        if prices is None or not prices.budgets:
            return
        now = self._clock.now()
        since = min(find_period_start(it.period, now) for it in prices.budgets)
        try:
            hours = gather_hours(self._list_sums(since, now))
        except TooManySumsError as error:
            LOG.warning("budgets have no metrics now: %s", error)
            return
        charges = attribute(hours, prices)
        tags = list_tags(self._owner, self._state)
        states = evaluate_budgets(prices.budgets, charges, tags, now)
        self._warn_unmatched(states)
        known = [it for it in states if it.unmatched is None]
        found = [sample for state in known for sample in sample_budget(state, now)]
        self._metrics.emit(self._owner, found)

    def _warn_unmatched(self, states: Iterable[BudgetState]) -> None:
        """Log each budget without an endpoint once, until it has one."""
        found = {it.budget.name: it.unmatched for it in states if it.unmatched is not None}
        for name, why in found.items():
            if self._warned.get(name) != why:
                LOG.warning("budget %s has no metrics now: %s", name, why)
        self._warned = found

    def _list_sums(self, since: float, now: float) -> Iterator[UsageSum]:
        period = since, now
        for metric, points in list_sums(self._owner, self._metrics, period, now, self._most_sums):
            dimensions = dict(metric.dimensions)
            for point in points:
                yield UsageSum(metric.name, dimensions, point.at, point.value)


def sample_budget(state: BudgetState, at: float) -> Iterator[Sample]:
    """The known cost in the currency of the prices, and in per cent of the budget."""
    values = {"BudgetSpent": (state.spent.known, "None")}
    if state.budget.amount:
        values["BudgetUsed"] = (100 * state.spent.known / state.budget.amount, "Percent")
    for name, (value, unit) in values.items():
        metric = Metric.of(OWN_NAMESPACE, name, {"BudgetName": state.budget.name})
        yield Sample(metric=metric, at=at, values=(value,), counts=(1.0,), unit=unit)
