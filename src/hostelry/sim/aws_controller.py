"""AWS's policies in a replay: alarms on the published metrics, looked at when they would be."""

import math
from dataclasses import dataclass, replace

from hostelry.domain.alarm import AlarmRule, AlarmState, AlarmStatus
from hostelry.domain.load import SecondLoad
from hostelry.domain.metric import Datapoint
from hostelry.domain.scaling import ScalingPolicy
from hostelry.domain.scope import Scope
from hostelry.metrics.query.queries import evaluate as evaluate_queries
from hostelry.scaling_policy import step, target_tracking
from hostelry.scaling_policy.alarm import evaluate, evaluation_range
from hostelry.scaling_policy.alarm_times import evaluation_interval_s, next_evaluation_at
from hostelry.scaling_policy.combine import Vote, Voter
from hostelry.scaling_policy.decision import Direction, Situation, unchanged
from hostelry.scaling_policy.tracking_alarms import AlarmSide, alarm_name, alarm_rule
from hostelry.sim.policy_set import PolicySet
from hostelry.sim.published import PublishedMetrics
from hostelry.sim.target import SimulatedTarget

EARLY_S = 1.5  # a trigger that repeats may be so much before its interval is over
SCOPE = Scope("111122223333", "us-west-2")


@dataclass(slots=True, kw_only=True)
class WatchedAlarm:
    """An alarm of a policy: its state, when it is looked at next, what it saw when it triggered.

    `settled_for` is how many copies served when a look at nothing but quiet changed no state: while
    it stays quiet and so, another look would see the same.
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
        self._policies = policies.policies
        self._metrics = PublishedMetrics(lambda: len(target.component.serving), now)
        self._busy_at = now
        self._alarms = [*_tracking_alarms(policies, now, pace), *_own_alarms(policies, now)]
        for policy in policies.policies:
            cooldown_s = _scale_in_cooldown_s(policy)
            target.scale_in_cooldown_s = max(target.scale_in_cooldown_s, cooldown_s)
        target.at_once = policies.concurrency or 1.0

    @property
    def next_at(self) -> float:
        """When an alarm is to be looked at next; never, where there is none."""
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
        alarm.next_at = next_evaluation_at(alarm.rule, alarm.name, now)
        serving = self._target.capacity.serving
        start, end = evaluation_range(alarm.rule, now)
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
        again_s = evaluation_interval_s(alarm.rule) - EARLY_S
        if acted_at is None or now - acted_at >= again_s:
            alarm.status = replace(alarm.status, acted_at=now)
            self._trigger(alarm, now)

    def _points(self, rule: AlarmRule, start: float, end: float) -> list[Datapoint]:
        if rule.stat is not None:
            return list(self._metrics.datapoints(SCOPE, rule.stat, start, end))
        found = evaluate_queries(self._metrics, SCOPE, rule.queries, start, end)
        returned = next(it for it in rule.queries if it.return_data)
        return [point for series in found[returned.id] for point in series.points]

    def _trigger(self, alarm: WatchedAlarm, now: float) -> None:
        """Let the alarm's policy decide, with what the others say."""
        situation = self._target.situation(now)
        votes: list[Vote] = []
        for policy in self._policies:
            if policy.tracking is not None:
                speaking = alarm if policy is alarm.policy else self._standing(policy)
                votes.append(_tracking_vote(policy, speaking, situation))
            elif policy.stepping is not None and policy is alarm.policy:
                values = [it.value for it in alarm.values]
                decision = step.decide(policy.stepping, alarm.rule.threshold, values, situation)
                votes.append(Vote(by=policy.name, voter=Voter.STEP, decision=decision))
        self._target.decide(votes, situation)

    def _standing(self, policy: ScalingPolicy) -> WatchedAlarm | None:
        """The alarm of a policy that lasts: that of scaling out before the other."""
        mine = [it for it in self._alarms if it.policy is policy]
        lasting = [it for it in mine if it.status.state is AlarmState.ALARM]
        return next((it for it in lasting if it.side is AlarmSide.HIGH), next(iter(lasting), None))


def _tracking_vote(policy: ScalingPolicy, alarm: WatchedAlarm | None, at: Situation) -> Vote:
    tracking = policy.tracking
    assert tracking is not None, "only target tracking votes so"
    if alarm is None:
        decision = unchanged(at.capacity, f"{policy.name} is not ready to scale in.", {})
    else:
        direction = Direction.OUT if alarm.side is AlarmSide.HIGH else Direction.IN
        values = [it.value for it in alarm.values]
        decision = target_tracking.decide(tracking, direction, values, at)
    return Vote(
        by=policy.name,
        voter=Voter.TRACKING,
        decision=decision,
        may_scale_in=not tracking.disable_scale_in,
    )


def _tracking_alarms(policies: PolicySet, now: float, pace: float) -> list[WatchedAlarm]:
    found: list[WatchedAlarm] = []
    for number, policy in enumerate(policies.policies):
        if policy.tracking is None:
            continue
        for side in AlarmSide:
            rule = alarm_rule(policy.tracking, policy.resource_id, side, pace=pace)
            name = alarm_name(policy.resource_id, side, f"{number:08d}")
            found.append(_watched(name, rule, policy, side, now))
    return found


def _own_alarms(policies: PolicySet, now: float) -> list[WatchedAlarm]:
    by_name = {it.name: it for it in policies.policies}
    return [
        _watched(it.name, it.rule, by_name[it.policy_name], None, now) for it in policies.alarms
    ]


def _watched(
    name: str, rule: AlarmRule, policy: ScalingPolicy, side: AlarmSide | None, now: float
) -> WatchedAlarm:
    return WatchedAlarm(
        name=name,
        rule=rule,
        policy=policy,
        side=side,
        status=AlarmStatus(updated_at=now, transitioned_at=now),
        next_at=next_evaluation_at(rule, name, now),
    )


def _scale_in_cooldown_s(policy: ScalingPolicy) -> float:
    if policy.tracking is not None:
        return policy.tracking.scale_in_cooldown_s
    return 0.0 if policy.stepping is None else policy.stepping.cooldown_s
