"""Reads the records of usage: sums per hour, and the tags of endpoints."""

import math
from collections.abc import Iterator

from hostelry.base.errors import TerminalError
from hostelry.control.usage_routes import HOUR_S, KEPT_S
from hostelry.cost.usage import METRICS
from hostelry.domain.metric import OWN_NAMESPACE, Datapoint, Metric, MetricStat
from hostelry.domain.scope import Scope
from hostelry.metrics.protocol import MetricFilter, MetricReader
from hostelry.store.records import State

MAX_SUMS = 1_000_000


class TooManySumsError(TerminalError):
    """A period has too many sums of usage."""


def list_sums(
    scope: Scope,
    metrics: MetricReader,
    period: tuple[float, float],
    now: float,
    most: int = MAX_SUMS,
) -> Iterator[tuple[Metric, list[Datapoint]]]:
    """Yield each metric of usage with its sums of the hours that overlap the period.

    Raises TooManySumsError if there are more than `most`.
    """
    since, until = period
    start = math.floor(max(since, now - KEPT_S) / HOUR_S) * HOUR_S
    end = math.ceil(until / HOUR_S) * HOUR_S
    num = 0
    for metric in metrics.find(scope, MetricFilter(namespace=OWN_NAMESPACE)):
        if metric.name not in METRICS:
            continue
        stat = MetricStat(metric=metric, period_s=HOUR_S, statistic="Sum")
        points = list(metrics.datapoints(scope, stat, start, end))
        num += len(points)
        if num > most:
            raise TooManySumsError(
                f"the period has more than {most} sums of usage; ask for a shorter period"
            )
        if points:
            yield metric, points


def list_tags(scope: Scope, state: State) -> dict[str, dict[str, str]]:
    """The tags of each endpoint, none of them for an endpoint without tags."""
    tags = {}
    for record in state.endpoints.list(scope):
        endpoint = record.value
        stored = state.tags.get(scope, endpoint.arn)
        tags[endpoint.name] = {} if stored is None else dict(stored.value.tags)
    return tags
