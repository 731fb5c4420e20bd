"""Event patterns of rules. PURE: which events match.

A pattern is a filter policy (`messaging/filter_policy.py` has the table of conditions) on the whole
event, with a few conditions more:

    {"wildcard": "a*b"}                                 has this form, `*` standing for any text
    {"prefix": {"equals-ignore-case": "a"}}, suffix     begins or ends so in any case
    {"anything-but": {"wildcard" | "equals-ignore-case": "a" or a list}}

Source: "Comparison operators for use in event patterns" in the EventBridge user guide.
"""

import json
from collections.abc import Callable
from typing import Any

from hostelry.messaging.filter_policy import (
    PATTERN_SCOPE,
    FilterPolicyError,
    Policy,
    check_object,
    list_branches,
    matches,
)


class PatternError(ValueError):
    """The pattern is not valid; the message says why."""


def read_pattern(text: str) -> Policy:
    """The pattern that `text` states; raises PatternError."""
    try:
        pattern = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PatternError(f"Event pattern is not valid. Reason: no JSON ({error})") from None
    if not isinstance(pattern, dict) or not pattern:
        raise PatternError("Event pattern is not valid. Reason: it must be an object with a field")
    try:
        check_object(pattern, PATTERN_SCOPE)
        list_branches(pattern)
    except FilterPolicyError as error:
        raise PatternError(f"Event pattern is not valid. Reason: {error}") from None
    return pattern


def matches_event(pattern: Policy, event: Any, check: Callable[[], None] = lambda: None) -> bool:
    """Whether an event, as JSON has it, matches; `check` may raise between steps."""
    return isinstance(event, dict) and matches(pattern, event, check)


def names_source(pattern: Policy, source: str) -> bool:
    """Whether the pattern asks for events of `source` by name."""
    branches = list_branches(pattern)
    return any(path == ("source",) and source in them for each in branches for path, them in each)
