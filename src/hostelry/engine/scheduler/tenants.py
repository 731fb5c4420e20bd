"""Token buckets and shares of tenants, and the time after which a refused request may be retried.

    request of n tokens, bucket of capacity c     result
    --------------------------------------------  --------------------------------------------
    level >= min(n, c)                            it may start, its tokens are taken
    level < min(n, c)                             refused, retry after (min(n, c) - level) / rate

A request larger than the bucket starts when the bucket is full: it is delayed, not impossible. The
level may fall below zero, as output tokens are taken once they are generated. `now` is in seconds.
"""

import math
from collections.abc import Mapping

import msgspec

MIN_RETRY_S = 1.0
_NEW_SHARE = 0.3


class TokenBucket:
    """A bucket that fills at `tokens_per_s` up to `capacity_tokens`."""

    def __init__(self, tokens_per_s: float, capacity_tokens: float, now: float) -> None:
        self.tokens_per_s = tokens_per_s
        self.capacity_tokens = capacity_tokens
        self._level = capacity_tokens
        self._filled_at = now

    def level(self, now: float) -> float:
        """Tokens that may be used now. Negative if more were used than it held."""
        if now > self._filled_at:
            filled = self._level + (now - self._filled_at) * self.tokens_per_s
            self._level = min(self.capacity_tokens, filled)
            self._filled_at = now
        return self._level

    def is_full(self, now: float) -> bool:
        """Whether it holds its capacity."""
        return self.level(now) >= self.capacity_tokens

    def wait_s(self, num_tokens: int, now: float) -> float:
        """Seconds until a request of `num_tokens` may start. 0 if it may start now."""
        missing = min(num_tokens, self.capacity_tokens) - self.level(now)
        return max(0.0, missing / self.tokens_per_s)

    def take(self, num_tokens: int, now: float) -> None:
        """Use `num_tokens`, or give them back when negative."""
        self._level = min(self.capacity_tokens, self.level(now) - num_tokens)


class CompletionInterval:
    """The mean time between completions of requests, while there are requests."""

    def __init__(self) -> None:
        self._mean_s: float | None = None
        self._last_at = 0.0

    def begin(self, now: float) -> None:
        """Record the first request after a time without any."""
        self._last_at = now

    def end(self, now: float) -> None:
        """Record the end of a request."""
        interval_s = max(0.0, now - self._last_at)
        self._last_at = now
        if self._mean_s is None:
            self._mean_s = interval_s
        else:
            self._mean_s += _NEW_SHARE * (interval_s - self._mean_s)

    @property
    def retry_after_s(self) -> float:
        """Seconds until the next request is expected to end, at least MIN_RETRY_S."""
        return max(MIN_RETRY_S, self._mean_s or 0.0)


MIN_WEIGHT, MAX_WEIGHT = 1e-3, 1e3
"""Weights between these keep a counter exact to a token for over 10^9 tokens of service."""


class TenantPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's share and quotas.

    Raises ValueError for values out of range. A backlogged tenant gets service in proportion to
    `weight`. `tokens_per_s` bounds prompt and output tokens over time, with bursts of `burst_s`
    seconds' worth. `max_concurrent` bounds its unfinished requests, `max_queued` its waiting
    requests. A quota of None is unlimited.
    """

    weight: float = 1.0
    tokens_per_s: float | None = None
    burst_s: float = 10.0
    max_concurrent: int | None = None
    max_queued: int | None = None

    def __post_init__(self) -> None:
        """Check every value."""
        if not MIN_WEIGHT <= self.weight <= MAX_WEIGHT:
            raise ValueError(
                f"weight is {self.weight}; it must be between {MIN_WEIGHT:g} and {MAX_WEIGHT:g}"
            )
        for name in ("tokens_per_s", "burst_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} is {value}; it must be finite and greater than 0")
        for name in ("max_concurrent", "max_queued"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1, or None")


class TenantPolicies(msgspec.Struct, frozen=True, kw_only=True):
    """The policies of the tenants named in `table`, and of all others."""

    default: TenantPolicy = msgspec.field(default_factory=TenantPolicy)
    table: Mapping[str, TenantPolicy] = msgspec.field(default_factory=dict)

    def of(self, tenant: str) -> TenantPolicy:
        """The policy of `tenant`."""
        return self.table.get(tenant, self.default)
