"""PutLogEvents."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.logs.lookup import group_named, invalid, now_ms, stream_named
from hostelry.api.logs.stream import SEQUENCE_TOKEN
from hostelry.logs.events import NewEvent, size_of
from hostelry.logs.retention import DAY_MS

MAX_BATCH_BYTES = 1_048_576
MAX_EVENT_BYTES = 1_048_576
MAX_AGE_MS = 14 * DAY_MS
MAX_AHEAD_MS = 2 * 3_600_000


def put_log_events(context: CallContext, params: Params) -> Result:
    """PutLogEvents: events too old or too new are left out and named in the answer."""
    given = params["logEvents"]
    check_batch(given)
    group = group_named(context, params["logGroupName"])
    stream = stream_named(context, group, params["logStreamName"])
    accepted, rejected = sorted_out(given, now_ms(context), group.retention_days)
    events = [NewEvent(at_ms=it["timestamp"], message=it["message"]) for it in accepted]
    if not context.logs.append(stream, events, now_ms(context)):
        stream_named(context, group, params["logStreamName"])
    result: Result = {"nextSequenceToken": SEQUENCE_TOKEN}
    if rejected:
        result["rejectedLogEventsInfo"] = rejected
    return result


def check_batch(events: Sequence[Mapping[str, Any]]) -> None:
    """Raise InvalidParameterException where the batch as a whole is refused."""
    sizes = [size_of(it["message"]) for it in events]
    if max(sizes) > MAX_EVENT_BYTES:
        raise invalid(f"Log event too large: {max(sizes)} bytes exceeds limit of {MAX_EVENT_BYTES}")
    if sum(sizes) > MAX_BATCH_BYTES:
        raise invalid(f"Upload too large: {sum(sizes)} bytes exceeds limit of {MAX_BATCH_BYTES}")
    instants = [it["timestamp"] for it in events]
    if instants != sorted(instants):
        raise invalid("Log events in a single PutLogEvents request must be in chronological order.")
    if instants[-1] - instants[0] > DAY_MS:
        raise invalid(
            "The batch of log events in a single PutLogEvents request cannot span more than 24 "
            "hours."
        )


def sorted_out(
    events: Sequence[Mapping[str, Any]], now: int, retention_days: int | None
) -> tuple[Sequence[Mapping[str, Any]], dict[str, int]]:
    """The events that are accepted, and which are not: those before and from some index."""
    num_old = sum(1 for it in events if it["timestamp"] < now - MAX_AGE_MS)
    oldest_kept = 0 if retention_days is None else now - retention_days * DAY_MS
    num_expired = sum(1 for it in events if it["timestamp"] < oldest_kept)
    first_new = sum(1 for it in events if it["timestamp"] <= now + MAX_AHEAD_MS)
    rejected = {}
    if first_new < len(events):
        rejected["tooNewLogEventStartIndex"] = first_new
    if num_old:
        rejected["tooOldLogEventEndIndex"] = num_old
    if num_expired:
        rejected["expiredLogEventEndIndex"] = num_expired
    return events[max(num_old, num_expired) : first_new], rejected
