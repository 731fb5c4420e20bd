"""Memory of the policy about one target."""

import math
from dataclasses import dataclass, field

from hostelry.scaling.decide.responsive.dispersion import Dispersion
from hostelry.scaling.decide.responsive.doubt import Doubt
from hostelry.scaling.decide.responsive.options import ResponsiveOptions
from hostelry.scaling.decide.responsive.rates import Rates

LEVEL_S = 30  # for which the level after a rise is learnt


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsiveState:
    """Learnt from what came so far; a fresh one begins with the warm-up.

    `second` is the newest that was counted, `num_seconds` how many were. `counts` are arrivals by
    second since the last act or gap, as many as windows need. `acts` are the instants of acts that
    limits count, `reported_full_at` when a full capacity was last reported, `idle_since`
    since when one copy less would do.
    """

    options: ResponsiveOptions
    second: int | None = None
    num_seconds: int = 0
    counts: tuple[float, ...] = ()
    rates: Rates = field(default_factory=Rates)
    dispersion: Dispersion = field(default_factory=Dispersion)
    doubt: Doubt = field(default_factory=Doubt)
    acts: tuple[float, ...] = ()
    reported_full_at: float | None = None
    idle_since: int | None = None

    @property
    def is_warm(self) -> bool:
        """Whether enough is known to distinguish a change from chance."""
        return self.num_seconds >= self.options.warm_up_s

    @property
    def threshold(self) -> float:
        """The evidence from which a rise is believed."""
        return self.options.threshold * self.doubt.factor

    @property
    def deviations(self) -> float:
        """How many standard deviations above capacity a slow average is believed to be.

        Only one while the level after a rise is learnt: that it rose is no question any more.
        """
        trial = self.doubt.trial
        if trial is not None and trial.num_seconds <= LEVEL_S:
            return 1.0
        return self.options.deviations * math.sqrt(self.doubt.factor)
