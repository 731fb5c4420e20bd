"""Calls that follow an event, and the event patterns of rules. PURE.

an event                                calls
--------------------------------------  ----------------------------------------------------------
a written object                        each topic and queue that its bucket notifies. If the
                                        bucket notifies EventBridge, each target of a rule below
an event of PutEvents                   each target of a rule below
an enabled rule with a matching         its targets, each with its input
pattern

A call is named by event, source and target, so that an event that is reported twice is one call.

A pattern is a filter policy (`messaging/filter_policy.py` has the table of conditions) on the whole
event, with a few more conditions:

    {"wildcard": "a*b"}                                 has this form, with any text for `*`
    {"prefix": {"equals-ignore-case": "a"}}, suffix     begins or ends so in any case
    {"anything-but": {"wildcard" | "equals-ignore-case": "a" or a list}}

Source: "Comparison operators for use in event patterns" in the EventBridge user guide.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hostelry.domain.event_rule import EventCall, EventRule
from hostelry.domain.object_event import ObjectEvent
from hostelry.events.input_text import build_input
from hostelry.events.object_message import bucket_arn, bus_event, records_text
from hostelry.messaging.filter_policy import (
    PATTERN_SCOPE,
    FilterPolicyError,
    Policy,
    check_object,
    list_branches,
    matches,
)


class PatternError(ValueError):
    """The pattern is invalid. The message says why."""


def read_pattern(text: str) -> Policy:
    """Parse a pattern. Raises PatternError."""
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
    """True if an event, which is parsed JSON, matches. `check` may raise between steps."""
    return isinstance(event, dict) and matches(pattern, event, check)


def names_source(pattern: Policy, source: str) -> bool:
    """Whether the pattern asks for events of `source` by name."""
    branches = list_branches(pattern)
    return any(path == ("source",) and source in them for each in branches for path, them in each)


def build_object_calls(
    event: ObjectEvent, rules: Iterable[EventRule], now: float
) -> Sequence[EventCall]:
    """Build the calls of an object's event, at `now` (seconds since the epoch)."""
    notified = [
        EventCall(
            id=f"{event.id}/{bucket_arn(event.bucket)}/{target.id}",
            scope=event.scope,
            source=bucket_arn(event.bucket),
            target_arn=target.arn,
            text=records_text(event, target.id),
            event_at=event.at,
            chain_length=event.chain_length,
        )
        for target in event.targets
    ]
    if not event.to_bus:
        return notified
    ruled = [it for it in rules if it.scope == event.scope]
    found = build_bus_calls(bus_event(event), event.at, ruled, now, event.chain_length)
    return [*notified, *found]


def build_bus_calls(
    event: Mapping[str, Any],
    event_at: float,
    rules: Iterable[EventRule],
    now: float,
    chain_length: int = 0,
    check: Callable[[], None] = lambda: None,
) -> Sequence[EventCall]:
    """The calls that follow an event of the bus: of `rules`, all of the event's own scope.

    `check` may raise between steps.
    """
    return [
        EventCall(
            id=f"{event['id']}/{rule.arn}/{target.id}",
            scope=rule.scope,
            source=rule.name,
            target_arn=target.arn,
            text=build_input(rule, target, event, now),
            event_at=event_at,
            max_age_s=target.max_age_s,
            max_retries=target.max_retries,
            dead_letter_arn=target.dead_letter_arn,
            chain_length=chain_length,
            role_arn=target.given.get("RoleArn"),
        )
        for rule in rules
        if is_matched(rule, event, check)
        for target in rule.targets
    ]


def is_matched(
    rule: EventRule, event: Mapping[str, Any], check: Callable[[], None] = lambda: None
) -> bool:
    """Whether `event` matches the rule, which is enabled."""
    try:
        return rule.is_enabled and matches_event(read_pattern(rule.pattern), event, check)
    except PatternError:
        return False  # it was checked when it was recorded
