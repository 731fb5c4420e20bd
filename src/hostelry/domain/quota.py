"""Quotas: how much callers may use, and their share of a busy endpoint.

A quota selects calls by account, principal and so on. A selector is a name, `*`, or missing:

selector  the quota counts
--------  -----------------------------------------------------
missing   all calls together, whatever they have there
a name    the calls that have this name
`*`       each name separately, and not the calls without a name
"""

import math
import string
from enum import StrEnum

import msgspec

EACH = "*"
SELECTORS = ("account", "principal", "endpoint", "component", "adapter", "openai_key")
LIMITS = (
    "requests_per_minute",
    "prompt_tokens_per_minute",
    "generated_tokens_per_minute",
    "concurrency",
    "tokens_per_day",
    "cost_per_day",
)
MAX_NAME_CHARACTERS = 128
NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + ".-_")
MAX_SELECTOR_CHARACTERS = 2048
MAX_COUNT = 10**15
MAX_COST = 10**9  # in the currency of prices.toml
MIN_COST = 1e-6
MIN_WEIGHT, MAX_WEIGHT = 0.01, 100.0
MAX_QUOTAS = 4096


class Priority(StrEnum):
    """The order of requests that wait for a busy endpoint. A lower class waits for a higher."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class Quota(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A quota. Its name is unique in its account.

    `id` is new if the quota is deleted and made again, so that it begins without use. `account` is
    an account's id, or `*` for each account separately. `principal` is an ARN. A call of an adapter
    has the adapter's base as its component. With `warn_only` a reached limit is reported, and calls
    are answered. Of the quotas that select a call, the first by name that has a `priority` or a
    `weight` decides it.

    Raises ValueError for values out of range, and if it neither limits nor shares anything.
    """

    id: str
    name: str
    account: str
    created_at: float
    principal: str | None = None
    endpoint: str | None = None
    component: str | None = None
    adapter: str | None = None
    openai_key: str | None = None
    requests_per_minute: int | None = None
    prompt_tokens_per_minute: int | None = None
    generated_tokens_per_minute: int | None = None
    concurrency: int | None = None
    tokens_per_day: int | None = None
    cost_per_day: float | None = None
    priority: Priority | None = None
    weight: float | None = None
    warn_only: bool = False

    def __post_init__(self) -> None:
        """Check every value."""
        if not (0 < len(self.name) <= MAX_NAME_CHARACTERS and set(self.name) <= NAME_CHARACTERS):
            raise ValueError(
                f"the name is {self.name[:200]!r}; expected 1 to {MAX_NAME_CHARACTERS} letters, "
                "digits and characters of .-_"
            )
        for name in SELECTORS:
            value = getattr(self, name)
            if value is not None and not 0 < len(value) <= MAX_SELECTOR_CHARACTERS:
                raise ValueError(
                    f"{name} has {len(value)} characters; expected 1 to {MAX_SELECTOR_CHARACTERS}"
                )
        for name in LIMITS[:-1]:
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MAX_COUNT:
                raise ValueError(f"{name} is {value}; expected 1 to {MAX_COUNT}")
        if self.cost_per_day is not None and not MIN_COST <= self.cost_per_day <= MAX_COST:
            raise ValueError(
                f"cost_per_day is {self.cost_per_day:g}; expected {MIN_COST:g} to {MAX_COST}"
            )
        if self.weight is not None and not MIN_WEIGHT <= self.weight <= MAX_WEIGHT:
            raise ValueError(
                f"weight is {self.weight:g}; expected {MIN_WEIGHT:g} to {MAX_WEIGHT:g}"
            )
        if not self.limits and self.priority is None and self.weight is None:
            raise ValueError(
                f"it has no limit, no priority and no weight; give one of {', '.join(LIMITS)}"
            )

    @property
    def limits(self) -> dict[str, float]:
        """The limits that it has, by name."""
        given = {name: getattr(self, name) for name in LIMITS}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def selectors(self) -> dict[str, str]:
        """The selectors that it has, by name."""
        given = {name: getattr(self, name) for name in SELECTORS}
        return {name: value for name, value in given.items() if value is not None}


class ModelPrices(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The price of a call: of a token of its prompt and its answer, and of a second on a copy."""

    per_prompt_token: float = 0.0
    per_generated_token: float = 0.0
    per_s: float = 0.0

    def compute(self, num_prompt: int, num_generated: int, service_s: float) -> float:
        """The price of a call."""
        total = num_prompt * self.per_prompt_token + num_generated * self.per_generated_token
        found = total + service_s * self.per_s
        return found if math.isfinite(found) else 0.0


class CallPrices(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What calls cost their callers. `models` has other prices for endpoints and components."""

    currency: str = ""
    default: ModelPrices = ModelPrices()
    models: dict[str, ModelPrices] = {}

    def find(self, *names: str) -> ModelPrices:
        """The prices of the first of `names` that has any, or the default."""
        for name in names:
            found = self.models.get(name)
            if found is not None:
                return found
        return self.default


class QuotaDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All quotas, and the prices that `cost_per_day` uses. `version` is a digest of both."""

    version: str
    quotas: tuple[Quota, ...] = ()
    prices: CallPrices = CallPrices()


class ReportedUse(msgspec.Struct, frozen=True, kw_only=True):
    """The use of one count on a host, by limit in the order of LIMITS. Costs are billionths.

    `values` are the names for the quota's selectors `*`. `shares` are the parts of the limits that
    the host may use, or -1 if no part was granted.
    """

    key: str
    quota_id: str
    values: tuple[str, ...]
    used: tuple[int, ...]
    held: tuple[int, ...]
    refused: tuple[int, ...]
    warned: tuple[int, ...]
    shares: tuple[int, ...]


class QuotaReport(msgspec.Struct, frozen=True, kw_only=True):
    """The use of all quotas on a host. Its id is empty if it is the only host."""

    host: str
    uses: tuple[ReportedUse, ...] = ()


class GrantedShares(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of one count's limits that a host may use. -1: without a limit."""

    key: str
    quota_id: str
    values: tuple[str, ...]
    shares: tuple[int, ...]


class QuotaGrants(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a report. Empty if the host is the only one."""

    grants: tuple[GrantedShares, ...] = ()
