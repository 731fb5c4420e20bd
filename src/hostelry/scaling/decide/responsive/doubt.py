"""Control of false alarms: each one makes the policy ask for more evidence.

An act on a rise is false when the arrivals of the next `JUDGED_S` would have fitted into the
capacity there was before. Each raises the evidence that is asked for to what that act had, and by a
fifth at least; time takes one such fifth back per wanted false alarm, and the first one is free. So
in the long run there are no more of them than wanted, whatever arrivals are like.

Source: the step rule is that of adaptive conformal inference, Gibbs and Candes, NeurIPS 2021.
"""

import math
from dataclasses import dataclass

JUDGED_S = 120
MOST = math.log(32.0)
LEAST_STEP = math.log(1.2)
MOST_STEP = math.log(2.0)
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """An act under judgement: arrivals since then, over seconds, beside what was carried before.

    `excess` is how many times the evidence was that was asked for.
    """

    excess: float
    carried_per_s: float
    arrivals: float = 0.0
    num_seconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """`level` is the logarithm of how many times the evidence is asked for; below 0: as usual."""

    level: float = -LEAST_STEP
    num_false: int = 0
    trial: Trial | None = None

    @property
    def factor(self) -> float:
        """By what the usual threshold is multiplied; at least 1."""
        return math.exp(max(0.0, self.level))


def doubted(known: Doubt, arrivals: float, per_hour: float) -> Doubt:
    """`known` after one more second with so many arrivals; `per_hour` false alarms are wanted."""
    if known.level <= -LEAST_STEP and known.trial is None:
        return known
    level = max(-LEAST_STEP, known.level - LEAST_STEP * per_hour / HOUR_S)
    trial, num_false = known.trial, known.num_false
    if trial is not None:
        trial = Trial(
            excess=trial.excess,
            carried_per_s=trial.carried_per_s,
            arrivals=trial.arrivals + arrivals,
            num_seconds=trial.num_seconds + 1,
        )
        if trial.num_seconds >= JUDGED_S:
            if trial.arrivals <= trial.carried_per_s * trial.num_seconds:
                step = min(MOST_STEP, max(LEAST_STEP, math.log(trial.excess)))
                level, num_false = min(MOST, level + step), num_false + 1
            trial = None
    return Doubt(level=level, num_false=num_false, trial=trial)


def on_trial(known: Doubt, carried_per_s: float, excess: float) -> Doubt:
    """`known` after an act; one that follows soon belongs to the act that is judged already."""
    if known.trial is not None:
        return known
    trial = Trial(carried_per_s=carried_per_s, excess=excess)
    return Doubt(level=known.level, num_false=known.num_false, trial=trial)
