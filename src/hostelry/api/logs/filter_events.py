"""FilterLogEvents: events of a group's streams by time, always interleaved.

An answer may have fewer events than asked for, or none, and a token: so much was examined so far.
"""

from collections.abc import Callable

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.logs.get_events import described
from hostelry.api.logs.lookup import MAX_INSTANT_MS, group_of, instant_ms, invalid, stream_named
from hostelry.api.logs.tokens import position_of, token_to
from hostelry.logs.events import LogEvent, LogGroup, Position
from hostelry.logs.patterns.pattern import parse_pattern
from hostelry.logs.store import EventSearch

PAGE_SIZE = 10_000
MAX_PAGE_BYTES = 1_048_576
MAX_EXAMINED = 50_000  # events of one call
SEARCH_S = 1.0  # of computing, after which the answer has a token
FIRST_BACKWARDS_MS = 1_704_067_200_000


def filter_log_events(context: CallContext, params: Params) -> Result:
    """FilterLogEvents. searchedLogStreams is empty, as on AWS since 2019."""
    group = group_of(context, params)
    newest_first = params.get("startFromHead") is False
    if newest_first and params.get("startTime", FIRST_BACKWARDS_MS) < FIRST_BACKWARDS_MS:
        raise invalid("startFromHead=false needs a startTime of 2024-01-01 or later.")
    start: Position = (instant_ms(params.get("startTime"), 0), 0)
    end: Position = (instant_ms(params.get("endTime"), MAX_INSTANT_MS - 1) + 1, 0)
    search = EventSearch(
        has_stream=searched_streams(context, group, params),
        selects=selection(params.get("filterPattern") or "", context.check_time),
        limit=params.get("limit") or PAGE_SIZE,
        max_bytes=MAX_PAGE_BYTES,
        max_rows=MAX_EXAMINED,
        newest_first=newest_first,
        is_over=lambda: context.worked_s() > SEARCH_S,
    )
    position = position_of(context, params)
    if position is not None and newest_first:
        end = min(end, number_pair(position))
    elif position is not None:
        start = max(start, number_pair(position))
    events, following = context.logs.search(group, search, start, end)
    result: Result = {"events": [found(it) for it in events], "searchedLogStreams": []}
    if following is not None:
        result["nextToken"] = token_to(context, params, list(following))
    return result


def selection(pattern: str, check: Callable[[], None] = lambda: None) -> Callable[[str], bool]:
    """The messages that a pattern selects; raises InvalidParameterException for an invalid one."""
    try:
        return parse_pattern(pattern, check)
    except ValueError as error:
        raise invalid(f"Invalid filter pattern: {error}") from None


def searched_streams(
    context: CallContext, group: LogGroup, params: Params
) -> Callable[[str], bool]:
    """The streams that a request searches; those that it names must exist."""
    names, prefix = params.get("logStreamNames"), params.get("logStreamNamePrefix")
    if names and prefix:
        raise invalid("logStreamNames and logStreamNamePrefix are mutually exclusive parameters.")
    if names:
        known = {stream_named(context, group, it).name for it in names}
        return lambda name: name in known
    return lambda name: name.startswith(prefix or "")


def number_pair(position: list[int | str]) -> Position:
    """A position of this list; raises InvalidParameterException for one of another."""
    at_ms, id = position
    if not isinstance(at_ms, int) or not isinstance(id, int):
        raise invalid("The specified nextToken is invalid.")
    return at_ms, id


def found(event: LogEvent) -> Result:
    """A found event in AWS's form."""
    return {
        "logStreamName": event.stream_name,
        **described(event),
        "eventId": f"{event.at_ms:020}{event.id:036}",
    }
