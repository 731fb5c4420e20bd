"""Messages of SQS's queues: sent, received and deleted, one by one or in batches of up to ten."""

import hashlib
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hostelry.api.context import CallContext, NotYetError, Params, Result
from hostelry.api.sqs.queue import find_queue, get_dead_letter_rule, invalid_value
from hostelry.aws.codes import query_code
from hostelry.base.errors import ServiceError
from hostelry.domain.messaging import AttributeValue, Queue, QueuedMessage
from hostelry.messaging.message_attributes import (
    MessageAttributeError,
    digest_attributes,
    get_members,
    read_attributes,
    size_bytes,
)
from hostelry.messaging.queue_messages import InvalidHandleError, NewMessage, NotInFlightError

MAX_RECEIVED = 10
MAX_WAIT_S = 20
MAX_VISIBILITY_S = 12 * 3600
MAX_DELAY_S = 900
MAX_ATTRIBUTES = 10
UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
FIFO_MEMBERS = ("MessageDeduplicationId", "MessageGroupId")
MAX_ENTRIES = 10
MAX_BYTES = 1024 * 1024
ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")

Act = Callable[[CallContext, Queue, Params], None]


def send_message(context: CallContext, params: Params) -> Result:
    """SendMessage. The message is durable once this returns."""
    queue = find_queue(context, params["QueueUrl"]).value
    message = _build_message(context, queue, params)
    context.messages.queues.send([message])
    context.messages.arrivals.announce(queue.arn)
    return _describe_sent(message)


def receive_message(context: CallContext, params: Params) -> Result:
    """ReceiveMessage: up to ten messages. Raises NotYetError if the call may wait for the first."""
    queue = find_queue(context, params["QueueUrl"]).value
    most = _number(params, "MaxNumberOfMessages", 1, 1, MAX_RECEIVED)
    own_visibility_s = queue.number("VisibilityTimeout")
    visibility_s = _number(params, "VisibilityTimeout", own_visibility_s, 0, MAX_VISIBILITY_S)
    own_wait_s = queue.number("ReceiveMessageWaitTimeSeconds")
    wait_s = _number(params, "WaitTimeSeconds", own_wait_s, 0, MAX_WAIT_S)
    if params.get("ReceiveRequestAttemptId"):
        raise ServiceError(
            "InvalidParameterValue",
            "The request includes a parameter that is not valid for this queue type."
            " ReceiveRequestAttemptId is of FIFO queues.",
        )
    received = context.messages.queues.receive(
        queue.arn,
        context.now,
        most=most,
        visibility_s=visibility_s,
        sent_after=context.now - queue.number("MessageRetentionPeriod"),
        dead_letters=get_dead_letter_rule(context, queue),
    )
    if not received and wait_s and context.may_wait:
        next_at = context.messages.queues.next_visible_at(queue.arn)
        raise NotYetError(queue.arn, float(wait_s), next_at)
    return {"Messages": [_describe_received(it, params) for it in received]} if received else {}


def delete_message(context: CallContext, params: Params) -> Result:
    """DeleteMessage. A deleted message is ignored."""
    queue = find_queue(context, params["QueueUrl"]).value
    _delete(context, queue, params)
    return {}


def change_message_visibility(context: CallContext, params: Params) -> Result:
    """ChangeMessageVisibility."""
    queue = find_queue(context, params["QueueUrl"]).value
    _change_visibility(context, queue, params)
    return {}


def _delete(context: CallContext, queue: Queue, params: Params) -> None:
    try:
        context.messages.queues.delete(queue.arn, params["ReceiptHandle"])
    except InvalidHandleError:
        raise _invalid_handle(params) from None


def _change_visibility(context: CallContext, queue: Queue, params: Params) -> None:
    """Make a received message visible again after VisibilityTimeout."""
    timeout_s = _number(params, "VisibilityTimeout", 0, 0, MAX_VISIBILITY_S)
    visible_at = context.now + timeout_s
    try:
        context.messages.queues.change_visibility(
            queue.arn, params["ReceiptHandle"], visible_at, context.now
        )
    except InvalidHandleError:
        raise _invalid_handle(params) from None
    except NotInFlightError:
        raise ServiceError(
            "MessageNotInflight",
            f"Value {params['ReceiptHandle']:.200} for parameter ReceiptHandle is invalid. Reason:"
            " Message does not exist or is not available for visibility timeout change.",
        ) from None
    if timeout_s == 0:
        context.messages.arrivals.announce(queue.arn)


def _invalid_handle(params: Params) -> ServiceError:
    handle = params["ReceiptHandle"]
    return ServiceError(
        "ReceiptHandleIsInvalid",
        f'The input receipt handle "{handle:.200}" is not a valid receipt handle.',
    )


def _build_message(context: CallContext, queue: Queue, params: Params) -> NewMessage:
    """The message of a request, checked against the limits of its queue."""
    body = params["MessageBody"]
    if not body:
        raise ServiceError(
            "MissingParameter", "The request must contain the parameter MessageBody."
        )
    if UNPRINTABLE.search(body):
        raise ServiceError(
            "InvalidMessageContents",
            "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to"
            " #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
        )
    for field in FIFO_MEMBERS:
        if params.get(field):
            raise invalid_value(
                field,
                params[field],
                "The request includes a parameter that is not valid for this queue type.",
            )
    if params.get("MessageSystemAttributes"):
        raise invalid_value(
            "MessageSystemAttributes", "", "Hostelry does not trace messages (AWSTraceHeader)."
        )
    attributes = _parse_attributes(params)
    limit = queue.number("MaximumMessageSize")
    if len(body.encode()) + size_bytes(attributes) > limit:
        raise ServiceError(
            "InvalidParameterValue",
            "One or more parameters are invalid. Reason: Message must be shorter than"
            f" {limit} bytes.",
        )
    delay_s = _number(params, "DelaySeconds", queue.number("DelaySeconds"), 0, MAX_DELAY_S)
    return NewMessage(
        id=str(uuid.uuid4()),
        queue_arn=queue.arn,
        body=body,
        sent_at=context.now,
        visible_at=context.now + delay_s,
        sender=context.scope.account,
        attributes=attributes,
    )


