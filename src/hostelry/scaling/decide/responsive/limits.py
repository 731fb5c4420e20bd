"""Limits of one act, and of acts in a minute."""

import math

from hostelry.scaling.decide.decision import Capacity
from hostelry.scaling.decide.responsive.options import ResponsiveOptions

MINUTE_S = 60.0
APART_S = 2.0  # another second or two show how far an act must go


def acts_of_last_minute(acts: tuple[float, ...], now: float) -> tuple[float, ...]:
    """Those that still count; one that lies ahead is of a clock that was set back, and does not."""
    return tuple(at for at in acts if 0.0 <= now - at < MINUTE_S)


def may_act(acts: tuple[float, ...], options: ResponsiveOptions, now: float) -> bool:
    """Whether the acts of the last minute leave room for one more."""
    if len(acts) >= options.acts_per_minute:
        return False
    return not acts or now - acts[-1] >= APART_S


def within_limits(
    desired: int, capacity: Capacity, options: ResponsiveOptions, oldest_held_s: float
) -> int:
    """`desired` copies within the target's bounds and the growth of one act; none grow as one."""
    if oldest_held_s <= options.queue_slo_s:
        most = math.floor(max(capacity.desired, 1) * options.max_growth)
        desired = min(desired, max(most, capacity.desired + 1))
    return capacity.clamped(desired)
