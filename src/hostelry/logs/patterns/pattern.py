"""A filter pattern as the function that selects events.

Source: CloudWatch Logs user guide, "Filter pattern syntax".

    pattern                        selects
    ----------------------------   ---------------------------------------------------------
    nothing                        every event
    ``{ ... }``                    JSON objects that meet the condition
    ``[ ... ]``                    events with these fields
    terms, "quoted phrases"        events that contain all of them, in their case
    -term, -"a phrase"             ... and none of these
    ?term ?"a phrase"              events that contain any; ignored beside the other kinds
"""

import re
from collections.abc import Callable

from hostelry.logs.patterns.conditions import unquoted
from hostelry.logs.patterns.fields import field_pattern
from hostelry.logs.patterns.json_events import json_pattern

Selects = Callable[[str], bool]
_TERM = re.compile(r'\s*([-?]?)("(?:[^"\\]|\\.)*"|[^\s"]+)\s*')


def parse_pattern(pattern: str, check: Callable[[], None] = lambda: None) -> Selects:
    """Whether an event's message is selected by `pattern`; raises ValueError for an invalid one.

    The function calls `check` between its steps on a JSON event, which may raise.
    """
    text = pattern.strip()
    if text.startswith("{"):
        return json_pattern(_closed(text, "}"), check)
    if text.startswith("["):
        return field_pattern(_closed(text, "]"))
    return term_pattern(text)


def term_pattern(text: str) -> Selects:
    """Whether a message has the terms of `text`; raises ValueError."""
    required: list[str] = []
    excluded: list[str] = []
    optional: list[str] = []
    lists = {"": required, "-": excluded, "?": optional}
    at = 0
    while at < len(text):
        match = _TERM.match(text, at)
        if match is None:
            raise ValueError("a quotation mark is not closed")
        if match[2].startswith("%"):
            raise ValueError("regular expressions (%...%) are not supported by this version")
        lists[match[1]].append(unquoted(match[2]))
        at = match.end()
    if not required and not excluded and optional:
        return lambda message: any(it in message for it in optional)
    return lambda message: (
        all(it in message for it in required) and not any(it in message for it in excluded)
    )


def _closed(text: str, bracket: str) -> str:
    if not text.endswith(bracket) or len(text) < 2:
        raise ValueError(f"it does not end with {bracket}")
    return text
