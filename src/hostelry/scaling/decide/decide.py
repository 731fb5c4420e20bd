"""The decision about one scalable target: from a snapshot and a request to a plan.

| request | capacity that is desired |
| --- | --- |
| trigger of an alarm | the combined votes of all policies and of the newest proposal |
| proposal | its own, within the bounds. It lowers only if it `may_lower` and no policy tracks |
| wake | enough copies for the waiting requests, if a request may start a copy |
| check of the bounds | the present one, moved inside them |

A trigger or a proposal that would lower is vetoed while the target fares badly, or was woken a
short time ago. Both are subject to SuspendedState. Then:

| resource | desired | plan |
| --- | --- | --- |
| missing, or ending | any | GONE: a failed activity, once |
| present | the present one, and policies refused | REFUSE: an activity with NotScaledReasons |
| present | the present one | NOTHING |
| takes no such number now | another | POSTPONE: a refusal, and later the same request again |
| takes it | another | SET |
"""

from collections.abc import Mapping, Sequence
from enum import Enum

import msgspec
from msgspec.structs import replace

from hostelry.domain.at_zero import Wakeable
from hostelry.domain.load import SecondLoad, Wake
from hostelry.domain.scaling import ScalableTarget, ScalingPolicy, TargetTracking
from hostelry.scaling.decide import activity_texts, step, target_tracking, wake
from hostelry.scaling.decide.combine import (
    CombinedDecision,
    Vote,
    Voter,
    apply_suspension,
    apply_veto,
    combine,
    find_veto,
)
from hostelry.scaling.decide.decision import (
    WAKE,
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
    keep_capacity,
)
from hostelry.scaling.decide.load_signals import (
    GUARD_WINDOW_S,
    LOOK_BACK_S,
    build_overload_test,
    find_rise_time,
    get_mean_service_s,
    measure_health,
)
from hostelry.scaling.decide.tracking_alarms import AlarmSide, find_alarm_side


def collect_votes(
    policies: Sequence[ScalingPolicy],
    standing: Mapping[str, Trigger],
    trigger: Trigger,
    at: Situation,
) -> list[Vote]:
    """The vote of every policy. `standing` has the triggers of the other policies by ARN.

    | policy | its alarm | vote |
    | --- | --- | --- |
    | target tracking | AlarmHigh in ALARM | the number that scaling out needs |
    | target tracking | only AlarmLow in ALARM | the number that scaling in allows |
    | target tracking | none in ALARM, or no trigger known | the present number |
    | step | the one that triggers now | its step's number |
    | step | any other | none: a step counts once for each trigger |
    """
    found: list[Vote] = []
    for policy in policies:
        is_triggered = policy.arn == trigger.policy_arn
        if policy.tracking is not None:
            own = trigger if is_triggered else standing.get(policy.arn)
            found.append(get_tracking_vote(policy, policy.tracking, own, at))
        elif policy.stepping is not None and is_triggered:
            values = [it.value for it in trigger.values]
            decision = step.decide(policy.stepping, trigger.threshold, values, at)
            found.append(Vote(by=policy.name, voter=Voter.STEP, decision=decision))
    return found


def get_tracking_vote(
    policy: ScalingPolicy, tracking: TargetTracking, trigger: Trigger | None, at: Situation
) -> Vote:
    """The vote of a target-tracking policy. Without a standing `trigger`, the present number."""
    if trigger is None:
        decision = keep_capacity(at.capacity, f"{policy.name} is not ready to scale in.", {})
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


def get_proposal_vote(proposal: Proposal, capacity: Capacity) -> Vote:
    """The vote of a proposal, within the bounds."""
    within = replace(proposal.decision, desired=capacity.clamp(proposal.decision.desired))
    return Vote(by=proposal.by, voter=Voter.PROPOSAL, decision=within)


NO_TRIGGERS: Mapping[str, Trigger] = {}
NO_ACTS = LastActs()


class TargetSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All inputs of a decision about a target, as of one instant.

    `resource`: None if it does not exist (any more). `standing` has, by policy ARN, the newest
    trigger of an alarm that is still in ALARM. `proposal` is one of the last `PROPOSAL_S`. `woken`
    is the last wake. `seconds` is the load that `get_look_back_s` asks for, oldest first.
    `num_crashed` copies died by themselves in the guard's window. `had_two_fleets` is whether an
    update's traffic shifted a moment ago. `pace` divides cooldowns.
    """

    target: ScalableTarget
    resource: Resource | None
    policies: Sequence[ScalingPolicy] = ()
    standing: Mapping[str, Trigger] = msgspec.field(default_factory=lambda: NO_TRIGGERS)
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
    """The kind of a plan. The table above says when each is due."""

    NOTHING = "nothing"
    SET = "set the number"
    REFUSE = "record why nothing is changed"
    POSTPONE = "record that nothing can be changed now, and try again"
    GONE = "record that the resource is gone"


class ActivityCause(msgspec.Struct, frozen=True, kw_only=True):
    """An activity's Cause, the name of what decided it, and since when load was up."""

    text: str
    by: str
    load_rose_at: float | None = None


class ScalingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The planned action and its reason. `decision`: None without one."""

    action: PlannedAction
    cause: ActivityCause
    decision: Decision | None = None


def decide(known: TargetSnapshot, request: Request, now: float) -> ScalingPlan:
    """Plan the answer to a request. The snapshot has the load that `get_look_back_s` asks for."""
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
        cause = replace(cause, load_rose_at=_find_rise_time(known, request, resource))
    if found.by:
        cause = replace(cause, by=found.by)
    may = resource.may_become(decision.desired)
    action = PlannedAction.SET if may else PlannedAction.POSTPONE
    return ScalingPlan(action=action, cause=cause, decision=decision)


def get_look_back_s(known: TargetSnapshot, request: Request, now: float) -> int:
    """How many seconds of load `decide` needs. `known` has no load yet.

    | request | seconds |
    | --- | --- |
    | wake: the time that a request takes | 600 |
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
    """The cause of the activity that a request leads to."""
    match request:
        case Trigger(alarm_name=alarm):
            policy = _find_triggered_policy(known, request)
            name = "" if policy is None else policy.name
            return ActivityCause(text=activity_texts.build_alarm_cause(alarm, name), by=name)
        case Proposal(by=by, decision=decision, load_rose_at=rose):
            text = f"{by}: {decision.reason}"[: activity_texts.MAX_MESSAGE_CHARS]
            return ActivityCause(text=text, by=by, load_rose_at=rose)
        case Wake(held=held, at=at):
            text = activity_texts.build_wake_cause(held, known.target.resource_id)
            return ActivityCause(text=text, by=WAKE, load_rose_at=at)
        case BoundsCheck():
            if known.resource is None or known.resource.is_ending:
                return ActivityCause(text="bounds were set", by="")
            text = activity_texts.build_bounds_cause(known.target, known.resource.desired)
            return ActivityCause(text=text, by="")


def _decide(
    known: TargetSnapshot, request: Request, resource: Resource, now: float
) -> CombinedDecision | None:
    """The decision before the guard. None if there is nothing to decide."""
    capacity = resource.capacity(known.target)
    match request:
        case Trigger():
            at = Situation(capacity=capacity, acts=known.acts, now=now, pace=known.pace)
            votes = collect_votes(known.policies, known.standing, request, at)
            if known.proposal is not None:
                votes.append(get_proposal_vote(known.proposal, capacity))
            return combine(votes, capacity)
        case Proposal():
            vote = get_proposal_vote(request, capacity)
            if request.may_lower and not known.tracking:
                return CombinedDecision(decision=vote.decision, by=request.by)
            return combine([vote], capacity)
        case Wake():
            return _decide_wake(known, request, capacity)
        case BoundsCheck():
            within = capacity.clamp(capacity.desired)
            if within == capacity.desired:
                return None
            reason = f"{activity_texts.build_bounds_cause(known.target, capacity.desired)}."
            return CombinedDecision(decision=Decision(desired=within, reason=reason))


def _decide_wake(
    known: TargetSnapshot, request: Wake, capacity: Capacity
) -> CombinedDecision | None:
    if wake.wakeable(known.target) is not Wakeable.YES:
        return None
    concurrent = (it for it in known.tracking if "ConcurrentRequests" in (it.predefined or ""))
    waiting = wake.Waiting(
        held=request.held,
        service_s=get_mean_service_s(known.seconds),
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
        # A scale-in during an update is postponed, as AWS does, and comes here after the update.
        had_two = known.had_two_fleets and resource.is_settled
        health = measure_health(known.seconds, known.num_crashed, had_two_fleets=had_two)
        reason = find_veto(health) or wake.explain_awake(
            desired, known.woken, _get_cooldown_s(known, request), known.pace, now
        )
        found = apply_veto(found, capacity, reason)
    return apply_suspension(found, capacity, known.target.suspended)


def _get_cooldown_s(known: TargetSnapshot, request: Trigger | Proposal) -> float:
    """The time for which the triggered policy leaves a change alone before it scales in."""
    policy = _find_triggered_policy(known, request) if isinstance(request, Trigger) else None
    if policy is None:
        return 0.0
    if policy.tracking is not None:
        return policy.tracking.scale_in_cooldown_s
    return 0.0 if policy.stepping is None else policy.stepping.cooldown_s


def _find_rise_time(known: TargetSnapshot, trigger: Trigger, resource: Resource) -> float | None:
    """When the load exceeded the capacity. Else the first of the alarm's last values over.

    The metrics have one value for ten seconds or a minute, loads have one for each second.
    """
    policy = _find_triggered_policy(known, trigger)
    tracking = None if policy is None else policy.tracking
    over = build_overload_test(
        None if tracking is None else tracking.predefined,
        trigger.threshold if tracking is None else tracking.target_value,
        resource.serving,
    )
    since = find_rise_time(known.seconds, over)
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
