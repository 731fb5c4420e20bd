"""Log events: PutLogEvents, GetLogEvents and FilterLogEvents."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.logs.group import (
    INVALID_TOKEN,
    MAX_INSTANT_MS,
    SEQUENCE_TOKEN,
    build_token,
    clamp_instant_ms,
    find_group,
    find_requested_group,
    find_stream,
    invalid,
    now_ms,
    read_position,
)
from hostelry.logs.events import LogEvent, LogGroup, NewEvent, Position, get_size
from hostelry.logs.patterns.pattern import parse_pattern
from hostelry.logs.retention import DAY_MS
from hostelry.logs.store import EventSearch

MAX_BATCH_BYTES = 1_048_576
MAX_EVENT_BYTES = 1_048_576
MAX_AGE_MS = 14 * DAY_MS
MAX_AHEAD_MS = 2 * 3_600_000
_TOKEN = re.compile(r"([fb])/(\d{19})(\d{19})/s")
FORWARDS, BACKWARDS = "f", "b"
PAGE_SIZE = 10_000
MAX_PAGE_BYTES = 1_048_576
MAX_EXAMINED = 50_000  # events of one call
SEARCH_S = 1.0  # of computing per call
FIRST_BACKWARDS_MS = 1_704_067_200_000


def put_log_events(context: CallContext, params: Params) -> Result:
    """PutLogEvents. The answer names events that are too old or too new, which are dropped."""
    given = params["logEvents"]
    _check_batch(given)
    group = find_group(context, params["logGroupName"])
    stream = find_stream(context, group, params["logStreamName"])
    accepted, rejected = _split_accepted(given, now_ms(context), group.retention_days)
    events = [NewEvent(at_ms=it["timestamp"], message=it["message"]) for it in accepted]
    if not context.logs.append(stream, events, now_ms(context)):
        find_stream(context, group, params["logStreamName"])
    result: Result = {"nextSequenceToken": SEQUENCE_TOKEN}
    if rejected:
        result["rejectedLogEventsInfo"] = rejected
    return result


def _check_batch(events: Sequence[Mapping[str, Any]]) -> None:
    sizes = [get_size(it["message"]) for it in events]
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


def _split_accepted(
    events: Sequence[Mapping[str, Any]], now: int, retention_days: int | None
) -> tuple[Sequence[Mapping[str, Any]], dict[str, int]]:
    """Split off the rejected events. Returns the accepted events, and the indexes of the cuts."""
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


def get_log_events(context: CallContext, params: Params) -> Result:
    """GetLogEvents: one stream in pages, from the newest unless startFromHead or a token is given.

    A token is a direction and a place between two events. So either end of the stream gives the
    same token again, which finds the events that were added since.
    """
    group = find_requested_group(context, params)
    stream = find_stream(context, group, params["logStreamName"])
    start: Position = (clamp_instant_ms(params.get("startTime"), 0), 0)
    end: Position = (clamp_instant_ms(params.get("endTime"), MAX_INSTANT_MS), 0)
    limit = params.get("limit") or PAGE_SIZE
    direction, place = _read_place(params, start, end)
    if direction == FORWARDS:
        events = context.logs.read_forwards(stream, max(start, place), end, limit)
        events = _fit_in_page(events)
    else:
        events = context.logs.read_backwards(stream, start, min(end, place), limit)
        events = _fit_in_page(events[::-1])[::-1]
    if events:
        before, after = events[0].position, (events[-1].at_ms, events[-1].id + 1)
    else:
        before = after = place if params.get("nextToken") else start
    return {
        "events": [_describe(it) for it in events],
        "nextForwardToken": _build_place_token(FORWARDS, after),
        "nextBackwardToken": _build_place_token(BACKWARDS, before),
    }


def _read_place(params: Params, start: Position, end: Position) -> tuple[str, Position]:
    """The direction and the place at which a request begins."""
    given = params.get("nextToken")
    if given is None:
        return (FORWARDS, start) if params.get("startFromHead") else (BACKWARDS, end)
    match = _TOKEN.fullmatch(given)
    if match is None:
        raise invalid(INVALID_TOKEN)
    direction, at_ms, id = match.groups()
    return direction, (min(int(at_ms), MAX_INSTANT_MS), min(int(id), MAX_INSTANT_MS))


def _build_place_token(direction: str, place: Position) -> str:
    at_ms, id = place
    return f"{direction}/{at_ms:019}{id:019}/s"


def _fit_in_page(events: list[LogEvent]) -> list[LogEvent]:
    """Return the first of `events` that fit in a page, and at least one event."""
    total = 0
    for number, event in enumerate(events):
        total += get_size(event.message)
        if total > MAX_PAGE_BYTES and number:
            return events[:number]
    return events


def _describe(event: LogEvent) -> Result:
    return {
        "timestamp": event.at_ms,
        "message": event.message,
        "ingestionTime": event.ingested_ms,
    }


def filter_log_events(context: CallContext, params: Params) -> Result:
    """FilterLogEvents: events of a group's streams by time, always interleaved.

    An answer with a token may have fewer events than requested, or none, since a call examines a
    limited number of events. searchedLogStreams is empty, as on AWS since 2019.
    """
    group = find_requested_group(context, params)
    newest_first = params.get("startFromHead") is False
    if newest_first and params.get("startTime", FIRST_BACKWARDS_MS) < FIRST_BACKWARDS_MS:
        raise invalid("startFromHead=false needs a startTime of 2024-01-01 or later.")
    start: Position = (clamp_instant_ms(params.get("startTime"), 0), 0)
    end: Position = (clamp_instant_ms(params.get("endTime"), MAX_INSTANT_MS - 1) + 1, 0)
    search = EventSearch(
        has_stream=_select_streams(context, group, params),
        selects=_parse_filter(params.get("filterPattern") or "", context.check_time),
        limit=params.get("limit") or PAGE_SIZE,
        max_bytes=MAX_PAGE_BYTES,
        max_rows=MAX_EXAMINED,
        newest_first=newest_first,
        is_over=lambda: context.worked_s() > SEARCH_S,
    )
    position = read_position(context, params)
    if position is not None and newest_first:
        end = min(end, _check_numbers(position))
    elif position is not None:
        start = max(start, _check_numbers(position))
    events, following = context.logs.search(group, search, start, end)
    result: Result = {"events": [_describe_found(it) for it in events], "searchedLogStreams": []}
    if following is not None:
        result["nextToken"] = build_token(context, params, list(following))
    return result


def _parse_filter(pattern: str, check: Callable[[], None] = lambda: None) -> Callable[[str], bool]:
    """The filter of messages by a pattern. Raises InvalidParameterException."""
    try:
        return parse_pattern(pattern, check)
    except ValueError as error:
        raise invalid(f"Invalid filter pattern: {error}") from None


def _select_streams(context: CallContext, group: LogGroup, params: Params) -> Callable[[str], bool]:
    """The filter of streams by their names. Named streams must exist."""
    names, prefix = params.get("logStreamNames"), params.get("logStreamNamePrefix")
    if names and prefix:
        raise invalid("logStreamNames and logStreamNamePrefix are mutually exclusive parameters.")
    if names:
        known = {find_stream(context, group, it).name for it in names}
        return lambda name: name in known
    return lambda name: name.startswith(prefix or "")


def _check_numbers(position: list[int | str]) -> Position:
    at_ms, id = position
    if not isinstance(at_ms, int) or not isinstance(id, int):
        raise invalid("The specified nextToken is invalid.")
    return at_ms, id


def _describe_found(event: LogEvent) -> Result:
    return {
        "logStreamName": event.stream_name,
        **_describe(event),
        "eventId": f"{event.at_ms:020}{event.id:036}",
    }
