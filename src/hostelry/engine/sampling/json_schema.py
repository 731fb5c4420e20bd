"""JSON schemas and structural tags that structured output enforces exactly.

The grammar library ignores keywords that it does not know, so that a text it accepts may violate
the schema. Therefore only keywords that are enforced are accepted, and all others are refused by
name. An object's properties come in the schema's order, and no others unless `additionalProperties`
allows them: every text is valid, but not every valid text can be generated. Likewise strings with a
length or a pattern contain no character that JSON escapes.

Sources: JSON Schema 2020-12, core and validation, and xgrammar's documentation of structural tags.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from hostelry.base.json import nests_deeper
from hostelry.engine.sampling.grammar import GrammarError

MAX_DEPTH = 64
MAX_NESTING = 3 * MAX_DEPTH  # of lists and objects. A schema in a schema takes two at most
MAX_SCHEMAS = 4096
_SCHEMA = "json_schema"
_MAX_TAG_NESTING = MAX_NESTING + 50
MAX_WHITESPACE = 8  # characters between two elements of a JSON text
MAX_LENGTH = 2000  # compiling takes time with its square
_SHOWN_CHARACTERS = 60

_ANNOTATIONS = frozenset(
    {
        "title", "description", "default", "examples", "$comment", "deprecated", "readOnly",
        "writeOnly", "$schema", "$defs", "definitions",
    }
)  # fmt: skip
_NUMBER = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_KEYWORDS: Mapping[str, frozenset[str]] = {
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "integer": _NUMBER,
    "number": _NUMBER,
    "boolean": frozenset(),
    "null": frozenset(),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems"}),
    "object": frozenset(
        {"properties", "required", "additionalProperties", "minProperties", "maxProperties"}
    ),
}
_FORMATS = frozenset({"date", "time", "date-time", "uuid", "ipv4", "ipv6", "hostname", "uri"})
_LENGTH_PATTERN = re.compile(r"\^\.\{\d+,\d*\}\$")
_LENGTHS = ("minLength", "maxLength")
_ALONE = ("$ref", "anyOf", "allOf")  # each excludes all other keywords
_FITS: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def rewrite_json_schema(text: str) -> str:
    """The schema in keywords that the grammar library enforces: string lengths become patterns.

    Raises GrammarError, naming path and keyword, for a schema that cannot be enforced.
    """
    try:
        schema = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise GrammarError(f"the JSON schema is not JSON: {error}") from error
    if nests_deeper(schema, MAX_NESTING):
        raise GrammarError(f"the JSON schema nests deeper than {MAX_NESTING} lists and objects")
    _Walk(schema).check(schema, "$", 0)
    return msgspec.json.encode(schema).decode()


def find_patterns(schema: Any) -> Iterator[str]:
    """All patterns in a checked schema, except those that replace lengths."""
    if isinstance(schema, dict):
        pattern = schema.get("pattern")
        if isinstance(pattern, str) and not _LENGTH_PATTERN.fullmatch(pattern):
            yield pattern
        for inner in schema.values():
            yield from find_patterns(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from find_patterns(inner)


class _Walk:
    """One traversal of a schema, which counts its subschemas."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._num_schemas = 0

    def check(self, schema: Any, where: str, depth: int) -> None:
        """Check a schema and its subschemas. Replaces lengths by a pattern, in place."""
        self._num_schemas += 1
        if depth > MAX_DEPTH or self._num_schemas > MAX_SCHEMAS:
            raise GrammarError(
                f"the JSON schema nests deeper than {MAX_DEPTH} or holds more than {MAX_SCHEMAS} "
                "schemas; make it smaller"
            )
        if schema is True:
            return
        if not isinstance(schema, dict):
            raise GrammarError(f"{where} is {_quote(schema)}; it must be a JSON schema (an object)")
        self._check_keywords(schema, where)
        for name in ("$defs", "definitions", "properties"):
            for key, inner in _read_members(schema, name, where).items():
                self.check(inner, f"{where}.{name}.{key[:_SHOWN_CHARACTERS]}", depth + 1)
        for name in ("anyOf", "allOf", "prefixItems"):
            for number, inner in enumerate(_read_list(schema, name, where)):
                self.check(inner, f"{where}.{name}[{number}]", depth + 1)
        for name in ("items", "additionalProperties"):
            if schema.get(name, False) is not False:
                self.check(schema[name], f"{where}.{name}", depth + 1)

    def _check_keywords(self, schema: dict[str, Any], where: str) -> None:
        used = schema.keys() - _ANNOTATIONS
        for alone in _ALONE:
            if alone in used:
                others = sorted(used - {alone})
                if others:
                    raise GrammarError(f"{where} has {alone} beside {others[0]}; only one of them")
                self._check_alone(alone, schema[alone], where)
                return
        types = _read_types(schema, where)
        for name in ("enum", "const"):
            if name in used:
                _check_values(name, schema, types, where)
                used -= {name, "type"}
                if used:
                    raise GrammarError(f"{where} has {name} beside {min(used)}; only one of them")
                return
        _check_known(used - {"type"}, types, where)
        _check_string(schema, where)
        _check_required(schema, where)

    def _check_alone(self, name: str, value: Any, where: str) -> None:
        if name == "$ref":
            self._check_reference(value, where)
        elif name == "allOf" and not (isinstance(value, list) and len(value) == 1):
            raise GrammarError(f"{where}.allOf must hold one schema; join them into one")
        elif not isinstance(value, list) or not value:
            raise GrammarError(f"{where}.{name} is {_quote(value)}; it must be a list of schemas")

    def _check_reference(self, reference: Any, where: str) -> None:
        parts = str(reference).split("/")
        if not isinstance(reference, str) or parts[0] != "#" or "~" in reference:
            raise GrammarError(
                f"{where}.$ref is {_quote(reference)}; it must point into this schema: #/$defs/NAME"
            )
        target = self._root
        for part in parts[1:]:
            if not isinstance(target, dict) or part not in target:
                raise GrammarError(f"{where}.$ref is {_quote(reference)}, which is not there")
            target = target[part]


