"""The decision about one scalable target: a snapshot of all that is known in, a plan out.

| request | capacity that is desired |
| --- | --- |
| trigger of an alarm | the combined votes of all policies and of the newest proposal |
| proposal | its own, within the bounds; it lowers only where it `may_lower` and no policy tracks |
| wake | enough copies for the requests that wait; only where a request may start one |
| check of the bounds | the present one, moved inside them |

A trigger or a proposal that would lower is vetoed while the target fares badly, or was woken a
short time ago; both are subject to SuspendedState. Then:

| resource | desired | plan |
| --- | --- | --- |
| missing, or ending | any | GONE: a failed activity, once |
| there | the present one, and policies refused | REFUSE: an activity with NotScaledReasons |
| there | the present one | NOTHING |
| takes no such number now | another | POSTPONE: a refusal, and later the same request again |
| takes it | another | SET |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from hostelry.domain.at_zero import Wakeable
from hostelry.domain.load import SecondLoad, Wake
from hostelry.domain.scaling import ScalableTarget, ScalingPolicy, TargetTracking
from hostelry.scaling.decide import activity_texts, step, target_tracking, wake
from hostelry.scaling.decide.combine import (
    CombinedDecision,
    Vote,
    Voter,
    combine,
    unless_suspended,
    unless_vetoed,
    veto,
)
from hostelry.scaling.decide.cooldown import WAKE
from hostelry.scaling.decide.decision import (
    BoundsCheck,
    Capacity,
    Decision,
    LastAct,
    LastActs,
    Proposal,
    Request,
    Resource,
    Situation,
    Trigger,
    unchanged,
)
from hostelry.scaling.decide.load_signals import (
    GUARD_WINDOW_S,
    LOOK_BACK_S,
    is_over,
    mean_service_s,
    measure_health,
    rose_at,
)
from hostelry.scaling.decide.tracking_alarms import AlarmSide, find_alarm_side

# Votes of a target's policies when an alarm triggers one of them.
#
# | policy | its alarm | vote |
# | --- | --- | --- |
# | target tracking | AlarmHigh in ALARM | the number that scaling out needs |
# | target tracking | only AlarmLow in ALARM | the number that scaling in allows |
# | target tracking | none in ALARM, or no trigger known | the present number |
# | step | the one that triggers now | its step's number |
# | step | any other | none: a step counts once for each trigger |
#
# A proposal of the last `PROPOSAL_S` votes, too, within the bounds that the target has now.


def collect_votes(
    policies: Sequence[ScalingPolicy],
    standing: Mapping[str, Trigger],
    trigger: Trigger,
    at: Situation,
) -> list[Vote]:
    """The vote of every policy; `standing` has, by ARN, the triggers of the other ones."""
    found: list[Vote] = []
    for policy in policies:
        is_triggered = policy.arn == trigger.policy_arn
        if policy.tracking is not None:
            own = trigger if is_triggered else standing.get(policy.arn)
            found.append(tracking_vote(policy, policy.tracking, own, at))
        elif policy.stepping is not None and is_triggered:
            values = [it.value for it in trigger.values]
            decision = step.decide(policy.stepping, trigger.threshold, values, at)
            found.append(Vote(by=policy.name, voter=Voter.STEP, decision=decision))
    return found


def tracking_vote(
    policy: ScalingPolicy, tracking: TargetTracking, trigger: Trigger | None, at: Situation
) -> Vote:
    """The vote of a target-tracking policy; the present number without a `trigger` that lasts."""
    if trigger is None:
        decision = unchanged(at.capacity, f"{policy.name} is not ready to scale in.", {})
    else:
        side = find_alarm_side(trigger.alarm_name) or AlarmSide.HIGH
        values = [it.value for it in trigger.values]
        decision = target_tracking.decide(tracking, side.direction, values, at)
    return Vote(
        by=policy.name,
        voter=Voter.TRACKING,
        decision=decision,
        may_scale_in=not tracking.disable_scale_in,
    )


def proposal_vote(proposal: Proposal, capacity: Capacity) -> Vote:
    """The vote of a proposal, within the bounds."""
    within = replace(proposal.decision, desired=capacity.clamped(proposal.decision.desired))
    return Vote(by=proposal.by, voter=Voter.PROPOSAL, decision=within)


NO_TRIGGERS: Mapping[str, Trigger] = {}
NO_ACTS = LastActs()


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSnapshot:
    """Everything that a decision about a target rests on, as of one instant.

    `resource` is None where it does not exist (any more). `standing` has, by policy ARN, the
    newest trigger of an alarm that is still in ALARM. `proposal` is one of the last `PROPOSAL_S`.
    `woken` is the last wake. `seconds` is the load of the last `look_back_s`, oldest first.
    `num_crashed` copies died by themselves in the guard's window; `had_two_fleets` is whether an
    update's traffic shifted a moment ago. `pace` divides cooldowns.
    """

    target: ScalableTarget
    resource: Resource | None
    policies: Sequence[ScalingPolicy] = ()
    standing: Mapping[str, Trigger] = field(default_factory=lambda: NO_TRIGGERS)
    proposal: Proposal | None = None
    acts: LastActs = NO_ACTS
    woken: LastAct | None = None
    seconds: Sequence[SecondLoad] = ()
    num_crashed: int = 0
    had_two_fleets: bool = False
    pace: float = 1.0

    @property
    def tracking(self) -> list[TargetTracking]:
        """The configurations of its target-tracking policies."""
        return [it.tracking for it in self.policies if it.tracking is not None]


class PlannedAction(Enum):
    """The kind of a plan; the table above has when each is due."""

    NOTHING = "nothing"
    SET = "set the number"
    REFUSE = "record why nothing is changed"
    POSTPONE = "record that nothing can be changed now, and try again"
    GONE = "record that the resource is gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityCause:
    """An activity's Cause, the name of what decided it, and since when load was up."""

    text: str
    by: str
    load_rose_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPlan:
    """What is to be done, and why; `decision` None where there was nothing to decide."""

    action: PlannedAction
    cause: ActivityCause
    decision: Decision | None = None


