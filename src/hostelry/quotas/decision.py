"""Decides whether a call is admitted, and words the refusal.

A limit admits a call if use, reservations and the call's own amount fit. A call that needs more
than the whole limit counts as one that needs exactly the limit: it is delayed, not impossible.

limit                        use                        reserved in flight  charged at the end
---------------------------  -------------------------  ------------------  ------------------
requests_per_minute          of the last 60 s, at once  nothing             nothing
prompt_tokens_per_minute     of the last 60 s           the estimate        tokens
generated_tokens_per_minute  of the last 60 s           the estimate        tokens
concurrency                  nothing                    1                   nothing
tokens_per_day               since midnight UTC         the estimate        tokens
cost_per_day                 since midnight UTC         its price           the call's price
"""

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from hostelry.domain.quota import LIMITS
from hostelry.quotas.matching import QuotaCount
from hostelry.quotas.measures import (
    CONCURRENCY,
    DAY_COST,
    DAY_MEASURES,
    GENERATED,
    PROMPT,
    REQUESTS,
    WORDS,
    format_amount,
)

DAY_S = 86_400
SOON_S = 1


class LimitUse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One limit at a call: the use so far, the reservations of other calls, and its own amount.

    `wait_s` is the time until enough leaves the window, if that is known. `share` is this host's
    part of the limit if several hosts have gateways.
    """

    counted: QuotaCount
    measure: int
    limit: int
    used: int
    held: int
    asked: int
    share: int
    wait_s: int | None = None

    @property
    def is_reached(self) -> bool:
        """True if the call does not fit."""
        return self.used + self.held + self.asked > self.share

    @property
    def name(self) -> str:
        """The name of the limit."""
        return LIMITS[self.measure]

    @property
    def remaining(self) -> int:
        """What is left after this call."""
        return max(0, self.share - self.used - self.held - self.asked)


class LimitRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """A reached limit. `retry_s` is a whole number of seconds, at least 1."""

    use: LimitUse
    retry_s: int
    resets_at: float


def decide(uses: Iterable[LimitUse], now: float) -> tuple[LimitRefusal | None, list[LimitUse]]:
    """Decide about a call. Returns the refusal, if any, and the limits that only warn.

    Of several reached limits, the limit with the longest wait is reported. `now` is seconds since
    the epoch.
    """
    refusal, warnings = None, []
    for use in uses:
        if not use.is_reached:
            continue
        if use.counted.quota.warn_only:
            warnings.append(use)
            continue
        found = build_refusal(use, now)
        if refusal is None or found.retry_s > refusal.retry_s:
            refusal = found
    return refusal, warnings


def build_refusal(use: LimitUse, now: float) -> LimitRefusal:
    """The refusal of a call by a reached limit, with the time at which it may fit."""
    if use.measure in DAY_MEASURES and use.used + use.asked > use.share:
        resets_at = (now // DAY_S + 1) * DAY_S
        return LimitRefusal(
            use=use, retry_s=max(1, math.ceil(resets_at - now)), resets_at=resets_at
        )
    wait_s = use.wait_s or SOON_S
    return LimitRefusal(use=use, retry_s=wait_s, resets_at=now + wait_s)


def explain_refusal(refusal: LimitRefusal, currency: str = "") -> str:
    """The text of a refusal: the limit, the window, the use, and when to try again."""
    use = refusal.use
    quota, label = use.counted.quota, use.counted.label
    of = f" for {label}" if label else ""
    limit = format_amount(use.measure, use.limit, currency)
    text = f"Quota {quota.name} allows {limit} {WORDS[use.measure]}{of}."
    if use.share < use.limit:
        text += f" This host may use {format_amount(use.measure, use.share, currency)} of it now."
    text += f" {_describe_use(use, currency)}"
    if use.measure == CONCURRENCY:
        return f"{text} Try again when one of them has ended."
    if use.asked > 1 or use.measure == DAY_COST:
        text += f" This request needs about {format_amount(use.measure, use.asked, currency)}."
    at = datetime.fromtimestamp(math.ceil(refusal.resets_at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{text} Try again in {refusal.retry_s} s, at {at}."


def _describe_use(use: LimitUse, currency: str) -> str:
    if use.measure == CONCURRENCY:
        return f"{use.held} are in flight."
    since = "since midnight UTC" if use.measure in DAY_MEASURES else "in the last 60 s"
    text = f"{format_amount(use.measure, use.used, currency)} were used {since}"
    if use.held:
        text += f", and requests in flight reserve {format_amount(use.measure, use.held, currency)}"
    return f"{text}."


# OpenAI's headers of the limits that a call is under.
#
# Source: OpenAI API reference, Rate limits, Rate limits in headers.


def build_rate_headers(uses: Sequence[LimitUse], refused: bool = False) -> dict[str, str]:
    """The `x-ratelimit-*` headers: of each kind, the limit of a minute with the least left."""
    headers: dict[str, str] = {}
    for kind, measures in (("requests", (REQUESTS,)), ("tokens", (PROMPT, GENERATED))):
        found = [it for it in uses if it.measure in measures]
        if found:
            least = min(found, key=lambda it: it.remaining)
            left = least.remaining
            if refused and not least.is_reached:
                left += least.asked  # a refused call used nothing
            headers |= {
                f"x-ratelimit-limit-{kind}": str(least.limit),
                f"x-ratelimit-remaining-{kind}": str(left),
                f"x-ratelimit-reset-{kind}": _format_wait(least.wait_s or 60),
            }
    return headers


def _format_wait(wait_s: int) -> str:
    minutes, seconds = divmod(wait_s, 60)
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
