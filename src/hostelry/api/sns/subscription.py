"""Subscriptions of SNS: made, confirmed, listed and removed. Their attributes."""

import hmac
import json
import re
import secrets
import uuid
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import order_by_name
from hostelry.api.rights import check_delivery, is_own
from hostelry.api.sns.topic import (
    LISTS,
    PENDING,
    SUBSCRIPTIONS,
    find_subscription,
    find_topic,
    invalid,
    list_topic_subscriptions,
    unsupported,
)
from hostelry.base.errors import ServiceError
from hostelry.domain.messaging import Subscription, SubscriptionProtocol
from hostelry.messaging.failed_delivery import queue_at
from hostelry.messaging.filter_policy import (
    ATTRIBUTE_SCOPE,
    BODY_SCOPE,
    FilterPolicyError,
    read_policy,
)
from hostelry.messaging.line_files import is_file_name
from hostelry.messaging.retry_schedule import (
    DeliveryPolicyError,
    effective_retries,
    subscription_retries,
)
from hostelry.scaling.decide.alarm_events import TargetKind, get_target_kind
from hostelry.store.records import Versioned

MAX_SUBSCRIPTIONS = 1000  # of a topic
TOKEN_LIFE_S = 3 * 24 * 3600.0
QUEUE_ARN = re.compile(r"arn:aws:sqs:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,80}")
INSTEAD = "Subscribe with the protocol http, https, sqs, or file (a .jsonl file of topics/)"
UNSUPPORTED_PROTOCOLS = ("email", "email-json", "sms", "lambda", "application", "firehose")
UNSUPPORTED_ATTRIBUTES = ("SubscriptionRoleArn", "ReplayPolicy")


def subscribe(context: CallContext, params: Params) -> Result:
    """Subscribe: asks a web address to confirm, unless the operator trusts it."""
    topic = find_topic(context, params["TopicArn"]).value
    protocol = _parse_protocol(params["Protocol"])
    endpoint = params.get("Endpoint") or ""
    _check_endpoint(context, protocol, endpoint)
    attributes = _check_attributes(context, params.get("Attributes") or {})
    shows_arn = bool(params.get("ReturnSubscriptionArn"))
    others = list_topic_subscriptions(context, topic.arn)
    for stored in others:
        if (stored.value.protocol, stored.value.endpoint) == (protocol, endpoint):
            return _answer_again(context, stored.value, attributes, shows_arn)
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
    return _announce(context, SUBSCRIPTIONS.put(context, made), shows_arn)


def _answer_again(
    context: CallContext, present: Subscription, attributes: dict[str, str], shows_arn: bool
) -> Result:
    if attributes and attributes != dict(present.attributes):
        raise invalid("Attributes Reason: Subscription already exists with different attributes")
    return _announce(context, present, shows_arn)


def _announce(context: CallContext, subscription: Subscription, shows_arn: bool) -> Result:
    """Ask an unconfirmed web address to confirm, and build the answer of Subscribe."""
    if subscription.is_confirmed:
        return {"SubscriptionArn": subscription.arn}
    context.messages.topics.ask_to_confirm(subscription)
    return {"SubscriptionArn": subscription.arn if shows_arn else "pending confirmation"}


def confirm_subscription(context: CallContext, params: Params) -> Result:
    """ConfirmSubscription: the token is the proof, and may be used again."""
    topic = find_topic(context, params["TopicArn"]).value
    token = params["Token"]
    for stored in list_topic_subscriptions(context, topic.arn):
        present = stored.value
        if not present.token or not hmac.compare_digest(present.token.encode(), token.encode()):
            continue
        if present.is_confirmed:
            return {"SubscriptionArn": present.arn}
        if context.now >= present.token_until:
            break
        is_authenticated = params.get("AuthenticateOnUnsubscribe") == "true"
        confirmed = replace(present, is_confirmed=True, is_authenticated=is_authenticated)
        SUBSCRIPTIONS.put(context, confirmed, stored)
        return {"SubscriptionArn": present.arn}
    raise invalid("Token")


def unsubscribe(context: CallContext, params: Params) -> Result:
    """Unsubscribe. A missing subscription is ignored.

    Deliveries that wait for it are dropped at the next attempt.
    """
    try:
        SUBSCRIPTIONS.delete(context, find_subscription(context, params["SubscriptionArn"]))
    except ServiceError as error:
        if error.code != "NotFoundException":
            raise
    return {}


def list_subscriptions(context: CallContext, params: Params) -> Result:
    """ListSubscriptions, 100 per page."""
    return _list(context, "ListSubscriptions", params, SUBSCRIPTIONS.all(context))


def list_subscriptions_by_topic(context: CallContext, params: Params) -> Result:
    """ListSubscriptionsByTopic, 100 per page."""
    topic = find_topic(context, params["TopicArn"]).value
    return _list(
        context, "ListSubscriptionsByTopic", params, list_topic_subscriptions(context, topic.arn)
    )


def _list(
    context: CallContext, operation: str, params: Params, stored: Iterable[Versioned[Subscription]]
) -> Result:
    rows = order_by_name((it.value.arn, _summarize(it.value)) for it in stored)
    return LISTS.answer(context, operation, params, "Subscriptions", rows)


