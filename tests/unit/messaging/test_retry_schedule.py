"""Delivery policies: the pauses between attempts."""

import json
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.messaging.retry_schedule import (
    DeliveryPolicyError,
    RetryPolicy,
    effective_retries,
    subscription_retries,
    topic_retries,
)


@cases(
    "given, delays_s",
    case("SNS's default", {}, [20, 20, 20]),
    case("no retry", {"numRetries": 0}, []),
    case(
        "every phase",
        {
            "numRetries": 6,
            "numNoDelayRetries": 2,
            "numMinDelayRetries": 1,
            "numMaxDelayRetries": 1,
            "minDelayTarget": 2,
            "maxDelayTarget": 10,
        },
        [0, 0, 2, 2, 10, 10],
    ),
    case("linear", {"numRetries": 3, "minDelayTarget": 10, "maxDelayTarget": 30}, [10, 20, 30]),
    case(
        "arithmetic",
        {
            "numRetries": 3,
            "minDelayTarget": 10,
            "maxDelayTarget": 30,
            "backoffFunction": "arithmetic",
        },
        [10, 15, 30],
    ),
    case(
        "geometric",
        {
            "numRetries": 3,
            "minDelayTarget": 1,
            "maxDelayTarget": 100,
            "backoffFunction": "geometric",
        },
        [1, 10, 100],
    ),
    case(
        "exponential",
        {
            "numRetries": 5,
            "minDelayTarget": 1,
            "maxDelayTarget": 8,
            "backoffFunction": "exponential",
        },
        [1, 2, 4, 8, 8],
    ),
    case("a single retry", {"numRetries": 1, "maxDelayTarget": 30}, [30]),
)
def test_the_pauses_of_a_policy(given: dict[str, Any], delays_s: list[float]) -> None:
    policy = subscription_retries(json.dumps({"healthyRetryPolicy": given}))
    assert policy is not None
    assert list(policy.delays_s()) == pytest.approx(delays_s)


def test_a_subscription_overrides_its_topic_unless_that_forbids_it() -> None:
    own = json.dumps({"healthyRetryPolicy": {"numRetries": 1}})
    of_topic: dict[str, Any] = {"defaultHealthyRetryPolicy": {"numRetries": 2}}
    assert effective_retries(json.dumps({"http": of_topic}), own).numRetries == 1
    assert effective_retries(json.dumps({"http": of_topic}), None).numRetries == 2
    of_topic["disableSubscriptionOverrides"] = True
    assert effective_retries(json.dumps({"http": of_topic}), own).numRetries == 2
    assert effective_retries(None, None) == RetryPolicy()


@cases(
    "given, reason",
    case("too many", {"numRetries": 101}, "numRetries"),
    case("backwards", {"minDelayTarget": 30, "maxDelayTarget": 20}, "must hold"),
    case("no pause", {"minDelayTarget": 0}, "must hold"),
    case("phases of more than all", {"numNoDelayRetries": 4}, "phases"),
    case("over an hour", {"numRetries": 100, "maxDelayTarget": 3600}, "3600 s"),
    case("a text", {"numRetries": "3"}, "not valid"),
    case("a boolean", {"numRetries": True}, "not valid"),
    case("an unknown function", {"backoffFunction": "cubic"}, "not valid"),
    case("an unknown member", {"colour": 1}, "colour is not supported"),
)
def test_which_policies_are_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(DeliveryPolicyError, match=reason):
        subscription_retries(json.dumps({"healthyRetryPolicy": given}))
    with pytest.raises(DeliveryPolicyError, match=reason):
        topic_retries(json.dumps({"http": {"defaultHealthyRetryPolicy": given}}))