def decide(known: TargetSnapshot, request: Request, now: float) -> ScalingPlan:
    """The plan for a request; its snapshot has the load that `look_back_s` asks for."""
    cause, resource = build_cause(known, request), known.resource
    if resource is None or resource.is_ending:
        return ScalingPlan(action=PlannedAction.GONE, cause=cause)
    found = _guard(known, request, _decide(known, request, resource, now), resource, now)
    if found is None:
        return ScalingPlan(action=PlannedAction.NOTHING, cause=cause)
    decision = found.decision
    if decision.desired == resource.desired:
        action = PlannedAction.REFUSE if decision.not_scaled else PlannedAction.NOTHING
        return ScalingPlan(action=action, cause=cause, decision=decision)
    if isinstance(request, Trigger) and decision.desired > resource.desired:
        cause = replace(cause, load_rose_at=_rose_at(known, request, resource))
    if found.by:
        cause = replace(cause, by=found.by)
    may = resource.may_become(decision.desired)
    action = PlannedAction.SET if may else PlannedAction.POSTPONE
    return ScalingPlan(action=action, cause=cause, decision=decision)


def look_back_s(known: TargetSnapshot, request: Request, now: float) -> int:
    """How many seconds of load `decide` needs beside `known`, which has none yet.

    | request | seconds |
    | --- | --- |
    | wake: what a request takes | 600 |
    | trigger that raises: when the load rose | 600 |
    | trigger or proposal that lowers: health | 60 |
    | anything else | 0 |

    Most triggers are of idle targets and change nothing: they must not cost ten minutes of load.
    """
    resource = known.resource
    if resource is None or resource.is_ending or isinstance(request, BoundsCheck):
        return 0
    if isinstance(request, Wake):
        return LOOK_BACK_S
    found = _decide(known, request, resource, now)
    if found is None or found.decision.desired == resource.desired:
        return 0
    if found.decision.desired < resource.desired:
        return GUARD_WINDOW_S
    return LOOK_BACK_S if isinstance(request, Trigger) else 0


def build_cause(known: TargetSnapshot, request: Request) -> ActivityCause:
    """The cause of what a request leads to."""
    match request:
        case Trigger(alarm_name=alarm):
            policy = _find_triggered_policy(known, request)
            name = "" if policy is None else policy.name
            return ActivityCause(text=activity_texts.by_alarm(alarm, name), by=name)
        case Proposal(by=by, decision=decision, load_rose_at=rose):
            text = f"{by}: {decision.reason}"[: activity_texts.MAX_MESSAGE_CHARS]
            return ActivityCause(text=text, by=by, load_rose_at=rose)
        case Wake(held=held, at=at):
            text = activity_texts.by_wake(held, known.target.resource_id)
            return ActivityCause(text=text, by=WAKE, load_rose_at=at)
        case BoundsCheck():
            if known.resource is None or known.resource.is_ending:
                return ActivityCause(text="bounds were set", by="")
            text = activity_texts.by_bound(known.target, known.resource.desired)
            return ActivityCause(text=text, by="")


