"""Messages: Publish and PublishBatch."""

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.sns.topic import find_topic, invalid, topic_not_found, unsupported
from hostelry.base.errors import RetryableError, ServiceError
from hostelry.domain.messaging import AttributeValue
from hostelry.messaging.fan_out import DEFAULT_BODY
from hostelry.messaging.message_attributes import (
    MessageAttributeError,
    read_attributes,
    size_bytes,
)
from hostelry.messaging.topic_publisher import TopicMissingError

MAX_BYTES = 256 * 1024
MAX_ENTRIES = 10
SUBJECT = re.compile(r"[!-~][ -~]{0,99}")
ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
STRUCTURE = "Message Structure - "


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A checked message of a request. `bodies` has `default`."""

    subject: str | None
    bodies: Mapping[str, str]
    attributes: Mapping[str, AttributeValue]
    size_bytes: int


def publish(context: CallContext, params: Params) -> Result:
    """Publish: the message is durable once this returns."""
    if params.get("PhoneNumber"):
        raise unsupported("PhoneNumber", "Publish to a TopicArn.")
    arn = params.get("TopicArn") or params.get("TargetArn")
    if not arn:
        raise invalid("TopicArn or TargetArn Reason: no value for required parameter")
    find_topic(context, arn)
    return {"MessageId": _send(context, arn, _build_draft(params))}


def publish_batch(context: CallContext, params: Params) -> Result:
    """PublishBatch: up to ten messages. Each may fail separately."""
    arn, entries = params["TopicArn"], params["PublishBatchRequestEntries"]
    find_topic(context, arn)
    _check_entries(entries)
    drafts: list[tuple[str, Draft | ServiceError]] = []
    for entry in entries:
        try:
            drafts.append((entry["Id"], _build_draft(entry)))
        except ServiceError as error:
            drafts.append((entry["Id"], error))
    total = sum(it.size_bytes for _, it in drafts if isinstance(it, Draft))
    if total > MAX_BYTES:
        raise ServiceError(
            "BatchRequestTooLongException",
            f"Batch requests cannot be longer than {MAX_BYTES} bytes. You have sent {total} bytes.",
        )
    successful, failed = [], []
    for name, draft in drafts:
        if isinstance(draft, ServiceError):
            failed.append(_failure(name, "InvalidParameter", draft.message, is_senders=True))
            continue
        try:
            successful.append({"Id": name, "MessageId": _send(context, arn, draft)})
        except RetryableError as error:
            failed.append(_failure(name, "InternalError", str(error), is_senders=False))
    return {"Successful": successful, "Failed": failed}


def _check_entries(entries: Any) -> None:
    names = [it["Id"] for it in entries]
    if not names:
        raise ServiceError(
            "EmptyBatchRequestException", "The batch request doesn't contain any entries."
        )
    if len(names) > MAX_ENTRIES:
        raise ServiceError(
            "TooManyEntriesInBatchRequestException",
            "The batch request contains more entries than permissible.",
        )
    if len(set(names)) != len(names):
        raise ServiceError(
            "BatchEntryIdsNotDistinctException",
            "Two or more batch entries in the request have the same Id.",
        )
    if not all(ENTRY_ID.fullmatch(it) for it in names):
        raise ServiceError(
            "InvalidBatchEntryIdException",
            "The Id of a batch entry in a batch request doesn't abide by the specification.",
        )


def _build_draft(params: Params) -> Draft:
    for field in ("MessageDeduplicationId", "MessageGroupId"):
        if params.get(field):
            raise unsupported(field, "Topics are standard topics.")
    message, subject = params["Message"], params.get("Subject")
    if not message:
        raise invalid("Empty message")
    if subject is not None and not SUBJECT.fullmatch(subject):
        raise invalid("Subject")
    try:
        attributes = read_attributes(params.get("MessageAttributes"))
    except MessageAttributeError as error:
        raise ServiceError("InvalidParameterValueException", str(error)) from None
    size = len(message.encode()) + size_bytes(attributes)
    if size > MAX_BYTES:
        raise invalid("Message too long")
    bodies = _parse_bodies(message, params.get("MessageStructure"))
    return Draft(subject=subject, bodies=bodies, attributes=attributes, size_bytes=size)


def _parse_bodies(message: str, structure: str | None) -> Mapping[str, str]:
    if not structure:
        return {DEFAULT_BODY: message}
    if structure != "json":
        raise invalid("MessageStructure")
    try:
        content = json.loads(message)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise invalid(f"{STRUCTURE}JSON message body failed to parse")
    bodies = {name: it for name, it in content.items() if isinstance(it, str)}
    if DEFAULT_BODY not in bodies:
        raise invalid(f"{STRUCTURE}No default entry in JSON message body")
    return bodies


def _send(context: CallContext, arn: str, draft: Draft) -> str:
    try:
        return context.messages.topics.publish(
            arn,
            draft.subject,
            draft.bodies[DEFAULT_BODY],
            draft.attributes,
            bodies=draft.bodies,
            check=context.check_time,
        )
    except TopicMissingError:
        raise topic_not_found() from None


def _failure(name: str, code: str, message: str, *, is_senders: bool) -> Result:
    return {"Id": name, "Code": code, "Message": message, "SenderFault": is_senders}
