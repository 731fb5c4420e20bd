"""GetLogEvents: one stream, page by page in both directions.

A token is a direction and a place between two events, so the same token comes back at either end,
and finds what was added since.
"""

import re

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.logs.lookup import MAX_INSTANT_MS, group_of, instant_ms, invalid, stream_named
from hostelry.api.logs.tokens import INVALID_TOKEN
from hostelry.logs.events import LogEvent, Position, size_of

PAGE_SIZE = 10_000
MAX_PAGE_BYTES = 1_048_576
_TOKEN = re.compile(r"([fb])/(\d{19})(\d{19})/s")
FORWARDS, BACKWARDS = "f", "b"


def get_log_events(context: CallContext, params: Params) -> Result:
    """GetLogEvents: the newest page unless startFromHead or a token says otherwise."""
    group = group_of(context, params)
    stream = stream_named(context, group, params["logStreamName"])
    start: Position = (instant_ms(params.get("startTime"), 0), 0)
    end: Position = (instant_ms(params.get("endTime"), MAX_INSTANT_MS), 0)
    limit = params.get("limit") or PAGE_SIZE
    direction, place = place_of(params, start, end)
    if direction == FORWARDS:
        events = context.logs.read_forwards(stream, max(start, place), end, limit)
        events = within_bytes(events)
    else:
        events = context.logs.read_backwards(stream, start, min(end, place), limit)
        events = within_bytes(events[::-1])[::-1]
    if events:
        before, after = events[0].position, (events[-1].at_ms, events[-1].id + 1)
    else:
        before = after = place if params.get("nextToken") else start
    return {
        "events": [described(it) for it in events],
        "nextForwardToken": token(FORWARDS, after),
        "nextBackwardToken": token(BACKWARDS, before),
    }


def place_of(params: Params, start: Position, end: Position) -> tuple[str, Position]:
    """The direction and the place that a request begins at."""
    given = params.get("nextToken")
    if given is None:
        return (FORWARDS, start) if params.get("startFromHead") else (BACKWARDS, end)
    match = _TOKEN.fullmatch(given)
    if match is None:
        raise invalid(INVALID_TOKEN)
    direction, at_ms, id = match.groups()
    return direction, (min(int(at_ms), MAX_INSTANT_MS), min(int(id), MAX_INSTANT_MS))


def token(direction: str, place: Position) -> str:
    """The token that leads on from `place`."""
    at_ms, id = place
    return f"{direction}/{at_ms:019}{id:019}/s"


def within_bytes(events: list[LogEvent]) -> list[LogEvent]:
    """The first of `events` that fit in a page; one at least."""
    total = 0
    for number, event in enumerate(events):
        total += size_of(event.message)
        if total > MAX_PAGE_BYTES and number:
            return events[:number]
    return events


def described(event: LogEvent) -> Result:
    """An event in AWS's form."""
    return {
        "timestamp": event.at_ms,
        "message": event.message,
        "ingestionTime": event.ingested_ms,
    }
