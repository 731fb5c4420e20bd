"""Target tracking: the number that brings a metric to its target.

AWS publishes that the change is proportional to the distance from the target, quick on the way out
and careful on the way in. It does not publish the formula. `proportional` is therefore one function
that a caller may exchange.

| direction | metric | last act that way | decision |
| --- | --- | --- | --- |
| either | no finite value | | unchanged |
| out | newest at or below the target | | unchanged |
| out | above | none in cooldown, or from zero | formula over what serves |
| out | above | scale-out in cooldown | formula over the capacity before it |
| in | DisableScaleIn, or largest not below 90 % of the target | | unchanged |
| in | below | scale-in in cooldown | unchanged |
| in | below | none in cooldown | formula over the larger of serving and desired |

Source: "Target tracking scaling policies" in the Application Auto Scaling user guide.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from hostelry.domain.scaling import TargetTracking
from hostelry.scaling.decide.decision import (
    Capacity,
    Decision,
    Direction,
    Situation,
    build_not_scaled,
    find_act_in_force,
    get_remaining_s,
    keep_capacity,
    move_capacity,
)

# What AlarmLow watches: a metric between this share of the target and the target is left alone.
LOW_SHARE = 0.9
MAX_CAPACITY = 2**31 - 1
ROUNDING = 1e-9

# (capacity that the metric was measured over, metric, target) -> the capacity desired.
Formula = Callable[[int, float, float], int]


def proportional(capacity: int, metric: float, target: float) -> int:
    """The least capacity over which the load behind `metric` is at most `target` each.

    `target` is above 0. A metric that is `target` to the last few bits counts as `target`.
    """
    desired = capacity * metric / target
    if not desired < MAX_CAPACITY:
        return MAX_CAPACITY
    if desired < 0:  # -inf has no nearest integer
        return 0
    nearest = round(desired)
    is_whole = abs(desired - nearest) <= ROUNDING * max(1.0, abs(desired))
    return max(0, nearest if is_whole else math.ceil(desired))


def decide(
    policy: TargetTracking,
    direction: Direction,
    values: Sequence[float],
    at: Situation,
    formula: Formula = proportional,
) -> Decision:
    """The capacity desired that way, by the metric's newest `values`, oldest first.

    Out by the newest value: the alarm has seen to it that the load lasts. In by the greatest of
    them, so that none of the window's loads would exceed the target afterwards. Nothing is decided
    without a number: values that are not finite are left out.
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return keep_capacity(
            at.capacity, "No data: a target-tracking policy then does nothing.", {}
        )
    if direction is Direction.OUT:
        return decide_out(policy, finite[-1], at, formula)
    return decide_in(policy, max(finite), at, formula)


def decide_out(
    policy: TargetTracking, metric: float, at: Situation, formula: Formula = proportional
) -> Decision:
    """More capacity if `metric` is above the target.

    During the cooldown the earlier act counts as done: the formula counts from the capacity before
    that act, so that only the excess over it is added. An act that began from zero has no
    proportion to count by, and holds nothing back.
    """
    capacity, target = at.capacity, policy.target_value
    signal = build_signal(policy, metric, capacity)
    found = f"The metric is {metric:.6g}, the target {target:.6g}"
    if metric <= target:
        return keep_capacity(capacity, f"{found}: not above it.", signal)
    cooldown_s = policy.scale_out_cooldown_s
    earlier = find_act_in_force(at.acts, Direction.OUT, cooldown_s, at.pace, at.now)
    if earlier is None or earlier.since_capacity == 0:
        desired = formula(capacity.serving, metric, target)
        reason = f"{found}: {capacity.serving} serving, {desired} needed."
        return move_capacity(Direction.OUT, desired, capacity, reason, signal)
    desired = formula(earlier.since_capacity, metric, target)
    left_s = get_remaining_s(earlier, cooldown_s, at.pace, at.now)
    reason = (
        f"{found}: counted from the {earlier.since_capacity} before the last scale-out, whose"
        f" cooldown lasts {left_s:.0f} s more, {desired} needed."
    )
    return move_capacity(Direction.OUT, desired, capacity, reason, signal)


def decide_in(
    policy: TargetTracking, metric: float, at: Situation, formula: Formula = proportional
) -> Decision:
    """Less capacity if `metric` is below `LOW_SHARE` of the target.

    The number is rounded up, and counted over the larger of the desired and the serving capacity,
    so that the metric stays at or below the target.
    """
    capacity, target = at.capacity, policy.target_value
    signal = build_signal(policy, metric, capacity)
    found = f"The metric is at most {metric:.6g}, the target {target:.6g}"
    if policy.disable_scale_in:
        return keep_capacity(capacity, f"{found}: DisableScaleIn is set.", signal)
    if metric >= LOW_SHARE * target:
        return keep_capacity(capacity, f"{found}: not below {LOW_SHARE:.0%} of it.", signal)
    cooldown_s = policy.scale_in_cooldown_s
    earlier = find_act_in_force(at.acts, Direction.IN, cooldown_s, at.pace, at.now)
    if earlier is not None:
        left_s = get_remaining_s(earlier, cooldown_s, at.pace, at.now)
        reason = f"{found}: the cooldown of the last scale-in lasts {left_s:.0f} s more."
        return keep_capacity(capacity, reason, signal)
    desired = formula(max(capacity.serving, capacity.desired), metric, target)
    reason = f"{found}: {desired} of {capacity.desired} needed."
    if desired >= capacity.desired > capacity.minimum:
        flapping = build_not_scaled("AutoScalingAnticipatedFlapping", capacity)
        return keep_capacity(capacity, f"{reason} Fewer would exceed the target.", signal, flapping)
    return move_capacity(Direction.IN, desired, capacity, reason, signal)


def build_signal(policy: TargetTracking, metric: float, capacity: Capacity) -> Mapping[str, float]:
    """The values that a decision rests on."""
    return {
        "metric": metric,
        "target": policy.target_value,
        "serving": float(capacity.serving),
        "desired": float(capacity.desired),
    }
