"""SNS's topics and their tags, and the look-ups that subscriptions and messages share."""

import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import ListPaging, order_by_name
from hostelry.api.record_kind import RecordKind
from hostelry.api.tags import TagOperations, parse_tags, read_tags, write_tags
from hostelry.base.errors import ServiceError
from hostelry.domain.messaging import Subscription, Topic
from hostelry.messaging.retry_schedule import DeliveryPolicyError, effective_retries, topic_retries
from hostelry.store.records import Versioned

PENDING = "PendingConfirmation"
MAX_TOPICS = 10_000
MAX_POLICY_BYTES = 30 * 1024
TOPIC_NAME = re.compile(r"[A-Za-z0-9_-]{1,256}")
OWNER_ACTIONS = (
    "GetTopicAttributes",
    "SetTopicAttributes",
    "AddPermission",
    "RemovePermission",
    "DeleteTopic",
    "Subscribe",
    "ListSubscriptionsByTopic",
    "Publish",
)
# The values of unsupported attributes that change nothing, and so are accepted.
WITHOUT_EFFECT: Mapping[str, tuple[str, ...]] = {
    "FifoTopic": ("false",),
    "ContentBasedDeduplication": ("false",),
    "KmsMasterKeyId": ("",),
    "TracingConfig": ("PassThrough",),
    "SignatureVersion": (),
    "ArchivePolicy": ("",),
    "FifoThroughputScope": (),
}
ADVICE: Mapping[str, str] = {
    "FifoTopic": "Topics are standard topics.",
    "KmsMasterKeyId": "Encrypt the disk of the home folder instead.",
    "SignatureVersion": "Messages are not signed.",
}


def invalid(problem: str) -> ServiceError:
    """SNS's error for an invalid parameter."""
    return ServiceError("InvalidParameterException", f"Invalid parameter: {problem}")


def unsupported(field: str, advice: str) -> ServiceError:
    """The error for a field or value that this version does not implement."""
    return invalid(f"{field} is not supported by this version of Hostelry. {advice}".strip())


def topic_not_found() -> ServiceError:
    """SNS's error for a missing topic."""
    return ServiceError("NotFoundException", "Topic does not exist", 404)


TOPICS = RecordKind[Topic](
    records=lambda state: state.topics, not_found=lambda *_: topic_not_found()
)
SUBSCRIPTIONS = RecordKind[Subscription](
    records=lambda state: state.subscriptions,
    not_found=lambda *_: ServiceError("NotFoundException", "Subscription does not exist", 404),
    record_name=lambda subscription: subscription.arn.split(":", 5)[5],
)
LISTS = ListPaging(page_size=100, size_member="", error_code="InvalidParameterException")


def find_topic(context: CallContext, arn: str) -> Versioned[Topic]:
    """The topic with the ARN. Raises NotFoundException."""
    return TOPICS.find(context, _parse_arn(context, arn, "TopicArn"))


def find_subscription(context: CallContext, arn: str) -> Versioned[Subscription]:
    """The subscription with the ARN. Raises NotFoundException."""
    return SUBSCRIPTIONS.find(context, _parse_arn(context, arn, "SubscriptionArn"))


def list_topic_subscriptions(context: CallContext, topic_arn: str) -> list[Versioned[Subscription]]:
    """The subscriptions of a topic."""
    return [it for it in SUBSCRIPTIONS.all(context) if it.value.topic_arn == topic_arn]


def _parse_arn(context: CallContext, arn: str, member: str) -> str:
    """Parse the last part of an ARN. Empty if the ARN is of another account or region."""
    parts = arn.split(":", 5)
    if len(parts) < 6:
        raise invalid(f"{member} Reason: An ARN must have at least 6 elements, not {len(parts)}")
    scope = context.scope
    is_here = parts[:5] == ["arn", "aws", "sns", scope.region, scope.account]
    return parts[5] if is_here else ""


def create_topic(context: CallContext, params: Params) -> Result:
    """CreateTopic. The topic may exist already with the same attributes and tags."""
    name, given = params["Name"], params.get("Attributes") or {}
    if name.endswith(".fifo"):
        raise unsupported("A FIFO topic (Name ending in .fifo)", "Topics are standard topics.")
    if not TOPIC_NAME.fullmatch(name):
        raise invalid("Topic Name")
    if params.get("DataProtectionPolicy"):
        raise unsupported("DataProtectionPolicy", "")
    attributes = dict(filter(None, (_check_attribute(key, value) for key, value in given.items())))
    tags = parse_tags(params.get("Tags"))
    stored = TOPICS.get(context, name)
    if stored is not None:
        _check_same(context, stored.value, attributes, tags)
        return {"TopicArn": stored.value.arn}
    if len(TOPICS.all(context)) >= MAX_TOPICS:
        raise ServiceError("TopicLimitExceededException", f"There are {MAX_TOPICS} topics.", 403)
    topic = Topic(scope=context.scope, name=name, created_at=context.now, attributes=attributes)
    for left in list_topic_subscriptions(context, topic.arn):
        SUBSCRIPTIONS.delete(context, left)  # a DeleteTopic that was killed left it
    write_tags(context, topic.arn, tags)
    TOPICS.put(context, topic)
    return {"TopicArn": topic.arn}


