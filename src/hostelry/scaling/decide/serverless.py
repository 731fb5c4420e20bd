"""Number of environments of a serverless variant: more as requests come, fewer in idleness. Pure.

| environments now, requests under way, MaxConcurrency | environments after a wake |
| --- | --- |
| as many as the requests, or more | unchanged |
| fewer | one for each request, MaxConcurrency at most |

| an environment | result |
| --- | --- |
| had a request, or was waited for, within the idle time-out | stays |
| idle for longer, more than ProvisionedConcurrency are there | ends, the longest idle first |
| idle for longer, no more than those | stays |
| is one that ends already | not counted |
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hostelry.domain.serverless import ServerlessConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentUse:
    """An environment, and when it last had a request, was started or, not ready yet, waited for."""

    copy_id: str
    used_at: float


def environments_for(concurrency: int, now: int, config: ServerlessConfig) -> int:
    """The environments to have for `concurrency` requests under way; `now` are desired already."""
    return max(now, min(concurrency, config.max_concurrency))


def to_end(
    environments: Sequence[EnvironmentUse],
    ending: Collection[str],
    config: ServerlessConfig,
    idle_s: float,
    now: float,
) -> tuple[str, ...]:
    """The ids of the environments to end now, the longest idle first."""
    staying = [it for it in environments if it.copy_id not in ending]
    idle = [it for it in staying if now - it.used_at >= idle_s]
    idle.sort(key=lambda it: (it.used_at, it.copy_id))
    may_go = max(0, len(staying) - config.provisioned_concurrency)
    return tuple(it.copy_id for it in idle[:may_go])
