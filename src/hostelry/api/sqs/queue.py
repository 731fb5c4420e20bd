"""Queues: made, found, changed, emptied, deleted; their tags."""

import json
import re
from collections.abc import Iterable
from dataclasses import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import PageTokens, page_of
from hostelry.api.sqs.found import invalid_value, missing, queue_of, queue_url
from hostelry.api.sqs.queue_attributes import checked_attributes, shown_attributes
from hostelry.api.tags import read_tags, tags_of, tags_without, write_tags
from hostelry.base.errors import ServiceError
from hostelry.domain.queue import Queue
from hostelry.store.records import Versioned

MAX_QUEUES = 10_000
MAX_RESULTS = 1000
PURGE_S = 60.0
NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
NAME_RULE = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"


def create_queue(context: CallContext, params: Params) -> Result:
    """CreateQueue: the queue of that name, which may exist with the same attributes."""
    name, scope = params["QueueName"], context.scope
    if name.endswith(".fifo"):
        raise ServiceError(
            "InvalidParameterValue",
            "A FIFO queue (QueueName ending in .fifo) is not supported by this version of"
            " Hostelry: queues are standard queues.",
        )
    if not NAME.fullmatch(name):
        raise ServiceError("InvalidParameterValue", NAME_RULE)
    new = Queue(scope=scope, name=name, created_at=context.now, modified_at=context.now)
    attributes = checked_attributes(context, new.arn, params.get("Attributes") or {})
    stored = context.state.queues.get(scope, name)
    if stored is not None:
        _check_same(context, stored.value, attributes)
        return {"QueueUrl": queue_url(context, stored.value)}
    if len(context.state.queues.list(scope)) >= MAX_QUEUES:
        raise ServiceError("OverLimit", f"There are {MAX_QUEUES} queues.", 403)
    context.messages.queues.drop(new.arn, context.now)  # a killed DeleteQueue may have left some
    write_tags(context, new.arn, _given_tags(params.get("tags") or {}))
    made = replace(new, attributes={key: it for key, it in attributes.items() if it})
    context.state.queues.put(scope, name, made, expect=None)
    return {"QueueUrl": queue_url(context, made)}


def get_queue_url(context: CallContext, params: Params) -> Result:
    """GetQueueUrl."""
    owner = params.get("QueueOwnerAWSAccountId") or context.scope.account
    stored = context.state.queues.get(context.scope, params["QueueName"])
    if stored is None or owner != context.scope.account:
        raise missing()
    return {"QueueUrl": queue_url(context, stored.value)}


def list_queues(context: CallContext, params: Params) -> Result:
    """ListQueues: those with a prefix; pages where MaxResults is given, else the first 1000."""
    prefix = params.get("QueueNamePrefix") or ""
    queues = (it.value for it in context.state.queues.list(context.scope))
    found = [it for it in queues if it.name.startswith(prefix)]
    return _page(context, "ListQueues", params, found, "QueueUrls")


def list_dead_letter_source_queues(context: CallContext, params: Params) -> Result:
    """ListDeadLetterSourceQueues: the queues whose RedrivePolicy names this one."""
    target = queue_of(context, params["QueueUrl"]).value.arn
    found = [
        stored.value
        for stored in context.state.queues.list(context.scope)
        if dead_letter_target(stored.value) == target
    ]
    return _page(context, "ListDeadLetterSourceQueues", params, found, "queueUrls")


def set_queue_attributes(context: CallContext, params: Params) -> Result:
    """SetQueueAttributes: an empty document takes the attribute away."""
    stored = queue_of(context, params["QueueUrl"])
    changed = checked_attributes(context, stored.value.arn, params["Attributes"])
    attributes = {**stored.value.attributes, **changed}
    _put(
        context,
        stored,
        replace(
            stored.value,
            modified_at=context.now,
            attributes={key: it for key, it in attributes.items() if it},
        ),
    )
    return {}


def purge_queue(context: CallContext, params: Params) -> Result:
    """PurgeQueue: at once, and at most once in 60 seconds."""
    stored = queue_of(context, params["QueueUrl"])
    if context.now - stored.value.purged_at < PURGE_S:
        raise ServiceError(
            "PurgeQueueInProgress",
            f"Only one PurgeQueue operation on {stored.value.name} is allowed every 60 seconds.",
            403,
        )
    _put(context, stored, replace(stored.value, purged_at=context.now))
    context.messages.queues.drop(stored.value.arn, context.now)
    return {}


def delete_queue(context: CallContext, params: Params) -> Result:
    """DeleteQueue: with its messages."""
    stored = queue_of(context, params["QueueUrl"])
    write_tags(context, stored.value.arn, {})
    context.state.queues.delete(context.scope, stored.value.name, expect=stored.version)
    context.messages.queues.drop(stored.value.arn, context.now)
    return {}


def list_queue_tags(context: CallContext, params: Params) -> Result:
    """ListQueueTags."""
    tags = read_tags(context, queue_of(context, params["QueueUrl"]).value.arn)
    return {"Tags": dict(tags)} if tags else {}


def tag_queue(context: CallContext, params: Params) -> Result:
    """TagQueue: adds or overwrites."""
    arn = queue_of(context, params["QueueUrl"]).value.arn
    write_tags(context, arn, {**read_tags(context, arn), **_given_tags(params["Tags"])})
    return {}


def untag_queue(context: CallContext, params: Params) -> Result:
    """UntagQueue: keys that the queue does not have are no error."""
    arn = queue_of(context, params["QueueUrl"]).value.arn
    write_tags(context, arn, tags_without(context, arn, params["TagKeys"]))
    return {}


def dead_letter_target(queue: Queue) -> str | None:
    """The ARN of the queue's dead-letter queue, which need not exist any more."""
    policy = json.loads(queue.attributes.get("RedrivePolicy") or "{}")
    target: str | None = policy.get("deadLetterTargetArn")
    return target


def _page(
    context: CallContext, operation: str, params: Params, queues: Iterable[Queue], member: str
) -> Result:
    size = params.get("MaxResults") or MAX_RESULTS
    if not 1 <= size <= MAX_RESULTS:
        raise invalid_value("MaxResults", size, f"Must be from 1 to {MAX_RESULTS}.")
    rows = [((it.name, it.name), queue_url(context, it)) for it in queues]
    tokens = PageTokens(context, operation, params, "InvalidParameterValue")
    urls, following = page_of(tokens, rows, size)
    if params.get("MaxResults") is None:
        following = {}
    return {**({member: urls} if urls or member == "queueUrls" else {}), **following}


def _put(context: CallContext, stored: Versioned[Queue], queue: Queue) -> None:
    context.state.queues.put(context.scope, queue.name, queue, expect=stored.version)


def _given_tags(tags: dict[str, str]) -> dict[str, str]:
    return tags_of([{"Key": key, "Value": value} for key, value in tags.items()])


def _check_same(context: CallContext, queue: Queue, attributes: dict[str, str]) -> None:
    present = shown_attributes(context, queue)
    for name, value in attributes.items():
        if present.get(name, "") != value:
            raise ServiceError(
                "QueueNameExists",
                "A queue already exists with the same name and a different value for attribute"
                f" {name}",
            )
