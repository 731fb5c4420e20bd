"""Step scaling: a change by how far the alarm's metric is from its threshold.

Source: "Step scaling policies" (Step adjustments, Scaling adjustment types, Cooldown period) in the
Application Auto Scaling user guide. PutScalingPolicy (StepAdjustment) in its API reference.

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
from hostelry.scaling.decide.decision import (
    Decision,
    Direction,
    Situation,
    find_act_in_force,
    get_remaining_s,
    keep_capacity,
    move_capacity,
)


def decide(
    policy: StepScaling, threshold: float, values: Sequence[float], at: Situation
) -> Decision:
    """The capacity by the step that the metric's newest `values` lead to.

    An alarm that was set by hand may have no values: its metric then counts as being at the
    threshold. During the cooldown of a scale-out only the excess over it is added. During the
    cooldown of a scale-in nothing is taken away.
    """
    capacity = at.capacity
    finite = [value for value in values if math.isfinite(value)]
    metric = aggregate_values(policy.aggregation, finite) if finite else threshold
    signal = {"metric": metric, "threshold": threshold, "desired": float(capacity.desired)}
    found = f"The metric is {metric:.6g}, the threshold {threshold:.6g}"
    step = find_step(policy.steps, metric - threshold)
    if step is None:
        return keep_capacity(
            capacity, f"{found}: no step adjustment covers the difference.", signal
        )
    desired = adjust_capacity(policy, step, capacity.desired)
    if desired < capacity.desired:
        return scale_in(policy, desired, found, at, signal)
    earlier = find_act_in_force(at.acts, Direction.OUT, policy.cooldown_s, at.pace, at.now)
    since = capacity.desired if earlier is None else earlier.since_capacity
    desired = adjust_capacity(policy, step, since)
    reason = f"{found}: {describe_step(policy, step)} from {since} makes {desired}"
    if earlier is not None:
        left_s = get_remaining_s(earlier, policy.cooldown_s, at.pace, at.now)
        reason += f", counted from before the last scale-out (cooldown: {left_s:.0f} s more)"
    return move_capacity(Direction.OUT, desired, capacity, f"{reason}.", signal)


def scale_in(
    policy: StepScaling, desired: int, found: str, at: Situation, signal: Mapping[str, float]
) -> Decision:
    """`desired`, which is less than there is, unless the cooldown of a scale-in lasts."""
    capacity = at.capacity
    earlier = find_act_in_force(at.acts, Direction.IN, policy.cooldown_s, at.pace, at.now)
    if earlier is None:
        reason = f"{found}: from {capacity.desired} to {desired}."
        return move_capacity(Direction.IN, desired, capacity, reason, signal)
    left_s = get_remaining_s(earlier, policy.cooldown_s, at.pace, at.now)
    reason = f"{found}: the cooldown of the last scale-in lasts {left_s:.0f} s more."
    return keep_capacity(capacity, reason, signal)


def aggregate_values(aggregation: str, values: Sequence[float]) -> float:
    """MetricAggregationType of `values`, of which there is at least one."""
    if aggregation == "Minimum":
        return min(values)
    if aggregation == "Maximum":
        return max(values)
    # Of a quarter of each: the sum of the largest floats would be infinite.
    mean = 4 * math.fsum(value / 4 / len(values) for value in values)
    return max(min(values), min(max(values), mean))


def find_step(steps: Sequence[StepAdjustment], difference: float) -> StepAdjustment | None:
    """The step whose interval has `difference` = metric - threshold. None if none has.

    From the threshold upwards an interval has its lower bound and not its upper one. Below the
    threshold it has its upper bound and not its lower one. So it has the threshold itself if no
    step begins there.
    """
    upwards = (it for it in steps if difference >= 0.0 and is_above(it, difference))
    downwards = (it for it in steps if difference <= 0.0 and is_below(it, difference))
    return next(upwards, None) or next(downwards, None)


def is_above(step: StepAdjustment, difference: float) -> bool:
    """Whether `difference` is in [lower, upper)."""
    lower, upper = get_interval(step)
    return lower <= difference < upper


def is_below(step: StepAdjustment, difference: float) -> bool:
    """Whether `difference` is in (lower, upper]."""
    lower, upper = get_interval(step)
    return lower < difference <= upper


def get_interval(step: StepAdjustment) -> tuple[float, float]:
    """The step's interval. A bound of None is without end."""
    return (
        -math.inf if step.lower is None else step.lower,
        math.inf if step.upper is None else step.upper,
    )


def adjust_capacity(policy: StepScaling, step: StepAdjustment, capacity: int) -> int:
    """`capacity` after the step. May be below 0."""
    if policy.adjustment is Adjustment.EXACT:
        return step.adjustment
    if policy.adjustment is Adjustment.CHANGE:
        return capacity + step.adjustment
    change = get_percent_change(capacity * step.adjustment)
    least = policy.min_magnitude or 0
    if step.adjustment > 0:
        return capacity + max(change, least)
    return capacity + min(change, -least) if step.adjustment < 0 else capacity


def get_percent_change(hundredfold: int) -> int:
    """A hundredth, towards 0. A change of less than 1 in either direction counts as 1."""
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
