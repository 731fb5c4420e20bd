"""Step scaling: a change by how far the alarm's metric is from its threshold.

Source: "Step scaling policies" (Step adjustments, Scaling adjustment types, Cooldown period) in the
Application Auto Scaling user guide; PutScalingPolicy (StepAdjustment) in its API reference.

| step's number | last act that way | decision |
| --- | --- | --- |
| no step covers the difference | | unchanged |
| less than desired now | scale-in, in cooldown | unchanged |
| less than desired now | none in cooldown | that number |
| not less | scale-out, in cooldown | the adjustment of the capacity before that act |
| not less | none in cooldown | the adjustment of the present capacity |
"""

import math
from collections.abc import Mapping, Sequence

from hostelry.domain.scaling import Adjustment, StepAdjustment, StepScaling
from hostelry.scaling.decide.cooldown import act_in_force, remaining_s
from hostelry.scaling.decide.decision import Decision, Direction, Situation, towards, unchanged


def decide(
    policy: StepScaling, threshold: float, values: Sequence[float], at: Situation
) -> Decision:
    """The capacity by the step that the metric's newest `values` lead to.

    An alarm that was set by hand may have no values: its metric then counts as being at the
    threshold. During the cooldown of a scale-out only what goes beyond it is added; during that of
    a scale-in nothing is taken away.
    """
    capacity = at.capacity
    finite = [value for value in values if math.isfinite(value)]
    metric = aggregate_values(policy.aggregation, finite) if finite else threshold
    signal = {"metric": metric, "threshold": threshold, "desired": float(capacity.desired)}
    found = f"The metric is {metric:.6g}, the threshold {threshold:.6g}"
    step = step_for(policy.steps, metric - threshold)
    if step is None:
        return unchanged(capacity, f"{found}: no step adjustment covers the difference.", signal)
    desired = adjust_capacity(policy, step, capacity.desired)
    if desired < capacity.desired:
        return scaled_in(policy, desired, found, at, signal)
    earlier = act_in_force(at.acts, Direction.OUT, policy.cooldown_s, at.pace, at.now)
    since = capacity.desired if earlier is None else earlier.since_capacity
    desired = adjust_capacity(policy, step, since)
    reason = f"{found}: {describe_step(policy, step)} from {since} makes {desired}"
    if earlier is not None:
        left_s = remaining_s(earlier, policy.cooldown_s, at.pace, at.now)
        reason += f", counted from before the last scale-out (cooldown: {left_s:.0f} s more)"
    return towards(Direction.OUT, desired, capacity, f"{reason}.", signal)


def scaled_in(
    policy: StepScaling, desired: int, found: str, at: Situation, signal: Mapping[str, float]
) -> Decision:
    """`desired`, which is less than there is, unless the cooldown of a scale-in lasts."""
    capacity = at.capacity
    earlier = act_in_force(at.acts, Direction.IN, policy.cooldown_s, at.pace, at.now)
    if earlier is None:
        reason = f"{found}: from {capacity.desired} to {desired}."
        return towards(Direction.IN, desired, capacity, reason, signal)
    left_s = remaining_s(earlier, policy.cooldown_s, at.pace, at.now)
    reason = f"{found}: the cooldown of the last scale-in lasts {left_s:.0f} s more."
    return unchanged(capacity, reason, signal)


def aggregate_values(aggregation: str, values: Sequence[float]) -> float:
    """MetricAggregationType of `values`, of which there is at least one."""
    if aggregation == "Minimum":
        return min(values)
    if aggregation == "Maximum":
        return max(values)
    # Of a quarter of each: the sum of the largest numbers there are would be none.
    mean = 4 * math.fsum(value / 4 / len(values) for value in values)
    return max(min(values), min(max(values), mean))


def step_for(steps: Sequence[StepAdjustment], difference: float) -> StepAdjustment | None:
    """The step whose interval has `difference` = metric - threshold; None where none has.

    From the threshold upwards an interval has its lower bound and not its upper one; below the
    threshold it has its upper bound and not its lower one, and so the threshold itself where no
    step begins there.
    """
    upwards = (it for it in steps if difference >= 0.0 and above(it, difference))
    downwards = (it for it in steps if difference <= 0.0 and below(it, difference))
    return next(upwards, None) or next(downwards, None)


def above(step: StepAdjustment, difference: float) -> bool:
    """Whether `difference` is in [lower, upper)."""
    lower, upper = bounds(step)
    return lower <= difference < upper


def below(step: StepAdjustment, difference: float) -> bool:
    """Whether `difference` is in (lower, upper]."""
    lower, upper = bounds(step)
    return lower < difference <= upper


def bounds(step: StepAdjustment) -> tuple[float, float]:
    """The step's interval; None is without end."""
    return (
        -math.inf if step.lower is None else step.lower,
        math.inf if step.upper is None else step.upper,
    )


def adjust_capacity(policy: StepScaling, step: StepAdjustment, capacity: int) -> int:
    """What the step makes of `capacity`; may be below 0."""
    if policy.adjustment is Adjustment.EXACT:
        return step.adjustment
    if policy.adjustment is Adjustment.CHANGE:
        return capacity + step.adjustment
    change = percent_change(capacity * step.adjustment)
    least = policy.min_magnitude or 0
    if step.adjustment > 0:
        return capacity + max(change, least)
    return capacity + min(change, -least) if step.adjustment < 0 else capacity


def percent_change(hundredfold: int) -> int:
    """A hundredth, towards 0; but a change that is less than 1 either way is 1 that way."""
    if hundredfold == 0:
        return 0
    size = max(1, abs(hundredfold) // 100)
    return size if hundredfold > 0 else -size


def describe_step(policy: StepScaling, step: StepAdjustment) -> str:
    """The step's adjustment in words."""
    if policy.adjustment is Adjustment.EXACT:
        return f"exactly {step.adjustment}"
    unit = " %" if policy.adjustment is Adjustment.PERCENT else ""
    return f"{step.adjustment:+d}{unit}"
