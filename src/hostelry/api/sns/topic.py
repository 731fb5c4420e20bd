"""Topics."""

import json
import re
from collections.abc import Mapping
from typing import Any

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import PageTokens, page_of
from hostelry.api.sns.found import invalid, subscriptions_of, topic_at, unserved
from hostelry.api.sns.subscription import remove
from hostelry.api.tags import read_tags, tags_of, write_tags
from hostelry.base.errors import ServiceError
from hostelry.domain.topic import Topic
from hostelry.messaging.retry_schedule import DeliveryPolicyError, effective_retries, topic_retries

MAX_TOPICS = 10_000
PAGE_SIZE = 100
MAX_POLICY_BYTES = 30 * 1024
NAME = re.compile(r"[A-Za-z0-9_-]{1,256}")
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
# What an attribute that is not served may be set to, since it changes nothing.
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


def create_topic(context: CallContext, params: Params) -> Result:
    """CreateTopic: the topic of that name, which may exist with the same attributes and tags."""
    name, given = params["Name"], params.get("Attributes") or {}
    if name.endswith(".fifo"):
        raise unserved("A FIFO topic (Name ending in .fifo)", "Topics are standard topics.")
    if not NAME.fullmatch(name):
        raise invalid("Topic Name")
    if params.get("DataProtectionPolicy"):
        raise unserved("DataProtectionPolicy", "")
    attributes = dict(filter(None, (checked(key, value) for key, value in given.items())))
    tags = tags_of(params.get("Tags"))
    stored = context.state.topics.get(context.scope, name)
    if stored is not None:
        _check_same(context, stored.value, attributes, tags)
        return {"TopicArn": stored.value.arn}
    if len(context.state.topics.list(context.scope)) >= MAX_TOPICS:
        raise ServiceError("TopicLimitExceededException", f"There are {MAX_TOPICS} topics.", 403)
    made = Topic(scope=context.scope, name=name, created_at=context.now, attributes=attributes)
    for left in subscriptions_of(context, made.arn):
        remove(context, left)  # a DeleteTopic that was killed left it
    write_tags(context, made.arn, tags)
    context.state.topics.put(context.scope, name, made, expect=None)
    return {"TopicArn": made.arn}


def delete_topic(context: CallContext, params: Params) -> Result:
    """DeleteTopic: with its subscriptions; a topic that is not there is no error."""
    try:
        stored = topic_at(context, params["TopicArn"])
    except ServiceError as error:
        if error.code == "NotFoundException":
            return {}
        raise
    write_tags(context, stored.value.arn, {})
    context.state.topics.delete(context.scope, stored.value.name, expect=stored.version)
    for subscription in subscriptions_of(context, stored.value.arn):
        remove(context, subscription)
    return {}


def list_topics(context: CallContext, params: Params) -> Result:
    """ListTopics, 100 a page."""
    rows = [
        ((stored.value.name, stored.value.name), {"TopicArn": stored.value.arn})
        for stored in context.state.topics.list(context.scope)
    ]
    tokens = PageTokens(context, "ListTopics", params, "InvalidParameterException")
    page, following = page_of(tokens, rows, PAGE_SIZE)
    return {"Topics": page, **following}


def get_topic_attributes(context: CallContext, params: Params) -> Result:
    """GetTopicAttributes."""
    topic = topic_at(context, params["TopicArn"]).value
    confirmed = [it.value.is_confirmed for it in subscriptions_of(context, topic.arn)]
    return {
        "Attributes": {
            "TopicArn": topic.arn,
            "Owner": topic.scope.account,
            "DisplayName": "",
            "Policy": json.dumps(default_policy(topic)),
            "EffectiveDeliveryPolicy": effective_policy(topic),
            "SubscriptionsConfirmed": str(sum(confirmed)),
            "SubscriptionsPending": str(len(confirmed) - sum(confirmed)),
            "SubscriptionsDeleted": "0",
            **topic.attributes,
        }
    }


def set_topic_attributes(context: CallContext, params: Params) -> Result:
    """SetTopicAttributes; an empty value takes the attribute's default again."""
    stored = topic_at(context, params["TopicArn"])
    name, value = params["AttributeName"], params.get("AttributeValue") or ""
    attributes = {key: it for key, it in stored.value.attributes.items() if key != name}
    kept = checked(name, value)
    if kept is not None:
        attributes[name] = kept[1]
    topic = Topic(
        scope=stored.value.scope,
        name=stored.value.name,
        created_at=stored.value.created_at,
        attributes=attributes,
    )
    context.state.topics.put(context.scope, topic.name, topic, expect=stored.version)
    return {}


def checked(name: str, value: str) -> tuple[str, str] | None:
    """The attribute to keep, None for a default; raises InvalidParameter."""
    if name in WITHOUT_EFFECT:
        if value not in WITHOUT_EFFECT[name]:
            raise unserved(f"The topic attribute {name}={value:.100}", ADVICE.get(name, ""))
        return None
    if name == "DisplayName":
        if len(value) > 100:
            raise invalid("Attributes Reason: DisplayName must be at most 100 characters")
    elif name == "Policy":
        check_policy(value)
    elif name == "DeliveryPolicy":
        try:
            topic_retries(value)
        except DeliveryPolicyError as error:
            raise invalid(f"Attributes Reason: {error}") from None
    elif name.endswith(("FeedbackRoleArn", "FeedbackSampleRate")):
        if value in ("", "0"):  # nothing is to be logged; Terraform says so of each protocol
            return None
        raise unserved(f"The topic attribute {name}", "Metrics of AWS/SNS count deliveries.")
    else:
        raise invalid("AttributeName")
    return (name, value) if value else None


def check_policy(text: str) -> None:
    """Raise InvalidParameter unless `text` is empty or a policy document."""
    if not text:
        return
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or len(text.encode()) > MAX_POLICY_BYTES:
        raise invalid("Policy Error: null")


def default_policy(topic: Topic) -> Mapping[str, Any]:
    """SNS's policy of a topic that was given none."""
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


def effective_policy(topic: Topic) -> str:
    """The topic's delivery policy with its defaults."""
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
