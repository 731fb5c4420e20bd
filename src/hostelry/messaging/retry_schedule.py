"""Delivery policies: the pauses between attempts at a delivery. PURE.

    phase          retries             pause before each
    immediate      numNoDelayRetries   none
    pre-backoff    numMinDelayRetries  minDelayTarget
    backoff        all others          from minDelayTarget to maxDelayTarget, by backoffFunction
    post-backoff   numMaxDelayRetries  maxDelayTarget

Source: Amazon SNS Developer Guide, "Amazon SNS message delivery retries".
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

MAX_RETRIES = 100
MAX_DELAY_S = 3600
MAX_TOTAL_S = 3600
FUNCTIONS = ("linear", "arithmetic", "geometric", "exponential")


class DeliveryPolicyError(ValueError):
    """The policy is invalid. The message says why."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """SNS's healthyRetryPolicy, with SNS's names and defaults."""

    minDelayTarget: int = 20  # seconds, as in every policy
    maxDelayTarget: int = 20
    numRetries: int = 3
    numMaxDelayRetries: int = 0
    numNoDelayRetries: int = 0
    numMinDelayRetries: int = 0
    backoffFunction: str = "linear"

    def delays_s(self) -> Sequence[float]:
        """The pause before each retry, in order."""
        backoff = self.numRetries - (
            self.numNoDelayRetries + self.numMinDelayRetries + self.numMaxDelayRetries
        )
        return [
            *([0.0] * self.numNoDelayRetries),
            *([float(self.minDelayTarget)] * self.numMinDelayRetries),
            *(self._backoff_s(it, backoff) for it in range(backoff)),
            *([float(self.maxDelayTarget)] * self.numMaxDelayRetries),
        ]

    def members(self) -> Mapping[str, Any]:
        """The policy in SNS's form."""
        return msgspec.structs.asdict(self)

    def _backoff_s(self, number: int, count: int) -> float:
        low, high = float(self.minDelayTarget), float(self.maxDelayTarget)
        share = number / (count - 1) if count > 1 else 1.0
        if self.backoffFunction == "linear":
            return low + (high - low) * share
        if self.backoffFunction == "arithmetic":
            return low + (high - low) * share * share
        if self.backoffFunction == "geometric":
            return float(low * (high / low) ** share)
        return min(high, low * 2.0**number)


DEFAULT_POLICY = RetryPolicy()


def topic_retries(text: str | None) -> tuple[RetryPolicy | None, bool]:
    """A topic's policy (None without one), and whether subscriptions may override it.

    Raises DeliveryPolicyError.
    """
    if not text:
        return None, True
    http = _object(_parse(text, {"http"}).get("http", {}), "http")
    _check_names(http, {"defaultHealthyRetryPolicy", "disableSubscriptionOverrides"})
    disabled = http.get("disableSubscriptionOverrides", False)
    if not isinstance(disabled, bool):
        raise DeliveryPolicyError("DeliveryPolicy: disableSubscriptionOverrides must be a boolean")
    given = http.get("defaultHealthyRetryPolicy")
    return (None if given is None else _policy(given)), not disabled


def subscription_retries(text: str | None) -> RetryPolicy | None:
    """Parse a subscription's own policy. None without a policy. Raises DeliveryPolicyError."""
    if not text:
        return None
    given = _parse(text, {"healthyRetryPolicy"}).get("healthyRetryPolicy")
    return None if given is None else _policy(given)


def effective_retries(topic: str | None, subscription: str | None) -> RetryPolicy:
    """The policy in force, from the texts of the topic's and the subscription's DeliveryPolicy."""
    of_topic, may_override = topic_retries(topic)
    own = subscription_retries(subscription) if may_override else None
    return own or of_topic or DEFAULT_POLICY


def _parse(text: str, names: set[str]) -> Mapping[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise DeliveryPolicyError("DeliveryPolicy: failed to parse JSON") from None
    content = _object(content, "DeliveryPolicy")
    _check_names(content, names)
    return content


def _object(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise DeliveryPolicyError(f"DeliveryPolicy: {name} must be an object")
    return value


def _check_names(given: Mapping[str, Any], names: set[str]) -> None:
    for name, value in given.items():
        if name not in names and value is not None:
            raise DeliveryPolicyError(f"DeliveryPolicy: {name} is not supported by Hostelry")


def _policy(given: Any) -> RetryPolicy:
    members = _object(given, "healthyRetryPolicy")
    _check_names(members, set(DEFAULT_POLICY.members()))
    chosen = {name: value for name, value in members.items() if value is not None}
    for name, value in chosen.items():
        is_function = name == "backoffFunction"
        is_whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if (value not in FUNCTIONS) if is_function else not is_whole:
            raise DeliveryPolicyError(f"DeliveryPolicy: {name}: {value!r:.50} is not valid")
    policy = RetryPolicy(**chosen)
    _check_policy(policy)
    return policy


def _check_policy(policy: RetryPolicy) -> None:
    if policy.numRetries > MAX_RETRIES:
        raise DeliveryPolicyError(f"DeliveryPolicy: numRetries must be at most {MAX_RETRIES}")
    if not 1 <= policy.minDelayTarget <= policy.maxDelayTarget <= MAX_DELAY_S:
        raise DeliveryPolicyError(
            f"DeliveryPolicy: 1 <= minDelayTarget <= maxDelayTarget <= {MAX_DELAY_S} must hold"
        )
    phases = policy.numNoDelayRetries + policy.numMinDelayRetries + policy.numMaxDelayRetries
    if phases > policy.numRetries:
        raise DeliveryPolicyError("DeliveryPolicy: the phases have more retries than numRetries")
    if sum(policy.delays_s()) > MAX_TOTAL_S:
        raise DeliveryPolicyError(f"DeliveryPolicy: the retries take more than {MAX_TOTAL_S} s")
