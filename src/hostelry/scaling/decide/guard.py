"""The crash guard: a load that falls because copies fail is no reason to scale in.

A copy that dies or answers with errors frees its requests at once, so that concurrency looks low
just when capacity is short. Source: "Amazon SageMaker inference launches faster auto scaling for
generative AI models" (2024-07-26), which pairs two policies against this; the guard reads the signs
themselves.

| in the guard's window | scale-in |
| --- | --- |
| a copy died | vetoed |
| 2 failures or more, over 5 % of the requests that ended | vetoed |
| the oldest request without a copy waits over 1 s | vetoed |
| an update's two fleets served, up to 150 s ago | vetoed |
| otherwise | allowed |

While two fleets serve, a mean over the instances of both is low. By the end of 150 s a minute that
began later has been published and looked at.
"""

from dataclasses import dataclass, replace

from hostelry.scaling.decide.combine import CombinedDecision
from hostelry.scaling.decide.decision import Capacity, unchanged

SHIFT_WINDOW_S = 150.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetHealth:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardLimits:
    """Limits up to which there is no veto; raises ValueError for a limit that can never be met.

    An error rate counts from `min_errors` errors on: one failed request says nothing.
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


def veto(health: TargetHealth, limits: GuardLimits | None = None) -> str | None:
    """Why capacity must not be taken away now; None where nothing speaks against it."""
    limits = limits or GuardLimits()
    window = f"in the last {health.window_s:.0f} s"
    if health.num_crashed > limits.max_crashed:
        return f"{health.num_crashed} copies died {window} (at most {limits.max_crashed} may)"
    rate = error_rate(health)
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


def error_rate(health: TargetHealth) -> float:
    """The share of requests that failed; 1 where more failed than are known to have ended."""
    return min(1.0, health.num_errors / max(1, health.num_requests))


def unless_vetoed(
    outcome: CombinedDecision, capacity: Capacity, reason: str | None
) -> CombinedDecision:
    """`outcome`, or the present number where it would take capacity away against a veto."""
    if reason is None or outcome.decision.desired >= capacity.desired:
        return outcome
    reason = f"{outcome.decision.reason} Not scaled in: {reason}."
    kept = unchanged(capacity, reason, outcome.decision.signal)
    return replace(outcome, decision=kept, by="")