def _summarize(subscription: Subscription) -> Result:
    return {
        "SubscriptionArn": subscription.arn if subscription.is_confirmed else PENDING,
        "Owner": subscription.scope.account,
        "Protocol": subscription.protocol.value,
        "Endpoint": subscription.endpoint,
        "TopicArn": subscription.topic_arn,
    }


def _parse_protocol(name: str) -> SubscriptionProtocol:
    if name in UNSUPPORTED_PROTOCOLS:
        raise unsupported(f"The protocol {name}", INSTEAD + ".")
    try:
        return SubscriptionProtocol(name)
    except ValueError:
        raise invalid(f"Does not support this protocol string: {name:.100}") from None


def _check_endpoint(context: CallContext, protocol: SubscriptionProtocol, endpoint: str) -> None:
    """Raise InvalidParameterException if the protocol cannot deliver to `endpoint`."""
    if protocol.is_web:
        if not endpoint.startswith(f"{protocol.value}://"):
            raise invalid("Endpoint must match the specified protocol")
        if get_target_kind(endpoint) is not TargetKind.ADDRESS:
            raise invalid(f"{protocol.value.upper()} Endpoint Reason: it is no web address")
        refusal = context.messages.address_refusal(endpoint)
        if refusal is not None:
            raise invalid(f"Endpoint Reason: {refusal}")
    elif protocol is SubscriptionProtocol.SQS:
        if not QUEUE_ARN.fullmatch(endpoint) or not is_own(context, endpoint):
            raise invalid("SQS endpoint ARN")
        check_delivery(context, endpoint)
    elif not context.is_first_account:
        raise invalid("Endpoint Reason: only the platform's first account writes to files")
    elif not is_file_name(endpoint):
        raise invalid(
            "Endpoint Reason: the protocol file takes the name of a file of the folder of topics:"
            " letters, digits, - and _, then .jsonl"
        )


def get_subscription_attributes(context: CallContext, params: Params) -> Result:
    """GetSubscriptionAttributes."""
    found = find_subscription(context, params["SubscriptionArn"]).value
    shown = {
        "SubscriptionArn": found.arn,
        "TopicArn": found.topic_arn,
        "Owner": found.scope.account,
        "Protocol": found.protocol.value,
        "Endpoint": found.endpoint,
        "PendingConfirmation": _to_text(not found.is_confirmed),
        "ConfirmationWasAuthenticated": _to_text(found.is_authenticated),
        "SubscriptionPrincipal": f"arn:aws:iam::{found.scope.account}:root",
        "RawMessageDelivery": "false",
        **found.attributes,
    }
    if "FilterPolicy" in found.attributes:
        shown.setdefault("FilterPolicyScope", ATTRIBUTE_SCOPE)
    if found.protocol.is_web:
        shown["EffectiveDeliveryPolicy"] = _build_effective_policy(context, found)
    return {"Attributes": shown}


def set_subscription_attributes(context: CallContext, params: Params) -> Result:
    """SetSubscriptionAttributes. An empty value removes the attribute."""
    stored = find_subscription(context, params["SubscriptionArn"])
    name, value = params["AttributeName"], params.get("AttributeValue") or ""
    attributes = _check_attributes(context, {**stored.value.attributes, name: value})
    changed = replace(stored.value, attributes=attributes)
    SUBSCRIPTIONS.put(context, changed, stored)
    return {}


def _check_attributes(context: CallContext, given: Mapping[str, str]) -> dict[str, str]:
    """The attributes to store. Raises InvalidParameterException."""
    for name, value in given.items():
        _check_attribute(context, name, value)
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


def _check_attribute(context: CallContext, name: str, value: str) -> None:
    if name == "RawMessageDelivery":
        if value.lower() not in ("true", "false", ""):
            raise invalid(f"Attributes Reason: {name}: Invalid value [{value:.50}].")
    elif name == "RedrivePolicy":
        _check_redrive(context, value)
    elif name == "DeliveryPolicy":
        try:
            subscription_retries(value)
        except DeliveryPolicyError as error:
            raise invalid(f"Attributes Reason: {error}") from None
    elif name in UNSUPPORTED_ATTRIBUTES:
        if value:
            raise unsupported(f"The subscription attribute {name}", "")
    elif name not in ("FilterPolicy", "FilterPolicyScope"):
        raise invalid("AttributeName")


def _check_redrive(context: CallContext, text: str) -> None:
    if not text:
        return
    try:
        content = json.loads(text)
        target = content.get("deadLetterTargetArn")
    except (ValueError, AttributeError, RecursionError):
        raise invalid("RedrivePolicy: failed to parse JSON.") from None
    if not isinstance(target, str) or set(content) != {"deadLetterTargetArn"}:
        raise invalid("RedrivePolicy: must have deadLetterTargetArn, and no other member")
    if queue_at(context.state, target, context.scope.account) is None:
        raise invalid(f"RedrivePolicy: there is no queue {target:.300}")


def _build_effective_policy(context: CallContext, subscription: Subscription) -> str:
    name = subscription.topic_arn.split(":", 5)[5]
    topic = context.state.topics.get(context.scope, name)
    of_topic = None if topic is None else topic.value.attributes.get("DeliveryPolicy")
    own = subscription.attributes.get("DeliveryPolicy")
    return json.dumps({"healthyRetryPolicy": effective_retries(of_topic, own).members()})


def _to_text(value: bool) -> str:
    return "true" if value else "false"
