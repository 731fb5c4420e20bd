"""High-resolution metrics: samples of periods below a minute, at the start of their period."""

from dataclasses import replace

from hostelry.domain.metric import Sample
from hostelry.domain.metrics_config import DEFAULT_PERIOD_S
from hostelry.domain.scope import Scope

ScopedSample = tuple[Scope, Sample]


def paced(scoped: ScopedSample, period_s: int) -> ScopedSample:
    """The sample moved to the start of its period; unchanged for periods from a minute on.

    Samples of a period share one instant, so that they share one bucket of the store.
    """
    if period_s >= DEFAULT_PERIOD_S:
        return scoped
    scope, sample = scoped
    return scope, replace(sample, at=sample.at - sample.at % period_s, resolution_s=1)
