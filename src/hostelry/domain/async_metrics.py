"""Report of a jobs process to control: samples of asynchronous endpoints' metrics."""

from dataclasses import dataclass

from hostelry.domain.metric import Sample
from hostelry.domain.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopedMetric:
    """A sample, and the scope that it is published in."""

    scope: Scope
    sample: Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncMetricsReport:
    """Samples, reported once or more: a process is known by its start, a report by its number.

    `host` names the host of the process where there are several.
    """

    started_at: float
    sequence: int
    samples: tuple[ScopedMetric, ...]
    host: str = ""
