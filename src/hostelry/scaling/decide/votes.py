"""Votes of a target's policies when an alarm triggers one of them.

| policy | its alarm | vote |
| --- | --- | --- |
| target tracking | AlarmHigh in ALARM | the number that scaling out needs |
| target tracking | only AlarmLow in ALARM | the number that scaling in allows |
| target tracking | none in ALARM, or no trigger known | the present number |
| step | the one that triggers now | its step's number |
| step | any other | none: a step counts once for each trigger |

A proposal of the last `PROPOSAL_S` votes, too, within the bounds that the target has now.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hostelry.domain.scaling import ScalingPolicy, TargetTracking
from hostelry.scaling.decide import step, target_tracking
from hostelry.scaling.decide.combine import Vote, Voter
from hostelry.scaling.decide.decision import Capacity, Situation, unchanged
from hostelry.scaling.decide.request import Proposal, Trigger
from hostelry.scaling.decide.tracking_alarms import AlarmSide, side_of


def votes_of(
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
        side = side_of(trigger.alarm_name) or AlarmSide.HIGH
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
