"""Attributes of subscriptions."""

import json
from collections.abc import Mapping
from dataclasses import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.sns.found import invalid, subscription_at, subscription_name, unserved
from hostelry.domain.topic import Subscription
from hostelry.messaging.failed_delivery import queue_at
from hostelry.messaging.filter_policy import (
    ATTRIBUTE_SCOPE,
    BODY_SCOPE,
    FilterPolicyError,
    read_policy,
)
from hostelry.messaging.retry_schedule import (
    DeliveryPolicyError,
    effective_retries,
    subscription_retries,
)

UNSERVED = ("SubscriptionRoleArn", "ReplayPolicy")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "RawMessageDelivery": ("true", "false", ""),
}


def get_subscription_attributes(context: CallContext, params: Params) -> Result:
    """GetSubscriptionAttributes."""
    found = subscription_at(context, params["SubscriptionArn"]).value
    shown = {
        "SubscriptionArn": found.arn,
        "TopicArn": found.topic_arn,
        "Owner": found.scope.account,
        "Protocol": found.protocol.value,
        "Endpoint": found.endpoint,
        "PendingConfirmation": text_of(not found.is_confirmed),
        "ConfirmationWasAuthenticated": text_of(found.is_authenticated),
        "SubscriptionPrincipal": f"arn:aws:iam::{found.scope.account}:root",
        "RawMessageDelivery": "false",
        **found.attributes,
    }
    if "FilterPolicy" in found.attributes:
        shown.setdefault("FilterPolicyScope", ATTRIBUTE_SCOPE)
    if found.protocol.is_web:
        shown["EffectiveDeliveryPolicy"] = effective_policy(context, found)
    return {"Attributes": shown}


def set_subscription_attributes(context: CallContext, params: Params) -> Result:
    """SetSubscriptionAttributes; an empty value takes the attribute away."""
    stored = subscription_at(context, params["SubscriptionArn"])
    name, value = params["AttributeName"], params.get("AttributeValue") or ""
    attributes = checked_attributes(context, {**stored.value.attributes, name: value})
    changed = replace(stored.value, attributes=attributes)
    context.state.subscriptions.put(
        context.scope, subscription_name(changed), changed, expect=stored.version
    )
    return {}


def checked_attributes(context: CallContext, given: Mapping[str, str]) -> dict[str, str]:
    """The attributes to keep; raises InvalidParameter."""
    for name, value in given.items():
        check(context, name, value)
    scope = given.get("FilterPolicyScope") or ATTRIBUTE_SCOPE
    if scope not in (ATTRIBUTE_SCOPE, BODY_SCOPE):
        raise invalid(f"Attributes Reason: FilterPolicyScope: Invalid value [{scope:.50}].")
    if given.get("FilterPolicy"):
        try:
            read_policy(given["FilterPolicy"], scope)
        except FilterPolicyError as error:
            raise invalid(f"FilterPolicy: {error}") from None
    kept = {name: value for name, value in given.items() if value and value != "{}"}
    if "RawMessageDelivery" in kept:
        kept["RawMessageDelivery"] = kept["RawMessageDelivery"].lower()
    return kept


def check(context: CallContext, name: str, value: str) -> None:
    """Raise InvalidParameter for a value that the attribute cannot have; "" is none."""
    if name in CHOICES:
        if value.lower() not in CHOICES[name]:
            raise invalid(f"Attributes Reason: {name}: Invalid value [{value:.50}].")
    elif name == "RedrivePolicy":
        check_redrive(context, value)
    elif name == "DeliveryPolicy":
        try:
            subscription_retries(value)
        except DeliveryPolicyError as error:
            raise invalid(f"Attributes Reason: {error}") from None
    elif name in UNSERVED:
        if value:
            raise unserved(f"The subscription attribute {name}", "")
    elif name not in ("FilterPolicy", "FilterPolicyScope"):
        raise invalid("AttributeName")


def check_redrive(context: CallContext, text: str) -> None:
    """Raise InvalidParameter where a RedrivePolicy names no queue of this platform."""
    if not text:
        return
    try:
        content = json.loads(text)
        target = content.get("deadLetterTargetArn")
    except (ValueError, AttributeError, RecursionError):
        raise invalid("RedrivePolicy: failed to parse JSON.") from None
    if not isinstance(target, str) or set(content) != {"deadLetterTargetArn"}:
        raise invalid("RedrivePolicy: must have deadLetterTargetArn, and no other member")
    if queue_at(context.state, target) is None:
        raise invalid(f"RedrivePolicy: there is no queue {target:.300}")


def effective_policy(context: CallContext, subscription: Subscription) -> str:
    """The delivery policy in force, in SNS's form."""
    name = subscription.topic_arn.split(":", 5)[5]
    topic = context.state.topics.get(context.scope, name)
    of_topic = None if topic is None else topic.value.attributes.get("DeliveryPolicy")
    own = subscription.attributes.get("DeliveryPolicy")
    return json.dumps({"healthyRetryPolicy": effective_retries(of_topic, own).members()})


def text_of(value: bool) -> str:
    """A flag in SNS's form."""
    return "true" if value else "false"
