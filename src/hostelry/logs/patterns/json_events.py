"""Patterns of JSON events: ``{ $.a = "x" && $.b[0].c > 3 }``."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from hostelry.logs.patterns.conditions import Condition, Select, parse_condition

MAX_STEPS = 32
_SELECTOR = re.compile(r"\$(?:\.[^.\[\]\s]+|\[(?:\d{1,6}|\*)\])+")
_STEP = re.compile(r"\.([^.\[\]\s]+)|\[(\d{1,6}|\*)\]")


def json_pattern(text: str, check: Callable[[], None] = lambda: None) -> Condition:
    """Whether an event is a JSON object that meets the pattern; raises ValueError for none."""
    condition = parse_condition(text.strip()[1:-1], selector_of, check)

    def matches(message: str) -> bool:
        if not message.lstrip().startswith("{"):
            return False
        try:
            document = json.loads(message)
        except (ValueError, RecursionError):
            return False
        return condition(document)

    return matches


def selector_of(token: str) -> Select:
    """The values at ``$.a.b[0]`` or ``$.a[*].b``; raises ValueError for no such path."""
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
