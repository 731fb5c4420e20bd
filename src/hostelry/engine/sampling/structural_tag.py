"""Structural tags: structures that join fixed text, control tokens, schemas and free text.

The JSON schemas in them are those that structured output enforces exactly; all others are refused,
by keyword. Source: xgrammar's documentation of structural tags.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from hostelry.base.json import nests_deeper
from hostelry.engine.sampling.grammar import GrammarError
from hostelry.engine.sampling.json_schema import (
    MAX_NESTING,
    MAX_WHITESPACE,
    kept_json_schema,
)

_SCHEMA = "json_schema"
_MAX_TAG_NESTING = MAX_NESTING + 50


def kept_structural_tag(text: str) -> str:
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
    for holder in _holders(tag):
        schema = msgspec.json.encode(holder[_SCHEMA]).decode()
        holder[_SCHEMA] = msgspec.json.decode(kept_json_schema(schema))
        holder["max_whitespace_cnt"] = MAX_WHITESPACE
    return msgspec.json.encode({"type": "structural_tag", "format": tag}).decode()


def schemas_of(tag: Any) -> Iterator[Any]:
    """All JSON schemas in a structural tag."""
    for holder in _holders(tag):
        yield holder[_SCHEMA]


def _holders(tag: Any) -> Iterator[dict[str, Any]]:
    """The formats that hold a schema."""
    if isinstance(tag, list):
        for inner in tag:
            yield from _holders(inner)
    elif isinstance(tag, dict) and tag.get("type") == _SCHEMA and _SCHEMA in tag:
        yield tag
    elif isinstance(tag, dict):
        for inner in tag.values():
            yield from _holders(inner)