def delete_topic(context: CallContext, params: Params) -> Result:
    """DeleteTopic, with its subscriptions. A missing topic is ignored."""
    stored = TOPICS.get(context, _parse_arn(context, params["TopicArn"], "TopicArn"))
    if stored is None:
        return {}
    write_tags(context, stored.value.arn, {})
    TOPICS.delete(context, stored)
    for subscription in list_topic_subscriptions(context, stored.value.arn):
        SUBSCRIPTIONS.delete(context, subscription)
    return {}


def list_topics(context: CallContext, params: Params) -> Result:
    """ListTopics, 100 per page."""
    rows = order_by_name((it.name, {"TopicArn": it.arn}) for it in TOPICS.values(context))
    return LISTS.answer(context, "ListTopics", params, "Topics", rows)


def get_topic_attributes(context: CallContext, params: Params) -> Result:
    """GetTopicAttributes."""
    topic = find_topic(context, params["TopicArn"]).value
    confirmed = [it.value.is_confirmed for it in list_topic_subscriptions(context, topic.arn)]
    return {
        "Attributes": {
            "TopicArn": topic.arn,
            "Owner": topic.scope.account,
            "DisplayName": "",
            "Policy": json.dumps(_build_default_policy(topic)),
            "EffectiveDeliveryPolicy": _build_effective_policy(topic),
            "SubscriptionsConfirmed": str(sum(confirmed)),
            "SubscriptionsPending": str(len(confirmed) - sum(confirmed)),
            "SubscriptionsDeleted": "0",
            **topic.attributes,
        }
    }


def set_topic_attributes(context: CallContext, params: Params) -> Result:
    """SetTopicAttributes. An empty value restores the default."""
    stored = find_topic(context, params["TopicArn"])
    name, value = params["AttributeName"], params.get("AttributeValue") or ""
    attributes = {key: it for key, it in stored.value.attributes.items() if key != name}
    kept = _check_attribute(name, value)
    if kept is not None:
        attributes[name] = kept[1]
    TOPICS.put(context, replace(stored.value, attributes=attributes), stored)
    return {}


def _check_attribute(name: str, value: str) -> tuple[str, str] | None:
    """The attribute to store, or None for a default. Raises InvalidParameterException."""
    if name in WITHOUT_EFFECT:
        if value not in WITHOUT_EFFECT[name]:
            raise unsupported(f"The topic attribute {name}={value:.100}", ADVICE.get(name, ""))
        return None
    if name == "DisplayName":
        if len(value) > 100:
            raise invalid("Attributes Reason: DisplayName must be at most 100 characters")
    elif name == "Policy":
        _check_policy(value)
    elif name == "DeliveryPolicy":
        try:
            topic_retries(value)
        except DeliveryPolicyError as error:
            raise invalid(f"Attributes Reason: {error}") from None
    elif name.endswith(("FeedbackRoleArn", "FeedbackSampleRate")):
        if value in ("", "0"):  # no logging: Terraform sends this for each protocol
            return None
        raise unsupported(f"The topic attribute {name}", "Metrics of AWS/SNS count deliveries.")
    else:
        raise invalid("AttributeName")
    return (name, value) if value else None


def _check_policy(text: str) -> None:
    if not text:
        return
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or len(text.encode()) > MAX_POLICY_BYTES:
        raise invalid("Policy Error: null")


def _build_default_policy(topic: Topic) -> Mapping[str, Any]:
    """SNS's policy of a topic without its own."""
    return {
        "Version": "2008-10-17",
        "Id": "__default_policy_ID",
        "Statement": [
            {
                "Sid": "__default_statement_ID",
                "Effect": "Allow",
                "Principal": {"AWS": "*"},
                "Action": [f"SNS:{it}" for it in OWNER_ACTIONS],
                "Resource": topic.arn,
                "Condition": {"StringEquals": {"AWS:SourceOwner": topic.scope.account}},
            }
        ],
    }


def _build_effective_policy(topic: Topic) -> str:
    text = topic.attributes.get("DeliveryPolicy")
    _, may_override = topic_retries(text)
    http = {
        "defaultHealthyRetryPolicy": effective_retries(text, None).members(),
        "disableSubscriptionOverrides": not may_override,
        "defaultRequestPolicy": {"headerContentType": "text/plain; charset=UTF-8"},
    }
    return json.dumps({"http": http})


def _check_same(
    context: CallContext, topic: Topic, attributes: Mapping[str, str], tags: Mapping[str, str]
) -> None:
    if any(topic.attributes.get(key) != value for key, value in attributes.items()):
        raise invalid("Attributes Reason: Topic already exists with different attributes")
    if tags and dict(read_tags(context, topic.arn)) != dict(tags):
        raise invalid("Tags Reason: Topic already exists with different tags")


def _find_tagged(context: CallContext, params: Params) -> str:
    stored = TOPICS.get(context, _parse_arn(context, params["ResourceArn"], "TopicArn"))
    if stored is None:
        raise ServiceError("ResourceNotFoundException", "Resource does not exist", 404)
    return stored.value.arn


TAGS = TagOperations(find_arn=_find_tagged)
