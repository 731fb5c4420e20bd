"""Metrics told more often than each minute: of high resolution, at their period's start."""

from dataclasses import replace

from hostelry.domain.metric import Sample
from hostelry.domain.metrics_config import DEFAULT_PERIOD_S
from hostelry.domain.scope import Scope

ScopedSample = tuple[Scope, Sample]


def paced(told: ScopedSample, period_s: int) -> ScopedSample:
    """The sample as one of `period_s`; from a minute on it stays as it is.

    A period's samples share one instant, so that ten seconds take one bucket of the store, not ten.
    """
    if period_s >= DEFAULT_PERIOD_S:
        return told
    scope, sample = told
    return scope, replace(sample, at=sample.at - sample.at % period_s, resolution_s=1)
