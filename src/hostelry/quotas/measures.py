"""The limits of a quota by number, as shared memory keeps them, with their units and words."""

import math

from hostelry.domain.quota import LIMITS, Quota
from hostelry.quotas.estimate import Tokens

REQUESTS, PROMPT, GENERATED, CONCURRENCY, DAY_TOKENS, DAY_COST = range(6)
NUM_MEASURES = 6
MINUTE_MEASURES = (REQUESTS, PROMPT, GENERATED)
DAY_MEASURES = (DAY_TOKENS, DAY_COST)
WORDS = (
    "requests per minute",
    "prompt tokens per minute",
    "generated tokens per minute",
    "concurrent requests",
    "tokens per day",
    "per day",
)
NANO = 10**9  # costs are whole billionths of the currency
MAX_AMOUNT = 1 << 61
Amounts = tuple[int, ...]  # by measure


def list_limits(quota: Quota) -> tuple[tuple[int, int], ...]:
    """The limits of a quota as measures and whole numbers."""
    given = ((measure, getattr(quota, name)) for measure, name in enumerate(LIMITS))
    return tuple(
        (measure, round(value * NANO) if measure == DAY_COST else value)
        for measure, value in given
        if value is not None
    )


def count_amounts(tokens: Tokens, cost: float, *, is_inner: bool = False) -> Amounts:
    """The amounts of a call, by measure. An inner call is not one more request."""
    one = 0 if is_inner else 1
    nano = min(math.ceil(cost * NANO), MAX_AMOUNT)
    return (one, tokens.prompt, tokens.generated, one, tokens.prompt + tokens.generated, nano)


def format_amount(measure: int, value: int, currency: str = "") -> str:
    """An amount in words, in the unit of its measure."""
    if measure != DAY_COST:
        return str(value)
    number = f"{value / NANO:.6f}".rstrip("0").rstrip(".")
    return f"{number} {currency}".strip()
