"""Controllers of simulated capacity: AWS's and the responsive policy, other systems' rules."""

import math
from collections import deque
from typing import Protocol

import msgspec
from msgspec.structs import replace

from hostelry.base.printable import short_number
from hostelry.domain.alarm import AlarmRule, AlarmState, AlarmStatus
from hostelry.domain.load import SecondLoad
from hostelry.domain.metric import Datapoint
from hostelry.domain.scaling import ScalingPolicy
from hostelry.metrics.query.queries import evaluate as evaluate_queries
from hostelry.scaling.decide.alarm import (
    evaluate,
    get_evaluation_range,
    get_next_evaluation_at,
    get_repeat_s,
)
from hostelry.scaling.decide.decision import Trigger
from hostelry.scaling.decide.responsive.options import ResponsiveOptions
from hostelry.scaling.decide.responsive.policy import ResponsiveState, propose_capacity
from hostelry.scaling.decide.tracking_alarms import AlarmSide, build_alarm_name, build_alarm_rule
from hostelry.sim.peers import (
    KnativeRule,
    KnativeState,
    RayServeRule,
    RayServeState,
    knative,
    ray_serve,
)
from hostelry.sim.policy_requests import SCOPE, PolicySet
from hostelry.sim.published import PublishedMetrics
from hostelry.sim.target import SimulatedTarget


class Controller(Protocol):
    """A rule that sets a component's number by its load, second by second.

    `needs_quiet`: it also needs the seconds in which nothing happened.
    """

    needs_quiet: bool

    def second(self, load: SecondLoad, now: float) -> None:
        """A second has ended, at the wall time `now`."""
        ...


class ResponsiveController:
    """The responsive policy. If `is_tracked`, a target-tracking policy scales in."""

    needs_quiet = True

    def __init__(
        self, target: SimulatedTarget, options: ResponsiveOptions, *, is_tracked: bool
    ) -> None:
        self._target = target
        self._is_tracked = is_tracked
        self._state = ResponsiveState(options=options)

    def second(self, load: SecondLoad, now: float) -> None:
        """Let it decide by one more second."""
        self._state, decision, may_lower = propose_capacity(
            self._state, load, self._target.capacity, now, is_tracked=self._is_tracked
        )
        if decision is not None:
            self._target.propose("responsive", decision, now, may_lower=may_lower)


class KnativeController:
    """Knative's rule, looking every `tick_s`."""

    needs_quiet = True

    def __init__(self, target: SimulatedTarget, rule: KnativeRule) -> None:
        self._target = target
        self._rule = rule
        self._state = KnativeState()
        self._in_flight: deque[float] = deque(maxlen=rule.stable_window_s)

    def second(self, load: SecondLoad, now: float) -> None:
        """Take a second's concurrency. At each tick, set the number that the rule wants."""
        self._in_flight.append(load.in_flight_mean)
        if round(now) % self._rule.tick_s:
            return
        ready = self._target.capacity.serving
        seen = tuple(self._in_flight)
        self._state, wanted = knative(self._rule, self._state, seen, ready, now)
        self._target.set("knative", wanted, f"{short_number(seen[-1])} in flight", now)


class RayServeController:
    """Ray Serve's rule, which sees what replicas have pushed."""

    needs_quiet = True

    def __init__(self, target: SimulatedTarget, rule: RayServeRule) -> None:
        self._target = target
        self._rule = rule
        self._state = RayServeState()
        self._measured: deque[float] = deque(maxlen=rule.look_back_s)
        self._pushed: tuple[float, ...] = ()

    def second(self, load: SecondLoad, now: float) -> None:
        """Take a second's concurrency, and set the number that the rule wants."""
        self._measured.append(load.in_flight_mean)
        if math.floor(now) % self._rule.push_every_s == 0:
            self._pushed = tuple(self._measured)
        replicas = self._target.capacity.desired
        self._state, wanted = ray_serve(self._rule, self._state, self._pushed, replicas, now)
        if wanted != replicas:
            self._target.set("ray serve", wanted, "its look-back period", now)


class WatchedAlarm(msgspec.Struct, kw_only=True):
    """An alarm of a policy: its state, its next evaluation, and the values when it triggered.

    `settled_for` is how many copies served when an evaluation without load changed no state. While
    the load stays zero and that number stays, another evaluation would have the same result.
    """

    name: str
    rule: AlarmRule
    policy: ScalingPolicy
    side: AlarmSide | None
    status: AlarmStatus
    next_at: float
    values: tuple[Datapoint, ...] = ()
    settled_for: int | None = None


