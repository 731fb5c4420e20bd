"""Fan-out: the subscriptions that get a message, and the message for each. PURE."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import msgspec

from hostelry.domain.messaging import AttributeValue, Subscription, SubscriptionProtocol
from hostelry.messaging.filter_policy import ATTRIBUTE_SCOPE, passes_filter, read_policy

# The JSON and the headers in which SNS sends messages to subscribers.
#
# Messages are not signed, so Signature, SigningCertURL and SignatureVersion are left out.
#
# Source: Amazon SNS Developer Guide, "HTTP/HTTPS notification JSON format" and "HTTP headers".


DEFAULT_BODY = "default"


class TopicMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A published message. `bodies` has the text `default`, and texts for single protocols."""

    id: str
    topic_arn: str
    subject: str | None
    bodies: Mapping[str, str]
    attributes: Mapping[str, AttributeValue] = msgspec.field(default_factory=dict)
    at: float

    def body_for(self, protocol: SubscriptionProtocol) -> str:
        """The text that subscribers by `protocol` get."""
        return self.bodies.get(protocol.value, self.bodies[DEFAULT_BODY])


def notification_text(message: TopicMessage, subscription: Subscription, gateway_url: str) -> str:
    """The JSON of a notification."""
    attributes = {
        name: {"Type": it.kind, "Value": it.value} for name, it in message.attributes.items()
    }
    unsubscribe = {"Action": "Unsubscribe", "SubscriptionArn": subscription.arn}
    content: dict[str, Any] = {
        "Type": "Notification",
        "MessageId": message.id,
        "TopicArn": message.topic_arn,
        "Subject": message.subject,
        "Message": message.body_for(subscription.protocol),
        "Timestamp": instant_text(message.at),
        "UnsubscribeURL": _url(gateway_url, unsubscribe),
        "MessageAttributes": attributes or None,
    }
    return json.dumps({name: it for name, it in content.items() if it is not None}, indent=2)


def confirmation_text(
    subscription: Subscription, message_id: str, at: float, gateway_url: str
) -> str:
    """The JSON that asks an address to confirm its subscription."""
    confirm = {
        "Action": "ConfirmSubscription",
        "TopicArn": subscription.topic_arn,
        "Token": subscription.token,
    }
    content = {
        "Type": "SubscriptionConfirmation",
        "MessageId": message_id,
        "Token": subscription.token,
        "TopicArn": subscription.topic_arn,
        "Message": (
            f"You have chosen to subscribe to the topic {subscription.topic_arn}.\n"
            "To confirm the subscription, visit the SubscribeURL included in this message."
        ),
        "SubscribeURL": _url(gateway_url, confirm),
        "Timestamp": instant_text(at),
    }
    return json.dumps(content, indent=2)


def build_headers(subscription: Subscription, kind: str, message_id: str) -> Mapping[str, str]:
    """Build the headers of a POST. `kind` is Notification or SubscriptionConfirmation."""
    is_notification = kind == "Notification"
    headers = {
        "Content-Type": "text/plain; charset=UTF-8",
        "User-Agent": "Amazon Simple Notification Service Agent (Hostelry)",
        "x-amz-sns-message-type": kind,
        "x-amz-sns-message-id": message_id,
        "x-amz-sns-topic-arn": subscription.topic_arn,
    }
    if is_notification:
        headers["x-amz-sns-subscription-arn"] = subscription.arn
    if is_notification and subscription.is_raw:
        headers["x-amz-sns-rawdelivery"] = "true"
    return headers


def instant_text(at: float) -> str:
    """`at` as in 2026-01-31T12:00:00.000Z."""
    return (
        datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.")
        + f"{int(at * 1e3) % 1000:03d}Z"
    )


def _url(gateway_url: str, fields: Mapping[str, str]) -> str:
    return f"{gateway_url}/?{urlencode({**fields, 'Version': '2010-03-31'})}"


MAX_RAW_ATTRIBUTES = 10


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A message for one subscription. `problem` says why it can never be delivered."""

    subscription: Subscription
    message_id: str
    body: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    attributes: Mapping[str, AttributeValue] = msgspec.field(default_factory=dict)
    problem: str | None = None


def fan_out(
    message: TopicMessage,
    subscriptions: Iterable[Subscription],
    gateway_url: str,
    check: Callable[[], None] = lambda: None,
) -> Sequence[Outgoing]:
    """Build the message for each subscription that gets one. `check` may raise between steps.

    The content that each subscription gets:

    subscription                  content
    not confirmed                 nothing
    its filter policy fails       nothing
    with raw delivery             the message's text, and for a queue its attributes
    any other                     SNS's JSON
    """
    return [
        outgoing(message, subscription, gateway_url)
        for subscription in subscriptions
        if subscription.is_confirmed and is_wanted(message, subscription, check)
    ]


def is_wanted(
    message: TopicMessage, subscription: Subscription, check: Callable[[], None] = lambda: None
) -> bool:
    """Whether the message passes the subscription's filter policy."""
    text = subscription.attributes.get("FilterPolicy")
    if not text:
        return True
    scope = subscription.attributes.get("FilterPolicyScope", ATTRIBUTE_SCOPE)
    attributes = {name: (it.kind, it.value) for name, it in message.attributes.items()}
    body = message.body_for(subscription.protocol)
    return passes_filter(read_policy(text, scope), scope, attributes, body, check)


def outgoing(message: TopicMessage, subscription: Subscription, gateway_url: str) -> Outgoing:
    """Build the message for this subscription."""
    is_queue = subscription.protocol is SubscriptionProtocol.SQS
    is_raw = subscription.is_raw
    problem = None
    if is_queue and is_raw and len(message.attributes) > MAX_RAW_ATTRIBUTES:
        problem = f"raw delivery to a queue takes {MAX_RAW_ATTRIBUTES} attributes at most"
    return Outgoing(
        subscription=subscription,
        message_id=message.id,
        body=(
            message.body_for(subscription.protocol)
            if is_raw
            else notification_text(message, subscription, gateway_url)
        ),
        headers=(
            build_headers(subscription, "Notification", message.id)
            if subscription.protocol.is_web
            else {}
        ),
        attributes=message.attributes if is_queue and is_raw else {},
        problem=problem,
    )
