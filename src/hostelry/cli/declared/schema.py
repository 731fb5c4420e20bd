"""The published JSON Schema of a document, and the check of values against it."""

import difflib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from hostelry.cli.declared.document import document_type
from hostelry.cli.declared.resource import Path

Found = tuple[Path, str]
Rules = Mapping[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_SHOWN_VALUES = 12
WORDS = {
    "object": "a mapping", "array": "a list", "string": "a text", "integer": "a whole number",
    "number": "a number", "boolean": "true or false", "null": "nothing",
}  # fmt: skip


@cache
def document_schema() -> dict[str, Any]:
    """The schema that editors and `apply` check documents with."""
    found = msgspec.json.schema(document_type())
    return {"$schema": DIALECT, "title": "Documents of `hostelry apply`", **found}


def schema_text() -> str:
    """The text of the published schema, one line per value."""
    return msgspec.json.format(msgspec.json.encode(document_schema())).decode() + "\n"


def faults_in(value: Any) -> Iterator[Found]:
    """Every fault in a document's value: its path and the reason."""
    yield from _faults(document_schema(), value, ())


def _faults(rules: Rules, value: Any, path: Path) -> Iterator[Found]:
    rules = _resolve(rules)
    if "anyOf" in rules:
        yield from _check_any([_resolve(it) for it in rules["anyOf"]], value, path)
        return
    if "enum" in rules:
        yield from _check_enum(rules["enum"], value, path)
        return
    if not _has_type(rules["type"], value):
        yield (
            path,
            f"{shorten_value(value)} is {_type_word(value)}; {WORDS[rules['type']]} is expected",
        )
        return
    if isinstance(value, dict):
        yield from _check_mapping(rules, value, path)
    elif isinstance(value, list):
        yield from _check_length(rules, "Items", value, path)
        for number, inner in enumerate(value):
            yield from _faults(rules.get("items", {"anyOf": []}), inner, (*path, number))
    elif isinstance(value, str):
        yield from _check_length(rules, "Length", value, path)
        if "pattern" in rules and not re.search(rules["pattern"], value):
            yield path, f"{shorten_value(value)} does not match {rules['pattern']}"
    else:
        yield from _check_number(rules, value, path)


def _resolve(rules: Rules) -> Rules:
    while "$ref" in rules:
        definitions: Rules = document_schema()["$defs"]
        rules = definitions[rules["$ref"].rpartition("/")[2]]
    return rules


def _check_any(options: list[Rules], value: Any, path: Path) -> Iterator[Found]:
    fitting = [it for it in options if _has_type(it.get("type", ""), value)]
    if fitting:
        yield from min((list(_faults(it, value, path)) for it in fitting), key=len)
    elif options:
        words = " or ".join(dict.fromkeys(WORDS[it["type"]] for it in options))
        yield path, f"{shorten_value(value)} is {_type_word(value)}; {words} is expected"


def _check_enum(allowed: list[Any], value: Any, path: Path) -> Iterator[Found]:
    if value in allowed and not isinstance(value, bool):
        return
    near = near_misses(value, [str(it) for it in allowed])
    some = allowed[:MAX_SHOWN_VALUES]
    listed = ", ".join(map(str, some)) + (", ..." if len(allowed) > len(some) else "")
    yield path, f"{shorten_value(value)} is not allowed; {near or f'it is one of {listed}'}"


def _check_mapping(rules: Rules, value: dict[str, Any], path: Path) -> Iterator[Found]:
    known: Rules = rules.get("properties", {})
    others = rules.get("additionalProperties", True)
    for name in rules.get("required", ()):
        if name not in value:
            yield path, f"{name} is required"
    for name, inner in value.items():
        if name in known:
            yield from _faults(known[name], inner, (*path, name))
        elif isinstance(others, dict):
            yield from _faults(others, inner, (*path, name))
        elif others is False:
            near = near_misses(name, list(known))
            listed = f"fields are {', '.join(sorted(known))}"
            yield (*path, name), f"there is no such field; {near or listed}"


def _check_length(rules: Rules, of: str, value: Any, path: Path) -> Iterator[Found]:
    unit = "characters" if of == "Length" else "items"
    least, most = rules.get(f"min{of}", 0), rules.get(f"max{of}")
    if len(value) < least:
        yield path, f"it has {len(value)} {unit}; at least {least} are needed"
    if most is not None and len(value) > most:
        yield path, f"it has {len(value)} {unit}; at most {most} are allowed"


def _check_number(rules: Rules, value: Any, path: Path) -> Iterator[Found]:
    least, most = rules.get("minimum"), rules.get("maximum")
    below = least is not None and value < least
    above = most is not None and value > most
    if below or above:
        limits = f"at least {least}" if most is None else f"{least} to {most}"
        yield path, f"{value} is out of range; it is {limits}"


def _has_type(kind: str, value: Any) -> bool:
    match kind:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
    return value is None


def _type_word(value: Any) -> str:
    return next(word for kind, word in WORDS.items() if _has_type(kind, value))


def shorten_value(value: Any) -> str:
    """A shortened value for error messages."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else f"{text[:57]}..."


def near_misses(given: Any, known: list[str]) -> str:
    """A question with the known names most similar to `given`. Empty if no name is similar."""
    folded = {it.lower(): it for it in known}
    found = difflib.get_close_matches(str(given).lower(), folded, n=2, cutoff=0.7)
    return f"is it {' or '.join(folded[it] for it in found)}?" if found else ""
