"""Kinds of alarm actions: a scaling policy, a topic, or a web address.

Source: AlarmActions of PutMetricAlarm in the CloudWatch API reference.
"""

import re
from enum import Enum
from urllib.parse import urlsplit

POLICY = re.compile(
    r"arn:[\w-]+:autoscaling:[\w-]+:\d{12}:scalingPolicy:[^:]+:resource/sagemaker/.+:policyName/.+"
)
TOPIC = re.compile(r"arn:[\w-]+:sns:[\w-]+:\d{12}:[A-Za-z0-9_-]{1,256}(\.fifo)?")


class TargetKind(Enum):
    """How an action is done."""

    POLICY = "a scaling policy"
    TOPIC = "a topic"
    ADDRESS = "a web address"


def target_kind(action: str) -> TargetKind | None:
    """What `action` names; None where it is nothing that can be done here."""
    if POLICY.fullmatch(action):
        return TargetKind.POLICY
    if TOPIC.fullmatch(action):
        return TargetKind.TOPIC
    return TargetKind.ADDRESS if _is_address(action) else None


def _is_address(action: str) -> bool:
    if not action.isprintable() or " " in action:
        return False
    try:
        parts = urlsplit(action)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
