"""History of a target's load and capacity, kept as metrics of our own namespace.

Written on each change and every `EVERY_S`, at one second's resolution: `hostelry scaling timeline`
and any CloudWatch client draw from it.
"""

import math
from collections.abc import Mapping, Sequence

import msgspec

from hostelry.domain.load import SecondLoad
from hostelry.domain.metric import OWN_NAMESPACE, Metric, MetricStat, Sample
from hostelry.domain.scaling import ScalableTarget, target_name
from hostelry.domain.scope import Scope
from hostelry.metrics.protocol import MetricStore
from hostelry.scaling.decide.decision import Resource
from hostelry.scaling.loop.capacity import Capacities
from hostelry.scaling.loop.loads import LoadReader, add_loads
from hostelry.store.records import State

EVERY_S = 10.0
FINE_S = 3 * 3600.0  # for how long single seconds are kept
SETTLED_S = 4  # by then every worker has reported a second
MAX_POINTS = 3600
PERIODS_S = (1, 5, 10, 30, 60, 300, 900, 3600)
NAMES: Mapping[str, str] = {
    "desired": "DesiredCapacity",
    "serving": "ServingCapacity",
    "in_flight": "ConcurrentRequests",
    "arrivals": "ArrivalsPerSecond",
}
# How several values become one point.
STATISTICS: Mapping[str, str] = {
    "desired": "Maximum",
    "serving": "Minimum",
    "in_flight": "Average",
    "arrivals": "Average",
}


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The last values written for a target, and when."""

    at: float
    desired: int
    serving: int
    load_through: int


class History:
    """Writes and reads the history. One thread writes."""

    def __init__(
        self, state: State, metrics: MetricStore, aggregator: LoadReader, capacities: Capacities
    ) -> None:
        self._state = state
        self._metrics = metrics
        self._aggregator = aggregator
        self._capacities = capacities
        self._written: dict[tuple[Scope, str], Written] = {}

    def write(self, now: float) -> None:
        """Keep changed and due points."""
        samples: dict[Scope, list[Sample]] = {}
        written: dict[tuple[Scope, str], Written] = {}
        groups = self._capacities.groups()
        for stored in self._state.scalable_targets.list():
            target = stored.value
            place = (target.scope, target_name(target.resource_id, target.dimension))
            found = self._capacities.find(
                target.scope, target.resource_id, target.dimension, groups
            )
            if found is None:
                continue
            known = self._written.get(place)
            written[place] = self._one(target, found, known, now, samples)
        for scope, mine in samples.items():
            self._metrics.emit(scope, mine)
        self._written = written

    def _one(
        self,
        target: ScalableTarget,
        found: Resource,
        known: Written | None,
        now: float,
        samples: dict[Scope, list[Sample]],
    ) -> Written:
        numbers = (found.desired, found.serving)
        is_due = known is None or not 0.0 <= now - known.at < EVERY_S
        if known is not None and not is_due and numbers == (known.desired, known.serving):
            return known
        mine = samples.setdefault(target.scope, [])
        mine.append(build_sample(target, "desired", now, found.desired))
        mine.append(build_sample(target, "serving", now, found.serving))
        since = int(now - EVERY_S) if known is None else known.load_through + 1
        through = known.load_through if known is not None else since - 1
        if is_due:
            last = math.floor(now) - SETTLED_S
            seconds = add_loads(self._aggregator, found.keys, max(since, last - int(2 * EVERY_S)))
            reported = [it for it in seconds if it.second <= last]
            mine += build_load_samples(target, reported)
            through = max([through, *(it.second for it in reported)])
            through = min(through, math.floor(now))  # a clock that was set back
        return Written(
            at=now if is_due or known is None else known.at,
            desired=found.desired,
            serving=found.serving,
            load_through=through,
        )

    def points(
        self, target: ScalableTarget, what: str, since: float, now: float
    ) -> Sequence[tuple[float, float]]:
        """(instant, value) of one of `NAMES`, oldest first, `MAX_POINTS` at most."""
        stat = MetricStat(
            metric=build_metric(target, what),
            period_s=choose_period(now - since),
            statistic=STATISTICS[what],
        )
        found = self._metrics.datapoints(target.scope, stat, since, now + 1.0)
        return [(it.at, it.value) for it in found]


def choose_period(span_s: float) -> int:
    """Seconds of one point, so that a span has at most `MAX_POINTS` and none is kept no more."""
    possible = [it for it in PERIODS_S if it >= 60 or span_s <= FINE_S]
    return next((it for it in possible if span_s <= it * MAX_POINTS), possible[-1])


def build_load_samples(target: ScalableTarget, seconds: Sequence[SecondLoad]) -> list[Sample]:
    """What is kept of each second in which something happened, and of the last one."""
    found: list[Sample] = []
    for number, it in enumerate(seconds):
        was = seconds[number - 1] if number else None
        quiet = it.in_flight_mean == 0.0 and it.arrivals == 0
        if quiet and was is not None and was.in_flight_mean == 0.0 and it is not seconds[-1]:
            continue
        found.append(build_sample(target, "in_flight", it.second, it.in_flight_mean))
        found.append(build_sample(target, "arrivals", it.second, it.arrivals))
    return found


def build_sample(target: ScalableTarget, what: str, at: float, value: float) -> Sample:
    """One value of a target's metric."""
    return Sample(
        metric=build_metric(target, what),
        at=at,
        values=(float(value),),
        unit="Count",
        resolution_s=1,
    )


def build_metric(target: ScalableTarget, what: str) -> Metric:
    """The metric of one of `NAMES`."""
    dimensions = {"ResourceId": target.resource_id, "ScalableDimension": target.dimension.value}
    return Metric.of(OWN_NAMESPACE, NAMES[what], dimensions)
