"""Batches of up to ten messages, each of which may fail by itself."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.sqs.found import queue_of
from hostelry.api.sqs.message import change_visibility, delete, message_of, sent_members
from hostelry.aws.codes import query_code
from hostelry.base.errors import ServiceError
from hostelry.domain.queue import Queue
from hostelry.messaging.message_attributes import size_bytes
from hostelry.messaging.queue_messages import NewMessage

MAX_ENTRIES = 10
MAX_BYTES = 1024 * 1024
ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")

Act = Callable[[CallContext, Queue, Params], None]


def send_message_batch(context: CallContext, params: Params) -> Result:
    """SendMessageBatch: all valid messages in one durable step."""
    queue = queue_of(context, params["QueueUrl"]).value
    messages: list[tuple[str, NewMessage]] = []
    failed: list[Result] = []
    for entry in checked_entries(params["Entries"]):
        try:
            messages.append((entry["Id"], message_of(context, queue, entry)))
        except ServiceError as error:
            failed.append(failure(entry["Id"], error))
    total = sum(len(it.body.encode()) + size_bytes(it.attributes) for _, it in messages)
    if total > MAX_BYTES:
        raise ServiceError(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {MAX_BYTES} bytes. You have sent {total} bytes.",
        )
    context.messages.queues.send([it for _, it in messages])
    context.messages.arrivals.announce(queue.arn)
    return {
        "Successful": [{"Id": name, **sent_members(it)} for name, it in messages],
        "Failed": failed,
    }


def delete_message_batch(context: CallContext, params: Params) -> Result:
    """DeleteMessageBatch."""
    return _each(context, params, delete)


def change_message_visibility_batch(context: CallContext, params: Params) -> Result:
    """ChangeMessageVisibilityBatch."""
    return _each(context, params, change_visibility)


def _each(context: CallContext, params: Params, act: Act) -> Result:
    queue = queue_of(context, params["QueueUrl"]).value
    successful, failed = [], []
    for entry in checked_entries(params["Entries"]):
        try:
            act(context, queue, entry)
        except ServiceError as error:
            failed.append(failure(entry["Id"], error))
        else:
            successful.append({"Id": entry["Id"]})
    return {"Successful": successful, "Failed": failed}


def checked_entries(entries: Sequence[Any]) -> Sequence[Any]:
    """The entries; raises SQS's errors for a batch as a whole."""
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


def failure(name: str, error: ServiceError) -> Result:
    """An entry that failed, in AWS's form."""
    return {
        "Id": name,
        "SenderFault": error.http_status < 500,
        "Code": query_code(error.code),
        "Message": error.message,
    }