def _decide(
    known: TargetSnapshot, request: Request, resource: Resource, now: float
) -> CombinedDecision | None:
    """The decision before the guard; None where there is nothing to decide."""
    capacity = resource.capacity(known.target)
    match request:
        case Trigger():
            at = Situation(capacity=capacity, acts=known.acts, now=now, pace=known.pace)
            votes = collect_votes(known.policies, known.standing, request, at)
            if known.proposal is not None:
                votes.append(proposal_vote(known.proposal, capacity))
            return combine(votes, capacity)
        case Proposal():
            vote = proposal_vote(request, capacity)
            if request.may_lower and not known.tracking:
                return CombinedDecision(decision=vote.decision, by=request.by)
            return combine([vote], capacity)
        case Wake():
            return _decide_wake(known, request, capacity)
        case BoundsCheck():
            within = capacity.clamped(capacity.desired)
            if within == capacity.desired:
                return None
            reason = f"{activity_texts.by_bound(known.target, capacity.desired)}."
            return CombinedDecision(decision=Decision(desired=within, reason=reason))


def _decide_wake(
    known: TargetSnapshot, request: Wake, capacity: Capacity
) -> CombinedDecision | None:
    if wake.wakeable(known.target) is not Wakeable.YES:
        return None
    concurrent = (it for it in known.tracking if "ConcurrentRequests" in (it.predefined or ""))
    waiting = wake.Waiting(
        held=request.held,
        service_s=mean_service_s(known.seconds),
        at_once=max((it.target_value for it in concurrent), default=1.0),
    )
    return CombinedDecision(decision=wake.decide(waiting, capacity), by=WAKE)


def _guard(
    known: TargetSnapshot,
    request: Request,
    found: CombinedDecision | None,
    resource: Resource,
    now: float,
) -> CombinedDecision | None:
    """`found`, or the present number where the target's health, a wake or suspension forbids it.

    Wakes only raise, and no suspension holds up the bounds.
    """
    if found is None or not isinstance(request, Trigger | Proposal):
        return found
    capacity = resource.capacity(known.target)
    desired = found.decision.desired
    if desired < capacity.desired:
        # What is being updated is postponed, as AWS does, and comes here once it is settled.
        had_two = known.had_two_fleets and resource.is_settled
        health = measure_health(known.seconds, known.num_crashed, had_two_fleets=had_two)
        reason = veto(health) or wake.keeps_awake(
            desired, known.woken, _cooldown_s(known, request), known.pace, now
        )
        found = unless_vetoed(found, capacity, reason)
    return unless_suspended(found, capacity, known.target.suspended)


def _cooldown_s(known: TargetSnapshot, request: Trigger | Proposal) -> float:
    """The time for which the triggered policy leaves a change alone before it scales in."""
    policy = _find_triggered_policy(known, request) if isinstance(request, Trigger) else None
    if policy is None:
        return 0.0
    if policy.tracking is not None:
        return policy.tracking.scale_in_cooldown_s
    return 0.0 if policy.stepping is None else policy.stepping.cooldown_s


def _rose_at(known: TargetSnapshot, trigger: Trigger, resource: Resource) -> float | None:
    """When the load left what the capacity carries; else the first of the alarm's last values over.

    The metrics have one value for ten seconds or a minute, loads have one for each second.
    """
    policy = _find_triggered_policy(known, trigger)
    tracking = None if policy is None else policy.tracking
    over = is_over(
        None if tracking is None else tracking.predefined,
        trigger.threshold if tracking is None else tracking.target_value,
        resource.serving,
    )
    since = rose_at(known.seconds, over)
    if since is not None:
        return since
    first: float | None = None
    for point in reversed(trigger.values):
        if not point.value >= trigger.threshold:
            break
        first = point.at
    return first


def _find_triggered_policy(known: TargetSnapshot, trigger: Trigger) -> ScalingPolicy | None:
    return next((it for it in known.policies if it.arn == trigger.policy_arn), None)