class AwsController:
    """Target-tracking and step policies of one target, with their alarms."""

    needs_quiet = False

    def __init__(
        self, target: SimulatedTarget, policies: PolicySet, now: float, pace: float
    ) -> None:
        self._target = target
        self._metrics = PublishedMetrics(
            target.component.key, lambda: len(target.component.serving), now
        )
        self._busy_at = now
        self._alarms = [*_tracking_alarms(policies, now, pace), *_own_alarms(policies, now)]

    @property
    def next_at(self) -> float:
        """The time of the next evaluation. Infinity without an alarm."""
        return min((it.next_at for it in self._alarms), default=math.inf)

    def second(self, load: SecondLoad, now: float) -> None:
        """Let the published metrics count a second."""
        self._metrics.see(load)
        self._busy_at = now

    def look(self, now: float) -> None:
        """Look at the alarms whose time has come."""
        for alarm in self._alarms:
            if alarm.next_at <= now:
                self._look_at(alarm, now)

    def _look_at(self, alarm: WatchedAlarm, now: float) -> None:
        alarm.next_at = get_next_evaluation_at(alarm.rule, alarm.name, now)
        if alarm.side is AlarmSide.LOW and self._target.is_at_minimum:
            return  # it could lower nothing, and its state follows from its periods alone
        serving = self._target.capacity.serving
        start, end = get_evaluation_range(alarm.rule, now)
        is_quiet = self._busy_at < start - alarm.rule.period_s
        if not (is_quiet and alarm.settled_for == serving):
            verdict = evaluate(alarm.rule, self._points(alarm.rule, start, end), alarm.status, now)
            is_same = verdict.state is alarm.status.state
            alarm.settled_for = serving if is_quiet and is_same else None
            alarm.values = verdict.values
            if not is_same:
                alarm.status = replace(
                    alarm.status, state=verdict.state, transitioned_at=now, acted_at=None
                )
        acted_at = alarm.status.acted_at
        if alarm.status.state is not AlarmState.ALARM:
            return
        if acted_at is None or now - acted_at >= get_repeat_s(alarm.rule):
            alarm.status = replace(alarm.status, acted_at=now)
            self._trigger(alarm, now)

    def _points(self, rule: AlarmRule, start: float, end: float) -> list[Datapoint]:
        if rule.stat is not None:
            return list(self._metrics.datapoints(SCOPE, rule.stat, start, end))
        found = evaluate_queries(self._metrics, SCOPE, rule.queries, start, end)
        returned = next(it for it in rule.queries if it.return_data)
        return [point for series in found[returned.id] for point in series.points]

    def _trigger(self, alarm: WatchedAlarm, now: float) -> None:
        """Let the alarm's policy decide, with the other policies' alarms that last."""
        lasting = [it for it in self._alarms if it.status.state is AlarmState.ALARM]
        # The alarm of scaling out, where both last, is the one that counts: it comes last here.
        lasting.sort(key=lambda it: it.side is AlarmSide.HIGH)
        standing = {it.policy.arn: _build_trigger(it, now) for it in lasting}
        self._target.trigger(_build_trigger(alarm, now), standing, now)


def _build_trigger(alarm: WatchedAlarm, now: float) -> Trigger:
    return Trigger(
        scope=SCOPE,
        policy_arn=alarm.policy.arn,
        alarm_name=alarm.name,
        state=alarm.status.state,
        threshold=alarm.rule.threshold,
        values=alarm.values,
        at=now,
    )


def _tracking_alarms(policies: PolicySet, now: float, pace: float) -> list[WatchedAlarm]:
    found: list[WatchedAlarm] = []
    for number, policy in enumerate(policies.policies):
        if policy.tracking is None:
            continue
        for side in AlarmSide:
            rule = build_alarm_rule(policy.tracking, policy.resource_id, side, pace=pace)
            name = build_alarm_name(policy.resource_id, side, f"{number:08d}")
            found.append(_watch_alarm(name, rule, policy, side, now))
    return found


def _own_alarms(policies: PolicySet, now: float) -> list[WatchedAlarm]:
    by_name = {it.name: it for it in policies.policies}
    return [
        _watch_alarm(alarm.name, alarm.rule, by_name[alarm.policy_name], None, now)
        for alarm in policies.alarms
    ]


def _watch_alarm(
    name: str, rule: AlarmRule, policy: ScalingPolicy, side: AlarmSide | None, now: float
) -> WatchedAlarm:
    return WatchedAlarm(
        name=name,
        rule=rule,
        policy=policy,
        side=side,
        status=AlarmStatus(updated_at=now, transitioned_at=now),
        next_at=get_next_evaluation_at(rule, name, now),
    )
