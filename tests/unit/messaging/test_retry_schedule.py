"""Delivery policies: the pauses between attempts."""

import json
from typing import Any

import pytest

from hostelry.messaging.retry_schedule import (
    DeliveryPolicyError,
    RetryPolicy,
    effective_retries,
    subscription_retries,
    topic_retries,
)


@pytest.mark.parametrize(
    ("given", "delays_s"),
    [
        pytest.param({}, [20, 20, 20], id="SNS's default"),
        pytest.param({"numRetries": 0}, [], id="no retry"),
        pytest.param(
            {
                "numRetries": 6,
                "numNoDelayRetries": 2,
                "numMinDelayRetries": 1,
                "numMaxDelayRetries": 1,
                "minDelayTarget": 2,
                "maxDelayTarget": 10,
            },
            [0, 0, 2, 2, 10, 10],
            id="every phase",
        ),
        pytest.param(
            {"numRetries": 3, "minDelayTarget": 10, "maxDelayTarget": 30}, [10, 20, 30], id="linear"
        ),
        pytest.param(
            {
                "numRetries": 3,
                "minDelayTarget": 10,
                "maxDelayTarget": 30,
                "backoffFunction": "arithmetic",
            },
            [10, 15, 30],
            id="arithmetic",
        ),
        pytest.param(
            {
                "numRetries": 3,
                "minDelayTarget": 1,
                "maxDelayTarget": 100,
                "backoffFunction": "geometric",
            },
            [1, 10, 100],
            id="geometric",
        ),
        pytest.param(
            {
                "numRetries": 5,
                "minDelayTarget": 1,
                "maxDelayTarget": 8,
                "backoffFunction": "exponential",
            },
            [1, 2, 4, 8, 8],
            id="exponential",
        ),
        pytest.param({"numRetries": 1, "maxDelayTarget": 30}, [30], id="a single retry"),
    ],
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


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        pytest.param({"numRetries": 101}, "numRetries", id="too many"),
        pytest.param({"minDelayTarget": 30, "maxDelayTarget": 20}, "must hold", id="backwards"),
        pytest.param({"minDelayTarget": 0}, "must hold", id="no pause"),
        pytest.param({"numNoDelayRetries": 4}, "phases", id="phases of more than all"),
        pytest.param({"numRetries": 100, "maxDelayTarget": 3600}, "3600 s", id="over an hour"),
        pytest.param({"numRetries": "3"}, "not valid", id="a text"),
        pytest.param({"numRetries": True}, "not valid", id="a boolean"),
        pytest.param({"backoffFunction": "cubic"}, "not valid", id="an unknown function"),
        pytest.param({"colour": 1}, "colour is not supported", id="an unknown member"),
    ],
)
def test_which_policies_are_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(DeliveryPolicyError, match=reason):
        subscription_retries(json.dumps({"healthyRetryPolicy": given}))
    with pytest.raises(DeliveryPolicyError, match=reason):
        topic_retries(json.dumps({"http": {"defaultHealthyRetryPolicy": given}}))
