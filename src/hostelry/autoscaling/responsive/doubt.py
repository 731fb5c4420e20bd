"""How much the policy distrusts itself: it counts false alarms, and then asks for more evidence.

An act on a rise is false when the arrivals of the next `JUDGED_S` would have fitted into the
capacity there was before. Each makes the evidence that is asked for twice as much, and time takes
one such doubling back per wanted false alarm. So in the long run there are no more of them than
wanted, whatever the arrivals are like; with arrivals as the tests assume them there is none to
count.

Source: the step rule is that of adaptive conformal inference, Gibbs and Candes, NeurIPS 2021.
"""

import math
from dataclasses import dataclass

JUDGED_S = 120
MOST = math.log(32.0)
STEP = math.log(2.0)
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """An act under judgement: arrivals since then, over seconds, beside what was carried before."""

    carried_per_s: float
    arrivals: float = 0.0
    num_seconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """`level` is the logarithm of how many times the evidence is asked for."""

    level: float = 0.0
    num_false: int = 0
    trial: Trial | None = None

    @property
    def factor(self) -> float:
        """By what the usual threshold is multiplied; at least 1."""
        return math.exp(self.level)


def doubted(known: Doubt, arrivals: float, per_hour: float) -> Doubt:
    """`known` after one more second with so many arrivals; `per_hour` false alarms are wanted."""
    if not known.level and known.trial is None:
        return known
    level = max(0.0, known.level - STEP * per_hour / HOUR_S)
    trial, num_false = known.trial, known.num_false
    if trial is not None:
        trial = Trial(
            carried_per_s=trial.carried_per_s,
            arrivals=trial.arrivals + arrivals,
            num_seconds=trial.num_seconds + 1,
        )
        if trial.num_seconds >= JUDGED_S:
            if trial.arrivals <= trial.carried_per_s * trial.num_seconds:
                level, num_false = min(MOST, level + STEP), num_false + 1
            trial = None
    return Doubt(level=level, num_false=num_false, trial=trial)


def on_trial(known: Doubt, carried_per_s: float) -> Doubt:
    """`known` after an act; one that follows soon belongs to the act that is judged already."""
    if known.trial is not None:
        return known
    trial = Trial(carried_per_s=carried_per_s)
    return Doubt(level=known.level, num_false=known.num_false, trial=trial)
