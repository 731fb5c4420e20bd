"""Filter patterns as functions that select events: terms, fields, and JSON. Pure."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hostelry.logs.patterns.conditions import (
    Condition,
    Select,
    parse_condition,
    tokenize,
    unquote,
)

MAX_FIELDS = 256
REST = "..."
_CLOSING = {'"': '"', "[": "]"}
_BEGIN = re.compile(r'["\[]|\S+')
_WORD = re.compile(r"\S+")
_SPLIT = re.compile(r',|"(?:[^"\\]|\\.)*"|[^,"]+|"')
_NAME = re.compile(r"[A-Za-z_$@][\w.$@-]*")
Values = Mapping[str, str]


def field_pattern(text: str) -> Condition:
    """Build the test for events that have exactly these fields and meet their conditions.

    Raises ValueError if the pattern is invalid.
    """
    parts = split_parts(text.strip()[1:-1])
    if len(parts) > MAX_FIELDS:
        raise ValueError(f"it has more than {MAX_FIELDS} fields")
    if parts.count(REST) > 1:
        raise ValueError(f"{REST} may stand once")
    names = [_parse_name(part) for part in parts]
    conditions = [
        parse_condition(part, _select_field)
        for part, name in zip(parts, names, strict=True)
        if part != REST and part != name
    ]

    def matches(message: str) -> bool:
        values = get_values(names, split_fields(message))
        return values is not None and all(it(values) for it in conditions)

    return matches


def split_parts(text: str) -> list[str]:
    """Split at commas outside of quotes."""
    parts = [""]
    for piece in _SPLIT.findall(text):
        if piece == ",":
            parts.append("")
        else:
            parts[-1] += piece
    return [part.strip() for part in parts]


def split_fields(message: str) -> list[str]:
    """Split an event into fields: words, and texts in quotes or brackets."""
    # Without `last`, each bracket that is never closed would cost a search to the end.
    last = {opening: message.rfind(closing) for opening, closing in _CLOSING.items()}
    fields, at = [], 0
    while found := _BEGIN.search(message, at):
        field, at = found[0], found.end()
        if at <= last.get(field, -1):
            end = message.index(_CLOSING[field], at)
            field, at = message[at:end], end + 1
        elif field in last and (word := _WORD.match(message, at - 1)):
            field, at = word[0], word.end()
        fields.append(field)
    return fields


def get_values(names: Sequence[str], fields: Sequence[str]) -> Values | None:
    """Return the event's fields by name, or None if their number differs."""
    if REST not in names:
        if len(fields) != len(names):
            return None
        return dict(zip(names, fields, strict=True))
    before = names.index(REST)
    after = len(names) - before - 1
    if len(fields) < before + after:
        return None
    tail = fields[len(fields) - after :]
    return {
        **dict(zip(names[:before], fields, strict=False)),
        **dict(zip(names[before + 1 :], tail, strict=True)),
    }


def _parse_name(part: str) -> str:
    """Return the field's name in a part, or "" without a name."""
    if part in ("", REST):
        return part
    name = next((it for it in tokenize(part) if it != "("), "")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{part!r} does not begin with a field's name")
    return name


def _select_field(name: str) -> Select:
    def select(values: Values) -> Sequence[str]:
        return [values[name]] if name in values else []

    return select


MAX_STEPS = 32
_SELECTOR = re.compile(r"\$(?:\.[^.\[\]\s]+|\[(?:\d{1,6}|\*)\])+")
_STEP = re.compile(r"\.([^.\[\]\s]+)|\[(\d{1,6}|\*)\]")


def json_pattern(text: str, check: Callable[[], None] = lambda: None) -> Condition:
    """Build the test for JSON objects that meet the pattern. Raises ValueError if it is invalid."""
    condition = parse_condition(text.strip()[1:-1], parse_selector, check)

    def matches(message: str) -> bool:
        if not message.lstrip().startswith("{"):
            return False
        try:
            document = json.loads(message)
        except (ValueError, RecursionError):
            return False
        return condition(document)

    return matches


def parse_selector(token: str) -> Select:
    """Parse ``$.a.b[0]`` or ``$.a[*].b``. Raises ValueError for another text."""
    if not _SELECTOR.fullmatch(token):
        raise ValueError(f"{token!r} is no selector such as $.name or $.list[0]")
    steps: list[str | int | None] = []
    for name, index in _STEP.findall(token):
        steps.append(name or (None if index == "*" else int(index)))
    if len(steps) > MAX_STEPS:
        raise ValueError(f"a selector has at most {MAX_STEPS} steps")
    return lambda document: _values_at(document, steps)


def _values_at(document: Any, steps: Sequence[str | int | None]) -> Sequence[Any]:
    found = [document]
    for step in steps:
        found = [value for it in found for value in _step(it, step)]
    return found


def _step(value: Any, step: str | int | None) -> Sequence[Any]:
    if isinstance(step, str):
        return [value[step]] if isinstance(value, dict) and step in value else []
    if not isinstance(value, list):
        return []
    return value if step is None else value[step : step + 1]


Selects = Callable[[str], bool]
_TERM = re.compile(r'\s*([-?]?)("(?:[^"\\]|\\.)*"|[^\s"]+)\s*')


def parse_pattern(pattern: str, check: Callable[[], None] = lambda: None) -> Selects:
    """Build the test for messages that `pattern` selects. Raises ValueError if it is invalid.

    The function calls `check` between its steps on a JSON event, which may raise.

    Source: CloudWatch Logs user guide, "Filter pattern syntax".

        pattern                        selects
        ----------------------------   ---------------------------------------------------------
        nothing                        every event
        ``{ ... }``                    JSON objects that meet the condition
        ``[ ... ]``                    events with these fields
        terms, "quoted phrases"        events that contain all of them, in their case
        -term, -"a phrase"             ... and none of these
        ?term ?"a phrase"              events that contain any. Ignored with the other kinds
    """
    text = pattern.strip()
    if text.startswith("{"):
        return json_pattern(_check_closed(text, "}"), check)
    if text.startswith("["):
        return field_pattern(_check_closed(text, "]"))
    return term_pattern(text)


def term_pattern(text: str) -> Selects:
    """Build the test for messages with the terms of `text`. Raises ValueError."""
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
        lists[match[1]].append(unquote(match[2]))
        at = match.end()
    if not required and not excluded and optional:
        return lambda message: any(it in message for it in optional)
    return lambda message: (
        all(it in message for it in required) and not any(it in message for it in excluded)
    )


def _check_closed(text: str, bracket: str) -> str:
    if not text.endswith(bracket) or len(text) < 2:
        raise ValueError(f"it does not end with {bracket}")
    return text
