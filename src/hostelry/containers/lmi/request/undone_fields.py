"""The fields of a body that are not done: refused ones, and those outside the table."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from hostelry.containers.lmi.refusal import Refusal, bad_request
from hostelry.containers.lmi.request.field_table import (
    INPUTS,
    PARAMETERS,
    TABLE,
    Fate,
    FieldRow,
)
from hostelry.containers.lmi.request.fields import SHOWN_CHARACTERS, BodyFields, shown
from hostelry.containers.lmi.request.invocation import Schema

IGNORED_HEADER = "x-hostelry-ignored-fields"
MAX_NAMED = 20  # fields in the header
# Place -> names of the objects whose members have rows.
OBJECTS: Mapping[str, frozenset[str]] = {
    place: frozenset(name.split(".")[0] for name in rows if "." in name)
    for place, rows in TABLE.items()
}


def ignored_fields(schema: Schema, body: BodyFields, *, strict: bool) -> tuple[str, ...]:
    """The names in `body` that are outside the table, in its order.

    Raises Refusal for a field that is refused, and if `strict` for one outside the table. None of
    a schema without a table, whose parser refuses every field that it does not know.
    """
    if schema.value not in TABLE:
        return ()
    names = list(outside(schema.value, "", body))
    if schema is Schema.INPUTS and PARAMETERS in body:
        names += outside(PARAMETERS, "", body.members(PARAMETERS))
    if names and strict:
        raise unknown_field(schema, names[0])
    return tuple(names)


def outside(place: str, prefix: str, fields: BodyFields) -> Iterable[str]:
    """The names of `fields` that have no row in `place`. Raises Refusal for a refused field."""
    rows = TABLE[place]
    for name in fields.names():
        row = rows.get(prefix + name)
        if row is None:
            yield prefix + name
        elif row.fate is Fate.REFUSED:
            check_neutral(row, fields.raw(name))
        if not prefix and name in OBJECTS[place] and isinstance(fields.raw(name), dict):
            yield from outside(place, f"{name}.", fields.members(name))


def check_neutral(row: FieldRow, value: object) -> None:
    """Raise Refusal unless `value` asks for what is done anyway."""
    if not any(value == each for each in row.neutral):
        raise bad_request(f"{row.name} is {shown(value)}: {row.reason}; leave it out", row.name)


def unknown_field(schema: Schema, name: str) -> Refusal:
    """The refusal of a field outside the table, with names that are close to it."""
    place = PARAMETERS if schema is Schema.INPUTS else schema.value
    cut = name[:SHOWN_CHARACTERS]
    hint = ""
    if schema is Schema.INPUTS and name in TABLE[PARAMETERS]:
        hint = "; put it into parameters"
    elif close := difflib.get_close_matches(cut, [*TABLE[place], *TABLE[schema.value]], 3):
        hint = f"; did you mean {' or '.join(dict.fromkeys(close))}?"
    where = f"a body with {schema.value}" if place != PARAMETERS else f"{INPUTS} or {PARAMETERS}"
    return bad_request(f"{shown(name)} is no field of {where} that this server knows{hint}", cut)


def ignored_header(names: Sequence[str]) -> dict[str, str]:
    """The response header that names ignored fields, percent-encoded; none for no names."""
    if not names:
        return {}
    shown_names = [quote(name[:SHOWN_CHARACTERS], safe="") for name in names[:MAX_NAMED]]
    more = [f"and {len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else []
    return {IGNORED_HEADER: ", ".join([*shown_names, *more])}
