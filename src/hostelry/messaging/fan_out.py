"""Fan-out: which subscriptions get a message, and what each gets. PURE.

subscription                  gets
not confirmed                 nothing
its filter policy fails       nothing
raw delivery                  the message's text; a queue also its attributes
else                          SNS's JSON
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hostelry.domain.queue import AttributeValue
from hostelry.domain.topic import Subscription, SubscriptionProtocol
from hostelry.messaging.envelope import TopicMessage, headers_of, notification_text
from hostelry.messaging.filter_policy import ATTRIBUTE_SCOPE, passes_filter, read_policy

MAX_RAW_ATTRIBUTES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message for one subscription; `problem` says why it cannot be delivered at all."""

    subscription: Subscription
    message_id: str
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    problem: str | None = None


def fan_out(
    message: TopicMessage,
    subscriptions: Iterable[Subscription],
    gateway_url: str,
    check: Callable[[], None] = lambda: None,
) -> Sequence[Outgoing]:
    """What each subscription that gets `message` gets; `check` may raise between steps."""
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
    """What this subscription gets."""
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
            headers_of(subscription, "Notification", message.id)
            if subscription.protocol.is_web
            else {}
        ),
        attributes=message.attributes if is_queue and is_raw else {},
        problem=problem,
    )