def _read_types(schema: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """The types that a schema names. Empty without a type."""
    if "type" not in schema:
        return ()
    value = schema["type"]
    names = value if isinstance(value, list) else [value]
    if not names or any(not isinstance(name, str) or name not in _KEYWORDS for name in names):
        raise GrammarError(f"{where}.type is {_quote(value)}; it must be of {', '.join(_KEYWORDS)}")
    return tuple(names)


def _check_known(used: set[str], types: tuple[str, ...], where: str) -> None:
    """Raise GrammarError for a keyword that is not enforced, or not for the schema's types."""
    families = types or tuple(name for name, words in _KEYWORDS.items() if used & words)[:1]
    allowed = frozenset[str]().union(*(_KEYWORDS[name] for name in families))
    unknown = sorted(used - allowed)
    if unknown:
        raise GrammarError(
            f"{where} has {_quote(unknown[0])}, which cannot be kept exactly"
            + (f" for {' and '.join(families)}" if families else "")
            + "; leave it out, or say it with keywords that can: "
            + ", ".join(sorted(allowed) or [*_ALONE, "enum", "const", "type"])
        )


def _check_string(schema: dict[str, Any], where: str) -> None:
    given = sorted(schema.keys() & {"pattern", "format", *_LENGTHS})
    if len(given) > 1 and ("pattern" in given or "format" in given):
        raise GrammarError(f"{where} has {' and '.join(given)}; only one of them can be kept")
    if "format" in given and schema["format"] not in _FORMATS:
        raise GrammarError(
            f"{where}.format is {_quote(schema['format'])}; it must be of "
            + ", ".join(sorted(_FORMATS))
        )
    pattern = schema.get("pattern", "^$")
    if not isinstance(pattern, str) or not (pattern.startswith("^") and pattern.endswith("$")):
        raise GrammarError(
            f"{where}.pattern is {_quote(pattern)}; it must describe the whole text: ^...$"
        )
    if schema.keys() & set(_LENGTHS):
        low, high = (_read_length(schema, name, where) for name in _LENGTHS)
        schema["pattern"] = f"^.{{{low or 0},{'' if high is None else high}}}$"
        for name in _LENGTHS:
            schema.pop(name, None)


def _read_length(schema: Mapping[str, Any], name: str, where: str) -> int | None:
    value = schema.get(name)
    if value is not None and not (_FITS["integer"](value) and 0 <= value <= MAX_LENGTH):
        raise GrammarError(f"{where}.{name} is {_quote(value)}; it must be 0 to {MAX_LENGTH}")
    return None if value is None else int(value)


def _check_required(schema: Mapping[str, Any], where: str) -> None:
    known = schema.get("properties", {})
    for name in _read_list(schema, "required", where):
        if name not in known:
            raise GrammarError(f"{where}.required names {_quote(name)}, which is no property of it")


def _check_values(name: str, schema: Mapping[str, Any], types: tuple[str, ...], where: str) -> None:
    values = [schema["const"]] if name == "const" else _read_list(schema, "enum", where)
    for value in values:
        if types and not any(_FITS[each](value) for each in types):
            raise GrammarError(
                f"{where}.{name} holds {_quote(value)}, which is not of type {' or '.join(types)}"
            )


def _read_members(schema: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    value = schema.get(name, {})
    if not isinstance(value, dict):
        raise GrammarError(f"{where}.{name} is {_quote(value)}; it must be an object")
    return value


def _read_list(schema: Mapping[str, Any], name: str, where: str) -> list[Any]:
    value = schema.get(name, [])
    if not isinstance(value, list):
        raise GrammarError(f"{where}.{name} is {_quote(value)}; it must be a list")
    return value


def _quote(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."


def rewrite_structural_tag(text: str) -> str:
    """The structural tag with its schemas in keywords that the grammar library enforces.

    Raises GrammarError, naming path and keyword, for a schema that cannot be enforced.
    """
    try:
        tag = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise GrammarError(f"the structural tag is not JSON: {error}") from error
    if nests_deeper(tag, _MAX_TAG_NESTING):
        raise GrammarError(
            f"the structural tag nests deeper than {_MAX_TAG_NESTING} lists and objects"
        )
    for holder in _find_holders(tag):
        schema = msgspec.json.encode(holder[_SCHEMA]).decode()
        holder[_SCHEMA] = msgspec.json.decode(rewrite_json_schema(schema))
        holder["max_whitespace_cnt"] = MAX_WHITESPACE
    return msgspec.json.encode({"type": "structural_tag", "format": tag}).decode()


def find_schemas(tag: Any) -> Iterator[Any]:
    """All JSON schemas in a structural tag."""
    for holder in _find_holders(tag):
        yield holder[_SCHEMA]


def _find_holders(tag: Any) -> Iterator[dict[str, Any]]:
    """The formats that hold a schema."""
    if isinstance(tag, list):
        for inner in tag:
            yield from _find_holders(inner)
    elif isinstance(tag, dict) and tag.get("type") == _SCHEMA and _SCHEMA in tag:
        yield tag
    elif isinstance(tag, dict):
        for inner in tag.values():
            yield from _find_holders(inner)
