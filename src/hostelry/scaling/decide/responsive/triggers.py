"""Signals that capacity is too small: each trigger reads one, none of them acts.

| trigger | condition |
| --- | --- |
| `too_old` | a call waits `queue_age_s`, and copies on their way would not carry the load |
| `risen` | evidence of a rise at the threshold, to more than the capacity carries |
| `sustained` | slow averages, less their errors, above what the capacity carries |
| `idle_copies` | one copy less would carry the highest likely load, with a tenth to spare |
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from hostelry.domain.load import SecondLoad
from hostelry.scaling.decide.decision import Capacity
from hostelry.scaling.decide.responsive.change import Rise
from hostelry.scaling.decide.responsive.expected import expected_concurrency
from hostelry.scaling.decide.responsive.options import ResponsiveOptions
from hostelry.scaling.decide.responsive.state import ResponsiveState


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityNeed:
    """A capacity that is called for: `concurrency` is expected, `least` copies whatever that is.

    `since_s` is how long ago the load rose. `is_certain` where it was seen, not concluded; else the
    act is judged afterwards, and `excess` is how many times the evidence was that was asked for.
    `per_s` and `known_s` the new level of arrivals and the
    seconds that it was seen for, where the rate itself changed.
    """

    concurrency: float
    since_s: float
    reason: str
    is_certain: bool = False
    excess: float = 1.0
    least: int = 0
    signal: Mapping[str, float] = field(default_factory=dict)
    per_s: float | None = None
    known_s: float = 0.0


def carried(options: ResponsiveOptions, capacity: Capacity) -> float:
    """The concurrency that the wanted capacity carries at the target."""
    return options.target * capacity.desired


def too_old(
    load: SecondLoad, options: ResponsiveOptions, capacity: Capacity
) -> CapacityNeed | None:
    """A call has waited too long for a copy, and no more are on their way than it needs."""
    if not load.held or load.oldest_held_s < options.queue_age_s:
        return None
    under_way = max(load.in_flight_mean, float(load.held))
    if capacity.desired > capacity.serving and under_way <= carried(options, capacity):
        return None
    return CapacityNeed(
        concurrency=under_way,
        least=capacity.desired + 1,
        is_certain=True,
        since_s=load.oldest_held_s,
        reason=(
            f"{load.held} calls wait for a copy, the first for {load.oldest_held_s:.1f} s "
            f"(limit {options.queue_age_s:g} s)"
        ),
    )


def risen(rise: Rise | None, state: ResponsiveState, capacity: Capacity) -> CapacityNeed | None:
    """Arrivals have risen for certain, to more than the capacity carries."""
    if rise is None or rise.evidence < state.threshold:
        return None
    expected = rise.per_s * state.rates.mean_service_s
    if expected <= carried(state.options, capacity):
        return None
    return CapacityNeed(
        concurrency=expected,
        since_s=rise.since_s,
        reason=(
            f"arrivals rose from {rise.base_per_s:.3g} to {rise.per_s:.3g} a second within "
            f"{rise.since_s:g} s (evidence {rise.evidence:.1f}, threshold {state.threshold:.1f})"
        ),
        signal={"evidence": rise.evidence, "window_s": rise.since_s},
        excess=rise.evidence / state.threshold,
        per_s=rise.per_s,
        known_s=rise.since_s,
    )


def sustained(state: ResponsiveState, capacity: Capacity) -> CapacityNeed | None:
    """The slow averages, less their errors, are above what the capacity carries."""
    rates, dispersion = state.rates, state.dispersion.index[-1]
    limit = carried(state.options, capacity)
    if expected_concurrency(rates) <= limit:
        return None
    surely_per_s = rates.per_s - state.deviations * rates.error_per_s(dispersion)
    surely = rates.in_flight - state.deviations * rates.in_flight_error(dispersion)
    by_rate = surely_per_s * rates.mean_service_s > limit
    if not by_rate and surely <= limit:
        return None
    expected = expected_concurrency(rates)
    what = "arrivals" if by_rate else "calls under way"
    return CapacityNeed(
        concurrency=expected,
        since_s=0.0,
        reason=f"{what} have stayed above what {capacity.desired} copies carry",
        signal={"surely_per_s": surely_per_s, "surely_in_flight": surely},
    )


def idle_copies(state: ResponsiveState, capacity: Capacity) -> bool:
    """Whether one copy less would surely carry what is expected, with a tenth to spare."""
    rates, options, dispersion = state.rates, state.options, state.dispersion.index[-1]
    highest_per_s = rates.per_s + options.deviations * rates.error_per_s(dispersion)
    highest = max(highest_per_s * rates.mean_service_s, rates.in_flight)
    fewer = capacity.clamped(capacity.desired - 1)
    return fewer < capacity.desired and highest <= 0.9 * options.target * fewer


def copies_for(need: CapacityNeed, options: ResponsiveOptions) -> int:
    """How many copies carry the need at the target."""
    return max(need.least, math.ceil(need.concurrency / options.target - 1e-9))
