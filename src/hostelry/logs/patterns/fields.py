"""Patterns of events whose fields are separated by spaces: ``[ip, ..., status=4*, bytes]``."""

import re
from collections.abc import Mapping, Sequence

from hostelry.logs.patterns.conditions import Condition, Select, parse_condition, tokens_of

MAX_FIELDS = 256
REST = "..."
_CLOSING = {'"': '"', "[": "]"}
_BEGIN = re.compile(r'["\[]|\S+')
_WORD = re.compile(r"\S+")
_SPLIT = re.compile(r',|"(?:[^"\\]|\\.)*"|[^,"]+|"')
_NAME = re.compile(r"[A-Za-z_$@][\w.$@-]*")
Values = Mapping[str, str]


def field_pattern(text: str) -> Condition:
    """Whether an event has exactly these fields and meets their conditions.

    Raises ValueError where the pattern is invalid.
    """
    parts = parts_of(text.strip()[1:-1])
    if len(parts) > MAX_FIELDS:
        raise ValueError(f"it has more than {MAX_FIELDS} fields")
    if parts.count(REST) > 1:
        raise ValueError(f"{REST} may stand once")
    names = [_name_of(part) for part in parts]
    conditions = [
        parse_condition(part, _selector_of)
        for part, name in zip(parts, names, strict=True)
        if part != REST and part != name
    ]

    def matches(message: str) -> bool:
        values = values_of(names, fields_of(message))
        return values is not None and all(it(values) for it in conditions)

    return matches


def parts_of(text: str) -> list[str]:
    """The parts between commas that stand outside of quotes."""
    parts = [""]
    for piece in _SPLIT.findall(text):
        if piece == ",":
            parts.append("")
        else:
            parts[-1] += piece
    return [part.strip() for part in parts]


def fields_of(message: str) -> list[str]:
    """The fields of an event: words, and texts in quotes or brackets."""
    # A pattern would search the whole rest for the end of each bracket that is never closed.
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


def values_of(names: Sequence[str], fields: Sequence[str]) -> Values | None:
    """The event's fields by name; None where their number is another."""
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


def _name_of(part: str) -> str:
    """The name of the field that a part is about; empty where it has none."""
    if part in ("", REST):
        return part
    name = next((it for it in tokens_of(part) if it != "("), "")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{part!r} does not begin with a field's name")
    return name


def _selector_of(name: str) -> Select:
    def select(values: Values) -> Sequence[str]:
        return [values[name]] if name in values else []

    return select
