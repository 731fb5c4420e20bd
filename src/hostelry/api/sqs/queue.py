"""Queues of SQS: made, found, changed, emptied and deleted. Their attributes and tags."""

import json
import re
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import ListPaging, order_by_name
from hostelry.api.record_kind import RecordKind
from hostelry.api.tags import add_tags, parse_tags, read_tags, remove_tags, write_tags
from hostelry.base.errors import ServiceError
from hostelry.domain.messaging import DEFAULTS, DeadLetterRule, Queue
from hostelry.messaging.failed_delivery import queue_at
from hostelry.store.records import Versioned

QUEUE_URL = re.compile(r"(?:https?://[^/]+)?/(\d{12})/([A-Za-z0-9_-]{1,80}(?:\.fifo)?)")
MAX_QUEUES = 10_000
MAX_RESULTS = 1000
LISTS = ListPaging(page_size=MAX_RESULTS, error_code="InvalidParameterValue")
PURGE_S = 60.0
QUEUE_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
NAME_RULE = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
RANGES: Mapping[str, tuple[int, int]] = {
    "DelaySeconds": (0, 900),
    "MaximumMessageSize": (1024, 1024 * 1024),
    "MessageRetentionPeriod": (60, 14 * 24 * 3600),
    "ReceiveMessageWaitTimeSeconds": (0, 20),
    "VisibilityTimeout": (0, 12 * 3600),
}
# The values of unsupported attributes that change nothing, and so are accepted.
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


QUEUES = RecordKind[Queue](
    records=lambda state: state.queues,
    not_found=lambda *_: ServiceError("QueueDoesNotExist", "The specified queue does not exist."),
)


def _build_url(context: CallContext, queue: Queue) -> str:
    return f"{context.messages.gateway_url}/{queue.scope.account}/{queue.name}"


def find_queue(context: CallContext, url: str) -> Versioned[Queue]:
    """The queue with the URL. Raises InvalidAddress or QueueDoesNotExist."""
    match = QUEUE_URL.fullmatch(url)
    if match is None:
        raise ServiceError(
            "InvalidAddress", f"The address {url:.300} is not valid for this endpoint."
        )
    return QUEUES.find(context, match[2] if match[1] == context.scope.account else "")


def invalid_value(name: str, value: object, reason: str) -> ServiceError:
    """SQS's error for an invalid parameter."""
    return ServiceError(
        "InvalidParameterValue",
        f"Value {value!s:.300} for parameter {name} is invalid. Reason: {reason}",
    )


def create_queue(context: CallContext, params: Params) -> Result:
    """CreateQueue. The queue may exist already with the same attributes."""
    name, scope = params["QueueName"], context.scope
    if name.endswith(".fifo"):
        raise ServiceError(
            "InvalidParameterValue",
            "A FIFO queue (QueueName ending in .fifo) is not supported by this version of"
            " Hostelry: queues are standard queues.",
        )
    if not QUEUE_NAME.fullmatch(name):
        raise ServiceError("InvalidParameterValue", NAME_RULE)
    new = Queue(scope=scope, name=name, created_at=context.now, modified_at=context.now)
    attributes = _check_attributes(context, new.arn, params.get("Attributes") or {})
    stored = QUEUES.get(context, name)
    if stored is not None:
        _check_same(context, stored.value, attributes)
        return {"QueueUrl": _build_url(context, stored.value)}
    if len(QUEUES.all(context)) >= MAX_QUEUES:
        raise ServiceError("OverLimit", f"There are {MAX_QUEUES} queues.", 403)
    context.messages.queues.drop(new.arn, context.now)  # messages that a killed DeleteQueue left
    write_tags(context, new.arn, _parse_tags(params.get("tags") or {}))
    queue = replace(new, attributes={key: it for key, it in attributes.items() if it})
    return {"QueueUrl": _build_url(context, QUEUES.put(context, queue))}


def get_queue_url(context: CallContext, params: Params) -> Result:
    """GetQueueUrl."""
    owner = params.get("QueueOwnerAWSAccountId") or context.scope.account
    stored = QUEUES.find(context, params["QueueName"] if owner == context.scope.account else "")
    return {"QueueUrl": _build_url(context, stored.value)}


def list_queues(context: CallContext, params: Params) -> Result:
    """ListQueues: in pages if MaxResults is given, else the first 1000."""
    prefix = params.get("QueueNamePrefix") or ""
    found = [it for it in QUEUES.values(context) if it.name.startswith(prefix)]
    return _page(context, "ListQueues", params, found, "QueueUrls")


def list_dead_letter_source_queues(context: CallContext, params: Params) -> Result:
    """ListDeadLetterSourceQueues: the queues whose RedrivePolicy names this one."""
    target = find_queue(context, params["QueueUrl"]).value.arn
    found = [it for it in QUEUES.values(context) if _dead_letter_target(it) == target]
    return _page(context, "ListDeadLetterSourceQueues", params, found, "queueUrls")


def set_queue_attributes(context: CallContext, params: Params) -> Result:
    """SetQueueAttributes. An empty document removes the attribute."""
    stored = find_queue(context, params["QueueUrl"])
    changed = _check_attributes(context, stored.value.arn, params["Attributes"])
    merged = {**stored.value.attributes, **changed}
    attributes = {key: it for key, it in merged.items() if it}
    queue = replace(stored.value, modified_at=context.now, attributes=attributes)
    QUEUES.put(context, queue, stored)
    return {}


