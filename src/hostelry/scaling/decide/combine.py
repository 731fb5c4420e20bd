"""Votes of a target's policies combined into one capacity, and the crash guard."""

from collections.abc import Sequence
from enum import Enum

import msgspec
from msgspec.structs import replace

from hostelry.domain.scaling import Suspended
from hostelry.scaling.decide.decision import Capacity, Decision, keep_capacity


class Voter(Enum):
    """The kind of a vote."""

    TRACKING = "target tracking"
    STEP = "step scaling"
    PROPOSAL = "proposal"  # responsive, or a wake: raises, and keeps up, but never lowers


class Vote(msgspec.Struct, frozen=True, kw_only=True):
    """A desired capacity. `may_scale_in` is False if DisableScaleIn is set.

    A target-tracking policy votes for the present number while its AlarmLow is not in ALARM or has
    no data. It is not ready to scale in then.
    """

    by: str
    voter: Voter
    decision: Decision
    may_scale_in: bool = True


class CombinedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision, and the name of the vote that won (empty if nothing changes)."""

    decision: Decision
    by: str = ""


def combine(votes: Sequence[Vote], capacity: Capacity) -> CombinedDecision:
    """One decision of all `votes`.

    | votes | decision |
    | --- | --- |
    | any for more | the largest |
    | all tracking policies that may scale in for less | the largest of these and of the steps |
    | a step for less, tracking policies not all | the largest number of the steps |
    | some tracking policies for less, others not, no step | unchanged: the reason names others |
    | none for another number | unchanged, with every refusal |

    A proposal never lowers, and a decision for less does not fall below it. Source: "Target
    tracking scaling policies" (Multiple target tracking scaling policies) in the Application Auto
    Scaling user guide.
    """
    outwards = [it for it in votes if it.decision.desired > capacity.desired]
    if outwards:
        return choose_vote(outwards)
    tracking = [it for it in votes if it.voter is Voter.TRACKING and it.may_scale_in]
    waiting = [it for it in tracking if it.decision.desired >= capacity.desired]
    inwards = [it for it in votes if goes_in(it, capacity, tracking_agrees=not waiting)]
    if inwards:
        return raise_to_proposal(choose_vote(inwards), votes, capacity)
    held_up = [it for it in tracking if it.decision.desired < capacity.desired]
    if held_up and waiting:
        names = ", ".join(it.by for it in waiting)
        wanting = held_up[0]
        reason = f"{wanting.decision.reason} Not scaled in: {names} is not ready for it."
        return CombinedDecision(decision=keep_capacity(capacity, reason, wanting.decision.signal))
    refused = tuple(reason for it in votes for reason in it.decision.not_scaled)
    reason = " ".join(it.decision.reason for it in votes) or "No policy asks for a change."
    return CombinedDecision(decision=keep_capacity(capacity, reason, {}, *refused))


def goes_in(vote: Vote, capacity: Capacity, *, tracking_agrees: bool) -> bool:
    """Whether the vote is one for less that counts."""
    if vote.voter is Voter.PROPOSAL or vote.decision.desired >= capacity.desired:
        return False
    return vote.voter is Voter.STEP or (tracking_agrees and vote.may_scale_in)


def choose_vote(votes: Sequence[Vote]) -> CombinedDecision:
    """The vote for the largest number, the first of equal votes."""
    winner = max(votes, key=lambda it: it.decision.desired)
    return CombinedDecision(decision=winner.decision, by=winner.by)


def raise_to_proposal(
    lowered: CombinedDecision, votes: Sequence[Vote], capacity: Capacity
) -> CombinedDecision:
    """`lowered`, but not below the number that a proposal wants."""
    proposals = [it for it in votes if it.voter is Voter.PROPOSAL]
    if not proposals:
        return lowered
    floor = choose_vote(proposals)
    if floor.decision.desired <= lowered.decision.desired:
        return lowered
    reason = f"{lowered.decision.reason} Kept up by {floor.by}: {floor.decision.reason}"
    desired = min(capacity.desired, floor.decision.desired)
    decision = replace(lowered.decision, desired=desired, reason=reason)
    return CombinedDecision(decision=decision, by=lowered.by if desired < capacity.desired else "")


def apply_suspension(
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
    return CombinedDecision(decision=keep_capacity(capacity, reason, outcome.decision.signal))


SHIFT_WINDOW_S = 150.0


class TargetHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Health of a target over the last `window_s` seconds.

    `num_errors` are answers of 5xx, broken streams and refusals for want of a copy, among the
    `num_requests` that ended. `num_crashed` copies died without being stopped.
    `oldest_waiting_s` is how long the first of the requests waits that no copy has yet.
    `had_two_fleets` is whether an update's traffic shifted in the last `SHIFT_WINDOW_S`.
    """

    window_s: float = 60.0
    num_requests: int = 0
    num_errors: int = 0
    num_crashed: int = 0
    oldest_waiting_s: float = 0.0
    had_two_fleets: bool = False


class GuardLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits whose excess is a veto. Raises ValueError for an impossible limit.

    An error rate counts from `min_errors` errors on, because one failed request says nothing.
    """

    max_error_rate: float = 0.05
    min_errors: int = 2
    max_crashed: int = 0
    max_waiting_s: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.max_error_rate <= 1.0:
            raise ValueError(f"max_error_rate is {self.max_error_rate}; it must be 0 to 1")
        if self.min_errors < 1 or self.max_crashed < 0 or not self.max_waiting_s >= 0.0:
            raise ValueError(f"{self} has a limit below what can be: min_errors 1, others 0")


def find_veto(health: TargetHealth, limits: GuardLimits | None = None) -> str | None:
    """Why capacity must not be taken away now. None if it may.

    The crash guard: a load that falls because copies fail must not cause a scale-in.

    A copy that dies or answers with errors frees its requests at once, so that concurrency looks
    low just when capacity is short. Source: "Amazon SageMaker inference launches faster auto
    scaling for generative AI models" (2024-07-26), which pairs two policies against this. The guard
    reads the crashes and errors themselves.

    | in the guard's window | scale-in |
    | --- | --- |
    | a copy died | vetoed |
    | 2 failures or more, over 5 % of the requests that ended | vetoed |
    | the oldest request without a copy waits over 1 s | vetoed |
    | an update's two fleets served, up to 150 s ago | vetoed |
    | otherwise | allowed |

    While two fleets serve, a mean over the instances of both is low. By the end of 150 s a minute
    that began later has been published and looked at.
    """
    limits = limits or GuardLimits()
    window = f"in the last {health.window_s:.0f} s"
    if health.num_crashed > limits.max_crashed:
        return f"{health.num_crashed} copies died {window} (at most {limits.max_crashed} may)"
    rate = get_error_rate(health)
    if health.num_errors >= limits.min_errors and rate > limits.max_error_rate:
        return (
            f"{health.num_errors} of {health.num_requests} requests failed {window}"
            f" ({rate:.0%}; at most {limits.max_error_rate:.0%} may)"
        )
    if not health.oldest_waiting_s <= limits.max_waiting_s:
        return (
            f"a request waits {health.oldest_waiting_s:.1f} s for a copy"
            f" (at most {limits.max_waiting_s:.1f} s may pass)"
        )
    if health.had_two_fleets:
        return f"an update's two fleets served in the last {SHIFT_WINDOW_S:.0f} s"
    return None


def get_error_rate(health: TargetHealth) -> float:
    """The share of requests that failed. 1 if more failed than are known to have ended."""
    return min(1.0, health.num_errors / max(1, health.num_requests))


def apply_veto(
    outcome: CombinedDecision, capacity: Capacity, reason: str | None
) -> CombinedDecision:
    """`outcome`, or the present number if a veto keeps `outcome` from taking capacity away."""
    if reason is None or outcome.decision.desired >= capacity.desired:
        return outcome
    reason = f"{outcome.decision.reason} Not scaled in: {reason}."
    kept = keep_capacity(capacity, reason, outcome.decision.signal)
    return replace(outcome, decision=kept, by="")
