"""Subscriptions: made, confirmed, listed, removed."""

import hmac
import re
import secrets
import uuid
from collections.abc import Iterable
from dataclasses import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import PageTokens, page_of
from hostelry.api.sns.found import (
    PENDING,
    invalid,
    subscription_at,
    subscription_name,
    subscriptions_of,
    topic_at,
    unserved,
)
from hostelry.api.sns.subscription_attributes import checked_attributes
from hostelry.base.errors import ServiceError
from hostelry.domain.topic import Subscription, SubscriptionProtocol
from hostelry.messaging.line_files import is_file_name
from hostelry.scaling.decide.alarm_target import TargetKind, target_kind
from hostelry.store.records import Versioned

MAX_SUBSCRIPTIONS = 1000  # of a topic
PAGE_SIZE = 100
TOKEN_LIFE_S = 3 * 24 * 3600.0
QUEUE_ARN = re.compile(r"arn:aws:sqs:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,80}")
INSTEAD = "Subscribe with the protocol http, https, sqs, or file (a .jsonl file of topics/)"
UNSERVED = ("email", "email-json", "sms", "lambda", "application", "firehose")


def subscribe(context: CallContext, params: Params) -> Result:
    """Subscribe: a web address is asked to confirm, unless the operator trusts it."""
    topic = topic_at(context, params["TopicArn"]).value
    protocol = protocol_of(params["Protocol"])
    endpoint = params.get("Endpoint") or ""
    check_endpoint(context, protocol, endpoint)
    attributes = checked_attributes(context, params.get("Attributes") or {})
    shows_arn = bool(params.get("ReturnSubscriptionArn"))
    others = subscriptions_of(context, topic.arn)
    for stored in others:
        if (stored.value.protocol, stored.value.endpoint) == (protocol, endpoint):
            return again(context, stored.value, attributes, shows_arn)
    if len(others) >= MAX_SUBSCRIPTIONS:
        reason = f"{topic.arn} has {MAX_SUBSCRIPTIONS} subscriptions."
        raise ServiceError("SubscriptionLimitExceededException", reason, 403)
    confirmed = not protocol.is_web or context.messages.is_trusted(endpoint)
    made = Subscription(
        scope=context.scope,
        arn=f"{topic.arn}:{uuid.uuid4()}",
        topic_arn=topic.arn,
        protocol=protocol,
        endpoint=endpoint,
        created_at=context.now,
        is_confirmed=confirmed,
        token="" if confirmed else secrets.token_hex(64),
        token_until=context.now + TOKEN_LIFE_S,
        is_authenticated=confirmed,
        attributes=attributes,
    )
    context.state.subscriptions.put(context.scope, subscription_name(made), made, expect=None)
    return announced(context, made, shows_arn)


def again(
    context: CallContext, present: Subscription, attributes: dict[str, str], shows_arn: bool
) -> Result:
    """The answer to a second Subscribe of an endpoint."""
    if attributes and attributes != dict(present.attributes):
        raise invalid("Attributes Reason: Subscription already exists with different attributes")
    return announced(context, present, shows_arn)


def announced(context: CallContext, subscription: Subscription, shows_arn: bool) -> Result:
    """The answer to a Subscribe, after an address that has to was asked to confirm."""
    if subscription.is_confirmed:
        return {"SubscriptionArn": subscription.arn}
    context.messages.topics.ask_to_confirm(subscription)
    return {"SubscriptionArn": subscription.arn if shows_arn else "pending confirmation"}


def confirm_subscription(context: CallContext, params: Params) -> Result:
    """ConfirmSubscription: the token is the proof; one that was used before is no error."""
    topic = topic_at(context, params["TopicArn"]).value
    token = params["Token"]
    for stored in subscriptions_of(context, topic.arn):
        present = stored.value
        if not present.token or not hmac.compare_digest(present.token.encode(), token.encode()):
            continue
        if present.is_confirmed:
            return {"SubscriptionArn": present.arn}
        if context.now >= present.token_until:
            break
        is_authenticated = params.get("AuthenticateOnUnsubscribe") == "true"
        confirmed = replace(present, is_confirmed=True, is_authenticated=is_authenticated)
        name = subscription_name(present)
        context.state.subscriptions.put(context.scope, name, confirmed, expect=stored.version)
        return {"SubscriptionArn": present.arn}
    raise invalid("Token")


def unsubscribe(context: CallContext, params: Params) -> Result:
    """Unsubscribe: a subscription that is not there is no error."""
    try:
        remove(context, subscription_at(context, params["SubscriptionArn"]))
    except ServiceError as error:
        if error.code != "NotFoundException":
            raise
    return {}


def list_subscriptions(context: CallContext, params: Params) -> Result:
    """ListSubscriptions, 100 a page."""
    return page(
        context, "ListSubscriptions", params, context.state.subscriptions.list(context.scope)
    )


def list_subscriptions_by_topic(context: CallContext, params: Params) -> Result:
    """ListSubscriptionsByTopic, 100 a page."""
    topic = topic_at(context, params["TopicArn"]).value
    return page(context, "ListSubscriptionsByTopic", params, subscriptions_of(context, topic.arn))


def page(
    context: CallContext, operation: str, params: Params, stored: Iterable[Versioned[Subscription]]
) -> Result:
    """One page of a list of subscriptions."""
    rows = [((it.value.arn, it.value.arn), summary(it.value)) for it in stored]
    tokens = PageTokens(context, operation, params, "InvalidParameterException")
    found, following = page_of(tokens, rows, PAGE_SIZE)
    return {"Subscriptions": found, **following}


def summary(subscription: Subscription) -> Result:
    """A subscription in lists."""
    return {
        "SubscriptionArn": subscription.arn if subscription.is_confirmed else PENDING,
        "Owner": subscription.scope.account,
        "Protocol": subscription.protocol.value,
        "Endpoint": subscription.endpoint,
        "TopicArn": subscription.topic_arn,
    }


def remove(context: CallContext, stored: Versioned[Subscription]) -> None:
    """Delete a subscription; what waits for it is forgotten at the next attempt."""
    name = subscription_name(stored.value)
    context.state.subscriptions.delete(context.scope, name, expect=stored.version)


def protocol_of(name: str) -> SubscriptionProtocol:
    """The protocol of that name; raises InvalidParameter."""
    if name in UNSERVED:
        raise unserved(f"The protocol {name}", INSTEAD + ".")
    try:
        return SubscriptionProtocol(name)
    except ValueError:
        raise invalid(f"Does not support this protocol string: {name:.100}") from None


def check_endpoint(context: CallContext, protocol: SubscriptionProtocol, endpoint: str) -> None:
    """Raise InvalidParameter where `endpoint` is nothing that the protocol delivers to."""
    if protocol.is_web:
        if not endpoint.startswith(f"{protocol.value}://"):
            raise invalid("Endpoint must match the specified protocol")
        if target_kind(endpoint) is not TargetKind.ADDRESS:
            raise invalid(f"{protocol.value.upper()} Endpoint Reason: it is no web address")
        refusal = context.messages.address_refusal(endpoint)
        if refusal is not None:
            raise invalid(f"Endpoint Reason: {refusal}")
    elif protocol is SubscriptionProtocol.SQS:
        if not QUEUE_ARN.fullmatch(endpoint):
            raise invalid("SQS endpoint ARN")
    elif not is_file_name(endpoint):
        raise invalid(
            "Endpoint Reason: the protocol file takes the name of a file of the folder of topics:"
            " letters, digits, - and _, then .jsonl"
        )