def purge_queue(context: CallContext, params: Params) -> Result:
    """PurgeQueue: at once, and at most once in 60 seconds."""
    stored = find_queue(context, params["QueueUrl"])
    if context.now - stored.value.purged_at < PURGE_S:
        raise ServiceError(
            "PurgeQueueInProgress",
            f"Only one PurgeQueue operation on {stored.value.name} is allowed every 60 seconds.",
            403,
        )
    QUEUES.put(context, replace(stored.value, purged_at=context.now), stored)
    context.messages.queues.drop(stored.value.arn, context.now)
    return {}


def delete_queue(context: CallContext, params: Params) -> Result:
    """DeleteQueue, with its messages."""
    stored = find_queue(context, params["QueueUrl"])
    write_tags(context, stored.value.arn, {})
    QUEUES.delete(context, stored)
    context.messages.queues.drop(stored.value.arn, context.now)
    return {}


def list_queue_tags(context: CallContext, params: Params) -> Result:
    """ListQueueTags."""
    tags = read_tags(context, find_queue(context, params["QueueUrl"]).value.arn)
    return {"Tags": dict(tags)} if tags else {}


def tag_queue(context: CallContext, params: Params) -> Result:
    """TagQueue: adds or overwrites."""
    arn = find_queue(context, params["QueueUrl"]).value.arn
    add_tags(context, arn, _parse_tags(params["Tags"]))
    return {}


def untag_queue(context: CallContext, params: Params) -> Result:
    """UntagQueue. Missing keys are ignored."""
    arn = find_queue(context, params["QueueUrl"]).value.arn
    remove_tags(context, arn, params["TagKeys"])
    return {}


def _dead_letter_target(queue: Queue) -> str | None:
    """The ARN of the queue's dead-letter queue, which may be deleted by now."""
    policy = json.loads(queue.attributes.get("RedrivePolicy") or "{}")
    target: str | None = policy.get("deadLetterTargetArn")
    return target


def _page(
    context: CallContext, operation: str, params: Params, queues: Iterable[Queue], member: str
) -> Result:
    size = params.get("MaxResults") or MAX_RESULTS
    if not 1 <= size <= MAX_RESULTS:
        raise invalid_value("MaxResults", size, f"Must be from 1 to {MAX_RESULTS}.")
    rows = order_by_name((it.name, _build_url(context, it)) for it in queues)
    answer = LISTS.answer(context, operation, params, member, rows)
    if params.get("MaxResults") is None:
        answer = {member: answer[member]}
    if not answer[member] and member == "QueueUrls":
        del answer[member]
    return answer


def _parse_tags(tags: dict[str, str]) -> dict[str, str]:
    return parse_tags([{"Key": key, "Value": value} for key, value in tags.items()])


def _check_same(context: CallContext, queue: Queue, attributes: dict[str, str]) -> None:
    present = _describe_attributes(context, queue)
    for name, value in attributes.items():
        if present.get(name, "") != value:
            raise ServiceError(
                "QueueNameExists",
                "A queue already exists with the same name and a different value for attribute"
                f" {name}",
            )


def get_queue_attributes(context: CallContext, params: Params) -> Result:
    """GetQueueAttributes: the requested attributes, or All."""
    queue = find_queue(context, params["QueueUrl"]).value
    asked = params.get("AttributeNames") or []
    shown = _describe_attributes(context, queue)
    known = {*shown, *DOCUMENTS, *WITHOUT_EFFECT, "All"}
    for name in asked:
        if name not in known:
            raise ServiceError("InvalidAttributeName", f"Unknown Attribute {name:.100}.")
    chosen = {name: it for name, it in shown.items() if "All" in asked or name in asked}
    return {"Attributes": chosen} if chosen else {}


def _describe_attributes(context: CallContext, queue: Queue) -> dict[str, str]:
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


def _check_attributes(
    context: CallContext, queue_arn: str, given: Mapping[str, str]
) -> dict[str, str]:
    """The attributes to store. "" removes an attribute. Raises ServiceError."""
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


def get_dead_letter_rule(context: CallContext, queue: Queue) -> DeadLetterRule | None:
    """The queue for messages that are received too often. None without an existing target."""
    text = queue.attributes.get("RedrivePolicy")
    if not text:
        return None
    content = json.loads(text)
    target = str(content["deadLetterTargetArn"])
    if queue_at(context.state, target, context.scope.account) is None:
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
    queue = queue_at(context.state, str(target), context.scope.account)
    if queue is None or queue.scope != context.scope:
        raise invalid_value("RedrivePolicy", text, "Dead letter target does not exist.")
    allowed = json.loads(queue.attributes.get("RedriveAllowPolicy") or "{}")
    permission = allowed.get("redrivePermission", "allowAll")
    sources = allowed.get("sourceQueueArns") or ()
    if permission == "denyAll" or (permission == "byQueue" and queue_arn not in sources):
        raise invalid_value(
            "RedrivePolicy", text, "The dead letter target's RedriveAllowPolicy forbids it."
        )
