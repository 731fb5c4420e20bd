"""The detectors of the study. All get the same seconds, and each returns its desired capacity."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.detection_streams import Seconds
from hostelry.domain.load import LoadKey, SecondLoad
from hostelry.domain.scope import Scope
from hostelry.scaling.decide.decision import Capacity
from hostelry.scaling.decide.responsive.options import ResponsiveOptions
from hostelry.scaling.decide.responsive.policy import ResponsiveState, step
from hostelry.sim.peers import (
    KnativeRule,
    KnativeState,
    PointsRule,
    RayServeRule,
    RayServeState,
    aws_points,
    knative,
    naive_mean,
    ray_serve,
)

KEY = LoadKey(scope=Scope("000000000000", "us-west-2"), endpoint_name="e", variant_name="v")
MOST = 100_000
REPORT_S = 0.25  # until an ended second is reported. Peers are not charged for their reports


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisioned:
    """The present capacity: copies, the concurrency of each copy, and calls a minute."""

    copies: int
    target: float
    calls_per_minute: float


class Detector(Protocol):
    """A detector that sees seconds in order. Each stream gets a new one."""

    late_s: float

    def wanted(self, seconds: Seconds, place: int, capacity: int) -> int:
        """The capacity that it requests once second `place` has ended."""
        ...


@dataclass(slots=True, kw_only=True)
class Responsive:
    """Our detector."""

    state: ResponsiveState
    late_s: float = REPORT_S
    reasons: list[str] = field(default_factory=list)

    def wanted(self, seconds: Seconds, place: int, capacity: int) -> int:
        """The decision of `step`."""
        load = SecondLoad(
            key=KEY,
            second=place,
            arrivals=int(seconds.arrivals[place]),
            finished=int(seconds.finished[place]),
            service_s=float(seconds.service_s[place]),
            in_flight_mean=float(seconds.in_flight_mean[place]),
            in_flight_max=int(seconds.in_flight_max[place]),
        )
        now = Capacity(desired=capacity, serving=capacity, minimum=1, maximum=MOST)
        self.state, decision = step(self.state, load, now, place + 1.0)
        if decision is None:
            return capacity
        self.reasons.append(decision.reason)
        return decision.desired


@dataclass(slots=True, kw_only=True)
class Points:
    """AWS's alarms on periods."""

    rule: PointsRule
    values: str  # which of Seconds
    by: str  # the mean, maximum or sum of a period
    late_s: float = 0.0
    points: list[float] = field(default_factory=list)

    def wanted(self, seconds: Seconds, place: int, capacity: int) -> int:
        """The capacity after three points in a row, at the end of each period."""
        period_s = self.rule.period_s
        if (place + 1) % period_s:
            return capacity
        of_period = getattr(seconds, self.values)[place + 1 - period_s : place + 1]
        self.points.append(float(getattr(of_period, self.by)()))
        points = [it / capacity for it in self.points[-self.rule.num_points :]]
        return aws_points(self.rule, points, capacity)


@dataclass(slots=True, kw_only=True)
class Knative:
    """Knative's detector, with its panic and stable windows."""

    rule: KnativeRule
    state: KnativeState = field(default_factory=KnativeState)
    late_s: float = 0.0

    def wanted(self, seconds: Seconds, place: int, capacity: int) -> int:
        """The capacity at each tick."""
        if (place + 1) % self.rule.tick_s:
            return capacity
        since = max(0, place + 1 - self.rule.stable_window_s)
        shown = seconds.in_flight_mean[since : place + 1].tolist()
        self.state, desired = knative(self.rule, self.state, shown, capacity, place + 1.0)
        return desired


@dataclass(slots=True, kw_only=True)
class RayServe:
    """Ray Serve's detector, with the metrics that its handles and replicas have pushed."""

    rule: RayServeRule
    state: RayServeState = field(default_factory=RayServeState)
    late_s: float = 0.0

    def wanted(self, seconds: Seconds, place: int, capacity: int) -> int:
        """The capacity at each second."""
        pushed = (place + 1) // self.rule.push_every_s * self.rule.push_every_s
        since = max(0, pushed - self.rule.look_back_s)
        shown = seconds.in_flight_mean[since:pushed].tolist()
        self.state, desired = ray_serve(self.rule, self.state, shown, capacity, place + 1.0)
        return desired


@dataclass(slots=True, kw_only=True)
class Naive:
    """A threshold on a mean of two seconds."""

    target: float
    late_s: float = 0.0

    def wanted(self, seconds: Seconds, place: int, capacity: int) -> int:
        """The capacity at each second."""
        shown = seconds.in_flight_mean[max(0, place - 1) : place + 1].tolist()
        return naive_mean(self.target, shown, capacity, over=1.0)


DETECTORS: dict[str, Callable[[Provisioned], Detector]] = {
    "AWS, 3 x 1 minute of invocations": lambda it: Points(
        rule=PointsRule(target=it.calls_per_minute), values="arrivals", by="sum"
    ),
    "AWS high resolution, 3 x 10 s, mean": lambda it: Points(
        rule=PointsRule(target=it.target, period_s=10), values="in_flight_mean", by="mean"
    ),
    "AWS high resolution, 3 x 10 s, maximum": lambda it: Points(
        rule=PointsRule(target=it.target, period_s=10), values="in_flight_max", by="max"
    ),
    "Knative, panic and stable": lambda it: Knative(rule=KnativeRule(target=it.target)),
    "Ray Serve, defaults": lambda it: RayServe(rule=RayServeRule(target=it.target)),
    "mean of 2 s over the target": lambda it: Naive(target=it.target),
    "responsive": lambda it: Responsive(
        state=ResponsiveState(options=ResponsiveOptions(target=it.target))
    ),
}
