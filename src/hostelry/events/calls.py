"""Calls that follow an event. PURE.

an event                                    calls
------------------------------------------  ----------------------------------------------------
an object that was written                  each topic and queue that its bucket notifies; where the
                                            bucket notifies EventBridge, each target of a rule below
one of PutEvents                            each target of a rule below
a rule that is enabled, whose pattern the   its targets, each with an input of its own
event matches

A call is named by event, source and target, so that an event that is reported twice is one call.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hostelry.domain.event_rule import EventCall, EventRule
from hostelry.domain.object_event import ObjectEvent
from hostelry.events.input_text import build_input
from hostelry.events.object_message import bucket_arn, bus_event, records_text
from hostelry.events.pattern import PatternError, matches_event, read_pattern


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
