"""Times and sizes of batches: how long waiting requests wait for others. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """At most `size` requests a batch, the first of which waits at most `delay_s` for others."""

    size: int
    delay_s: float


def wait_s(limits: BatchLimits, num_waiting: int, oldest_at: float, now: float) -> float:
    """Seconds until an idle worker takes what waits; 0: now. At least one request waits.

    a batch is full           -> now
    the oldest has waited     -> now
    otherwise                 -> once it has, unless the batch is full before
    """
    if num_waiting >= limits.size:
        return 0.0
    return max(0.0, oldest_at + limits.delay_s - now)
