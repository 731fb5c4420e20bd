"""Quotas of tenants, and their shares when requests exceed what the engine can serve."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

MIN_WEIGHT, MAX_WEIGHT = 1e-3, 1e3
"""Weights between these keep a counter exact to a token for over 10^9 tokens of service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantPolicy:
    """A tenant's share and quotas; None is no quota. Raises ValueError for values out of range.

    A backlogged tenant gets service in proportion to `weight`. `tokens_per_s` bounds prompt and
    output tokens over time, with bursts of `burst_s` seconds' worth; `max_concurrent` its requests
    that have not ended, `max_queued` those that wait.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantPolicies:
    """The policies of the tenants named in `table`, and of all others."""

    default: TenantPolicy = field(default_factory=TenantPolicy)
    table: Mapping[str, TenantPolicy] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, tenant: str) -> TenantPolicy:
        """The policy of `tenant`."""
        return self.table.get(tenant, self.default)
