"""Combination of the votes of a target's policies, and of a proposal, into one decision.

| votes | decision |
| --- | --- |
| any for more | the largest |
| all tracking policies that may scale in for less | the largest of those, and of steps for less |
| a step for less, tracking policies not all | the largest number of the steps |
| some tracking policies for less, others not, no step | unchanged; the reason names the others |
| none for another number | unchanged, with every refusal |

A proposal never lowers, and a decision for less does not fall below it. Source: "Target
tracking scaling policies" (Multiple target tracking scaling policies) in the Application Auto
Scaling user guide.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from hostelry.domain.scaling import Suspended
from hostelry.scaling.decide.decision import Capacity, Decision, unchanged


class Voter(Enum):
    """The kind of a vote."""

    TRACKING = "target tracking"
    STEP = "step scaling"
    PROPOSAL = "proposal"  # responsive, or a wake: raises, and keeps up, but never lowers


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """A desired capacity; `may_scale_in` is False where DisableScaleIn is set.

    A target-tracking policy votes for the present number while its AlarmLow is not in ALARM, or has
    no data: it is not ready to scale in then.
    """

    by: str
    voter: Voter
    decision: Decision
    may_scale_in: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinedDecision:
    """The decision, and the name of the vote that won; empty where nothing changes."""

    decision: Decision
    by: str = ""


def combine(votes: Sequence[Vote], capacity: Capacity) -> CombinedDecision:
    """One decision of all `votes`."""
    outwards = [it for it in votes if it.decision.desired > capacity.desired]
    if outwards:
        return won(outwards)
    tracking = [it for it in votes if it.voter is Voter.TRACKING and it.may_scale_in]
    waiting = [it for it in tracking if it.decision.desired >= capacity.desired]
    inwards = [it for it in votes if goes_in(it, capacity, tracking_agrees=not waiting)]
    if inwards:
        return kept_up(won(inwards), votes, capacity)
    held_up = [it for it in tracking if it.decision.desired < capacity.desired]
    if held_up and waiting:
        names = ", ".join(it.by for it in waiting)
        wanting = held_up[0]
        reason = f"{wanting.decision.reason} Not scaled in: {names} is not ready for it."
        return CombinedDecision(decision=unchanged(capacity, reason, wanting.decision.signal))
    refused = tuple(reason for it in votes for reason in it.decision.not_scaled)
    reason = " ".join(it.decision.reason for it in votes) or "No policy asks for a change."
    return CombinedDecision(decision=unchanged(capacity, reason, {}, *refused))


def goes_in(vote: Vote, capacity: Capacity, *, tracking_agrees: bool) -> bool:
    """Whether the vote is one for less that counts."""
    if vote.voter is Voter.PROPOSAL or vote.decision.desired >= capacity.desired:
        return False
    return vote.voter is Voter.STEP or (tracking_agrees and vote.may_scale_in)


def won(votes: Sequence[Vote]) -> CombinedDecision:
    """The vote for the largest number; the first of equals."""
    winner = max(votes, key=lambda it: it.decision.desired)
    return CombinedDecision(decision=winner.decision, by=winner.by)


def kept_up(
    lowered: CombinedDecision, votes: Sequence[Vote], capacity: Capacity
) -> CombinedDecision:
    """`lowered`, but not below what a proposal wants."""
    proposals = [it for it in votes if it.voter is Voter.PROPOSAL]
    if not proposals:
        return lowered
    floor = won(proposals)
    if floor.decision.desired <= lowered.decision.desired:
        return lowered
    reason = f"{lowered.decision.reason} Kept up by {floor.by}: {floor.decision.reason}"
    desired = min(capacity.desired, floor.decision.desired)
    decision = replace(lowered.decision, desired=desired, reason=reason)
    return CombinedDecision(decision=decision, by=lowered.by if desired < capacity.desired else "")


def unless_suspended(
    outcome: CombinedDecision, capacity: Capacity, suspended: Suspended
) -> CombinedDecision:
    """`outcome`, or the present number where SuspendedState forbids that way.

    Source: "Suspend and resume scaling" in the Application Auto Scaling user guide.
    """
    desired = outcome.decision.desired
    out_forbidden = suspended.scale_out and desired > capacity.desired
    in_forbidden = suspended.scale_in and desired < capacity.desired
    if not out_forbidden and not in_forbidden:
        return outcome
    member = "DynamicScalingOutSuspended" if out_forbidden else "DynamicScalingInSuspended"
    reason = f"{outcome.decision.reason} Not done: {member} is set on the target."
    return CombinedDecision(decision=unchanged(capacity, reason, outcome.decision.signal))
