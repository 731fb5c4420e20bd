"""Options of the responsive policy, and the thresholds that follow from them."""

import math
from dataclasses import dataclass, fields

# Seconds are looked at one by one, but neighbours share most of their evidence: a test every second
# raises as many false alarms as this many independent ones an hour. Tuned by
# benchmarks/detection_study.py on seeds that its table does not use.
TESTS_PER_HOUR = 3200.0
DRIFTS_PER_HOUR = 60.0  # independent tests of the slow averages


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsiveOptions:
    """One target's choice; raises ValueError for what cannot be.

    `target` is the wanted concurrency per copy. `false_alarms_per_hour` is how many acts an hour
    of unchanged load may cost. Nothing but `queue_age_s`, the age at which a call that waits for
    a copy makes one more be added, acts in the first `warm_up_s`. An act at most multiplies
    capacity by `max_growth`, unless a call has waited for over `queue_slo_s`. `scale_in_after_s`
    None leaves scale-in to AWS's policies; otherwise one copy goes after each such time of too
    little load.
    """

    target: float
    false_alarms_per_hour: float = 1.0
    warm_up_s: float = 60.0
    queue_age_s: float = 1.0
    queue_slo_s: float = 5.0
    max_growth: float = 2.0
    acts_per_minute: int = 6
    scale_in_after_s: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name == "scale_in_after_s":
                continue
            low, high = _BOUNDS[field.name]
            if not low <= value <= high:  # NaN is within no bounds
                raise ValueError(f"{field.name} is {value}; it must be from {low:g} to {high:g}")

    @property
    def threshold(self) -> float:
        """The log likelihood ratio from which a rise of arrivals is believed."""
        return math.log(TESTS_PER_HOUR / self.false_alarms_per_hour)

    @property
    def deviations(self) -> float:
        """How many standard deviations above capacity a slow average is believed to be."""
        return math.sqrt(2.0 * math.log(DRIFTS_PER_HOUR / self.false_alarms_per_hour))


_BOUNDS: dict[str, tuple[float, float]] = {
    "target": (0.01, 1e6),
    "false_alarms_per_hour": (0.001, 20.0),
    "warm_up_s": (10.0, 3600.0),
    "queue_age_s": (0.1, 3600.0),
    "queue_slo_s": (0.1, 3600.0),
    "max_growth": (1.1, 1000.0),
    "acts_per_minute": (1, 60),
    "scale_in_after_s": (30.0, 86400.0),
}
