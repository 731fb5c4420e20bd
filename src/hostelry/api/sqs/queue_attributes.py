"""Attributes of queues: checked, shown."""

import json
from collections.abc import Mapping

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.sqs.found import invalid_value, queue_of
from hostelry.base.errors import ServiceError
from hostelry.domain.queue import DEFAULTS, DeadLetterRule, Queue
from hostelry.messaging.failed_delivery import queue_at

RANGES: Mapping[str, tuple[int, int]] = {
    "DelaySeconds": (0, 900),
    "MaximumMessageSize": (1024, 1024 * 1024),
    "MessageRetentionPeriod": (60, 14 * 24 * 3600),
    "ReceiveMessageWaitTimeSeconds": (0, 20),
    "VisibilityTimeout": (0, 12 * 3600),
}
# What an attribute that is not served may be set to, since it changes nothing.
WITHOUT_EFFECT: Mapping[str, tuple[str, ...]] = {
    "FifoQueue": ("false",),
    "ContentBasedDeduplication": ("false",),
    "KmsMasterKeyId": ("",),
    "KmsDataKeyReusePeriodSeconds": ("300",),
    "SqsManagedSseEnabled": ("false",),
    "DeduplicationScope": (),
    "FifoThroughputLimit": (),
}
DOCUMENTS = ("Policy", "RedrivePolicy", "RedriveAllowPolicy")
MAX_RECEIVES = 1000
PERMISSIONS = ("allowAll", "denyAll", "byQueue")


def get_queue_attributes(context: CallContext, params: Params) -> Result:
    """GetQueueAttributes: those that are asked for, or All."""
    queue = queue_of(context, params["QueueUrl"]).value
    asked = params.get("AttributeNames") or []
    shown = shown_attributes(context, queue)
    known = {*shown, *DOCUMENTS, *WITHOUT_EFFECT, "All"}
    for name in asked:
        if name not in known:
            raise ServiceError("InvalidAttributeName", f"Unknown Attribute {name:.100}.")
    chosen = {name: it for name, it in shown.items() if "All" in asked or name in asked}
    return {"Attributes": chosen} if chosen else {}


def shown_attributes(context: CallContext, queue: Queue) -> dict[str, str]:
    """Every attribute of a queue."""
    oldest = context.now - queue.number("MessageRetentionPeriod")
    counts = context.messages.queues.counts(queue.arn, context.now, oldest)
    return {
        "QueueArn": queue.arn,
        "ApproximateNumberOfMessages": str(counts.visible),
        "ApproximateNumberOfMessagesNotVisible": str(counts.in_flight),
        "ApproximateNumberOfMessagesDelayed": str(counts.delayed),
        "CreatedTimestamp": str(int(queue.created_at)),
        "LastModifiedTimestamp": str(int(queue.modified_at)),
        "SqsManagedSseEnabled": "false",
        **DEFAULTS,
        **queue.attributes,
    }


def checked_attributes(
    context: CallContext, queue_arn: str, given: Mapping[str, str]
) -> dict[str, str]:
    """The attributes to keep, "" for those to take away; raises SQS's errors."""
    kept: dict[str, str] = {}
    for name, value in given.items():
        if name in RANGES:
            kept[name] = str(_number(name, value))
        elif name in DOCUMENTS:
            kept[name] = value
            if value:
                _check_document(context, queue_arn, name, value)
        elif name in WITHOUT_EFFECT:
            if value not in WITHOUT_EFFECT[name]:
                raise ServiceError(
                    "InvalidAttributeValue",
                    f"The queue attribute {name}={value:.100} is not supported by this version of"
                    " Hostelry: queues are standard queues, and not encrypted by themselves.",
                )
        else:
            raise ServiceError("InvalidAttributeName", f"Unknown Attribute {name:.100}.")
    return kept


def dead_letter_rule(context: CallContext, queue: Queue) -> DeadLetterRule | None:
    """Where messages of the queue go that are received too often; None without a live target."""
    text = queue.attributes.get("RedrivePolicy")
    if not text:
        return None
    content = json.loads(text)
    target = str(content["deadLetterTargetArn"])
    if queue_at(context.state, target) is None:
        return None
    return DeadLetterRule(queue_arn=target, most_receives=int(content["maxReceiveCount"]))


def _number(name: str, value: str) -> int:
    least, most = RANGES[name]
    is_number = value.isascii() and value.isdecimal() and len(value) < 10
    number = int(value) if is_number else -1
    if not least <= number <= most:
        raise ServiceError("InvalidAttributeValue", f"Invalid value for the parameter {name}.")
    return number


def _check_document(context: CallContext, queue_arn: str, name: str, text: str) -> None:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ServiceError("InvalidAttributeValue", f"Invalid value for the parameter {name}.")
    if name == "RedrivePolicy":
        _check_redrive(context, queue_arn, text, content)
    elif name == "RedriveAllowPolicy":
        _check_redrive_allow(text, content)


def _check_redrive_allow(text: str, content: Mapping[str, object]) -> None:
    if content.get("redrivePermission") not in PERMISSIONS:
        wrong = "redrivePermission must be allowAll, denyAll or byQueue."
        raise invalid_value("RedriveAllowPolicy", text, wrong)
    sources = content.get("sourceQueueArns", [])
    if not isinstance(sources, list) or not all(isinstance(it, str) for it in sources):
        raise invalid_value("RedriveAllowPolicy", text, "sourceQueueArns must be a list of ARNs.")


def _check_redrive(
    context: CallContext, queue_arn: str, text: str, content: Mapping[str, object]
) -> None:
    target, most = content.get("deadLetterTargetArn"), content.get("maxReceiveCount")
    try:
        is_count = 1 <= int(str(most)) <= MAX_RECEIVES
    except ValueError:
        is_count = False
    if not is_count:
        raise invalid_value(
            "RedrivePolicy", text, f"maxReceiveCount must be from 1 to {MAX_RECEIVES}."
        )
    queue = queue_at(context.state, str(target))
    if queue is None or queue.scope != context.scope:
        raise invalid_value("RedrivePolicy", text, "Dead letter target does not exist.")
    allowed = json.loads(queue.attributes.get("RedriveAllowPolicy") or "{}")
    permission = allowed.get("redrivePermission", "allowAll")
    sources = allowed.get("sourceQueueArns") or ()
    if permission == "denyAll" or (permission == "byQueue" and queue_arn not in sources):
        raise invalid_value(
            "RedrivePolicy", text, "The dead letter target's RedriveAllowPolicy forbids it."
        )
