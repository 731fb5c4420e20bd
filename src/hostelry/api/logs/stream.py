"""CreateLogStream, DescribeLogStreams and DeleteLogStream."""

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.logs.lookup import (
    group_arn,
    group_named,
    group_of,
    invalid,
    now_ms,
    stream_named,
)
from hostelry.api.logs.tokens import position_of, token_to
from hostelry.base.errors import ServiceError
from hostelry.logs.events import LogGroup, LogStream
from hostelry.logs.store import MAX_STREAMS

PAGE_SIZE = 50
SEQUENCE_TOKEN = "49039859564242044094540330513837160580000000000000000000"
"""Every PutLogEvents of AWS returns one, and ignores the one that it gets; so does this."""


def create_log_stream(context: CallContext, params: Params) -> Result:
    """CreateLogStream."""
    group, name = group_named(context, params["logGroupName"]), params["logStreamName"]
    if context.logs.stream(group, name) is not None:
        message = "The specified log stream already exists"
        raise ServiceError("ResourceAlreadyExistsException", message)
    if not context.logs.create_stream(group, name, now_ms(context)):
        raise invalid(f"The log group has {MAX_STREAMS} log streams, which is the limit here.")
    return {}


def delete_log_stream(context: CallContext, params: Params) -> Result:
    """DeleteLogStream: with its events."""
    group = group_named(context, params["logGroupName"])
    context.logs.delete_stream(stream_named(context, group, params["logStreamName"]))
    return {}


def describe_log_streams(context: CallContext, params: Params) -> Result:
    """DescribeLogStreams: by name, or by the instant of the last event."""
    by_last_event = params.get("orderBy") == "LastEventTime"
    if by_last_event and params.get("logStreamNamePrefix"):
        raise invalid("Cannot order by LastEventTime with a logStreamNamePrefix.")
    group = group_of(context, params)
    size = params.get("limit") or PAGE_SIZE
    position = position_of(context, params)
    found = context.logs.streams(
        group,
        prefix=params.get("logStreamNamePrefix") or "",
        by_last_event=by_last_event,
        descending=bool(params.get("descending")),
        after=None if position is None else (position[0], str(position[1])),
        limit=size + 1,
    )
    page = found[:size]
    result: Result = {"logStreams": [described(context, group, it) for it in page]}
    if len(found) > size:
        last = page[-1]
        key = (last.last_ms or 0) if by_last_event else 0
        result["nextToken"] = token_to(context, params, [key, last.name])
    return result


def described(context: CallContext, group: LogGroup, stream: LogStream) -> Result:
    """A stream in AWS's form; storedBytes is 0 there for every stream."""
    instants = {
        "firstEventTimestamp": stream.first_ms,
        "lastEventTimestamp": stream.last_ms,
        "lastIngestionTime": stream.ingested_ms,
    }
    return {
        "logStreamName": stream.name,
        "creationTime": stream.created_ms,
        "uploadSequenceToken": SEQUENCE_TOKEN,
        "arn": f"{group_arn(context, group.name)}:log-stream:{stream.name}",
        "storedBytes": 0,
        **{name: it for name, it in instants.items() if it is not None},
    }