def _parse_attributes(params: Params) -> Mapping[str, AttributeValue]:
    try:
        attributes = read_attributes(params.get("MessageAttributes"))
    except MessageAttributeError as error:
        raise ServiceError("InvalidParameterValue", str(error)) from None
    if len(attributes) > MAX_ATTRIBUTES:
        raise ServiceError(
            "InvalidParameterValue",
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum"
            f" [{MAX_ATTRIBUTES}].",
        )
    return attributes


def _describe_sent(message: NewMessage) -> Result:
    members = {"MessageId": message.id, "MD5OfMessageBody": _md5(message.body)}
    if message.attributes:
        members["MD5OfMessageAttributes"] = digest_attributes(message.attributes)
    return members


def _describe_received(message: QueuedMessage, params: Params) -> Result:
    """A received message in AWS's form, with the requested attributes."""
    shown: dict[str, Any] = {
        "MessageId": message.id,
        "ReceiptHandle": message.handle,
        "MD5OfBody": _md5(message.body),
        "Body": message.body,
    }
    asked = {
        *(params.get("AttributeNames") or ()),
        *(params.get("MessageSystemAttributeNames") or ()),
    }
    system = {
        "SenderId": message.sender,
        "SentTimestamp": str(int(message.sent_at * 1000)),
        "ApproximateReceiveCount": str(message.receives),
        "ApproximateFirstReceiveTimestamp": str(int(message.first_received_at * 1000)),
    }
    chosen = {name: it for name, it in system.items() if "All" in asked or name in asked}
    if chosen:
        shown["Attributes"] = chosen
    patterns = params.get("MessageAttributeNames") or ()
    attributes = {
        name: it for name, it in message.attributes.items() if _is_requested(name, patterns)
    }
    if attributes:
        shown["MessageAttributes"] = {name: get_members(it) for name, it in attributes.items()}
        shown["MD5OfMessageAttributes"] = digest_attributes(attributes)
    return shown


def _is_requested(name: str, patterns: Sequence[str]) -> bool:
    """True if MessageAttributeNames has `name`, a matching prefix.* or All."""
    return any(
        pattern in ("All", ".*", name) or (pattern.endswith(".*") and name.startswith(pattern[:-2]))
        for pattern in patterns
    )


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _number(params: Params, name: str, default: int, least: int, most: int) -> int:
    given = params.get(name)
    value = default if given is None else int(given)
    if not least <= value <= most:
        raise invalid_value(name, value, f"Must be >= {least} and <= {most}, if provided.")
    return value


def send_message_batch(context: CallContext, params: Params) -> Result:
    """SendMessageBatch: all valid messages in one durable step."""
    queue = find_queue(context, params["QueueUrl"]).value
    messages: list[tuple[str, NewMessage]] = []
    failed: list[Result] = []
    for entry in _check_entries(params["Entries"]):
        try:
            messages.append((entry["Id"], _build_message(context, queue, entry)))
        except ServiceError as error:
            failed.append(_describe_failure(entry["Id"], error))
    total = sum(len(it.body.encode()) + size_bytes(it.attributes) for _, it in messages)
    if total > MAX_BYTES:
        raise ServiceError(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {MAX_BYTES} bytes. You have sent {total} bytes.",
        )
    context.messages.queues.send([it for _, it in messages])
    context.messages.arrivals.announce(queue.arn)
    return {
        "Successful": [{"Id": name, **_describe_sent(it)} for name, it in messages],
        "Failed": failed,
    }


def delete_message_batch(context: CallContext, params: Params) -> Result:
    """DeleteMessageBatch."""
    return _each(context, params, _delete)


def change_message_visibility_batch(context: CallContext, params: Params) -> Result:
    """ChangeMessageVisibilityBatch."""
    return _each(context, params, _change_visibility)


def _each(context: CallContext, params: Params, act: Act) -> Result:
    queue = find_queue(context, params["QueueUrl"]).value
    successful, failed = [], []
    for entry in _check_entries(params["Entries"]):
        try:
            act(context, queue, entry)
        except ServiceError as error:
            failed.append(_describe_failure(entry["Id"], error))
        else:
            successful.append({"Id": entry["Id"]})
    return {"Successful": successful, "Failed": failed}


def _check_entries(entries: Sequence[Any]) -> Sequence[Any]:
    names = [it["Id"] for it in entries]
    if not names:
        raise ServiceError("EmptyBatchRequest", "There should be at least one entry.")
    if len(names) > MAX_ENTRIES:
        raise ServiceError(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {MAX_ENTRIES}. You have sent {len(names)}.",
        )
    for name in names:
        if not ENTRY_ID.fullmatch(name):
            raise ServiceError(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and"
                " underscores. It can be at most 80 letters long.",
            )
        if names.count(name) > 1:
            raise ServiceError("BatchEntryIdsNotDistinct", f"Id {name} repeated.")
    return entries


def _describe_failure(name: str, error: ServiceError) -> Result:
    return {
        "Id": name,
        "SenderFault": error.http_status < 500,
        "Code": query_code(error.code),
        "Message": error.message,
    }
