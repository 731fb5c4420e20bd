"""Messages of queues: sent, received, deleted."""

import hashlib
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.api.context import CallContext, NotYetError, Params, Result
from hostelry.api.sqs.found import invalid_value, queue_of
from hostelry.api.sqs.queue_attributes import dead_letter_rule
from hostelry.base.errors import ServiceError
from hostelry.domain.queue import AttributeValue, Queue, QueuedMessage
from hostelry.messaging.message_attributes import (
    MessageAttributeError,
    digest_of_attributes,
    members_of,
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
OF_FIFO = ("MessageDeduplicationId", "MessageGroupId")


def send_message(context: CallContext, params: Params) -> Result:
    """SendMessage: the message is durable once this returns."""
    queue = queue_of(context, params["QueueUrl"]).value
    message = message_of(context, queue, params)
    context.messages.queues.send([message])
    context.messages.arrivals.announce(queue.arn)
    return sent_members(message)


def receive_message(context: CallContext, params: Params) -> Result:
    """ReceiveMessage: up to ten messages; raises NotYetError while it may wait for the first."""
    queue = queue_of(context, params["QueueUrl"]).value
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
        dead_letters=dead_letter_rule(context, queue),
    )
    if not received and wait_s and context.may_wait:
        next_at = context.messages.queues.next_visible_at(queue.arn)
        raise NotYetError(queue.arn, float(wait_s), next_at)
    return {"Messages": [received_members(it, params) for it in received]} if received else {}


def delete_message(context: CallContext, params: Params) -> Result:
    """DeleteMessage: one that is gone already is no error."""
    queue = queue_of(context, params["QueueUrl"]).value
    delete(context, queue, params)
    return {}


def change_message_visibility(context: CallContext, params: Params) -> Result:
    """ChangeMessageVisibility."""
    queue = queue_of(context, params["QueueUrl"]).value
    change_visibility(context, queue, params)
    return {}


def delete(context: CallContext, queue: Queue, params: Params) -> None:
    """Delete the message of a receipt handle; raises ReceiptHandleIsInvalid."""
    try:
        context.messages.queues.delete(queue.arn, params["ReceiptHandle"])
    except InvalidHandleError:
        raise invalid_handle(params) from None


def change_visibility(context: CallContext, queue: Queue, params: Params) -> None:
    """Show a received message again after VisibilityTimeout; raises MessageNotInflight."""
    timeout_s = _number(params, "VisibilityTimeout", 0, 0, MAX_VISIBILITY_S)
    visible_at = context.now + timeout_s
    try:
        context.messages.queues.change_visibility(
            queue.arn, params["ReceiptHandle"], visible_at, context.now
        )
    except InvalidHandleError:
        raise invalid_handle(params) from None
    except NotInFlightError:
        raise ServiceError(
            "MessageNotInflight",
            f"Value {params['ReceiptHandle']:.200} for parameter ReceiptHandle is invalid. Reason:"
            " Message does not exist or is not available for visibility timeout change.",
        ) from None
    if timeout_s == 0:
        context.messages.arrivals.announce(queue.arn)


def invalid_handle(params: Params) -> ServiceError:
    """The error for a text that is no receipt handle."""
    handle = params["ReceiptHandle"]
    return ServiceError(
        "ReceiptHandleIsInvalid",
        f'The input receipt handle "{handle:.200}" is not a valid receipt handle.',
    )


def message_of(context: CallContext, queue: Queue, params: Params) -> NewMessage:
    """The message of a request, checked against its queue."""
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
    for field in OF_FIFO:
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
    attributes = attributes_of(params)
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


def attributes_of(params: Params) -> Mapping[str, AttributeValue]:
    """The message attributes of a request, checked."""
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


def sent_members(message: NewMessage) -> Result:
    """The answer about a message that was sent."""
    members = {"MessageId": message.id, "MD5OfMessageBody": md5_of(message.body)}
    if message.attributes:
        members["MD5OfMessageAttributes"] = digest_of_attributes(message.attributes)
    return members


def received_members(message: QueuedMessage, params: Params) -> Result:
    """A received message in AWS's form, with the attributes that are asked for."""
    shown: dict[str, Any] = {
        "MessageId": message.id,
        "ReceiptHandle": message.handle,
        "MD5OfBody": md5_of(message.body),
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
    attributes = {name: it for name, it in message.attributes.items() if is_asked(name, patterns)}
    if attributes:
        shown["MessageAttributes"] = {name: members_of(it) for name, it in attributes.items()}
        shown["MD5OfMessageAttributes"] = digest_of_attributes(attributes)
    return shown


def is_asked(name: str, patterns: Sequence[str]) -> bool:
    """Whether MessageAttributeNames asks for `name`: by name, prefix.*, or All."""
    return any(
        pattern in ("All", ".*", name) or (pattern.endswith(".*") and name.startswith(pattern[:-2]))
        for pattern in patterns
    )


def md5_of(text: str) -> str:
    """The digest that clients compare."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _number(params: Params, name: str, default: int, least: int, most: int) -> int:
    given = params.get(name)
    value = default if given is None else int(given)
    if not least <= value <= most:
        raise invalid_value(name, value, f"Must be >= {least} and <= {most}, if provided.")
    return value
