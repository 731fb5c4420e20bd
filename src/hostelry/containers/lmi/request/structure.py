"""Parser of structured output, under the names of OpenAI, vLLM and TGI."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from hostelry.containers.lmi.refusal import bad_request
from hostelry.containers.lmi.request.fields import BodyFields, show
from hostelry.engine.request import Structure

# Reads a member of a request as its structure.
Reader = Callable[[Any, str], Structure | None]


def parse_structure(fields: BodyFields) -> Structure | None:
    """The requested structure. None for free text. Raises Refusal.

    `response_format` is OpenAI's, `guided_*` and `structured_outputs` are vLLM's, `grammar` is
    TGI's.
    """
    found = {
        name: structure
        for name, read in READERS.items()
        if name in fields and (structure := read(fields.raw(name), name)) is not None
    }
    if len(found) > 1:
        raise bad_request(
            f"{' and '.join(found)} ask for structured output; only one of them can",
            next(iter(found)),
        )
    return next(iter(found.values()), None)


def response_format(value: Any, name: str) -> Structure | None:
    """OpenAI's form: a type, and for json_schema an object of that name with the schema."""
    members = BodyFields(value, name)
    kind = members.text("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return Structure("json_object")
    if kind == "json_schema":
        schema = members.members("json_schema").raw("schema")
        return json_schema(schema, f"{name}.json_schema.schema")
    raise bad_request(
        f"{name}.type is {show(kind)}; it must be text, json_object or json_schema", name
    )


def tgi_grammar(value: Any, name: str) -> Structure:
    """TGI's form: {"type": "json" | "regex", "value": ...}."""
    members = BodyFields(value, name)
    kind = members.text("type")
    if kind in ("json", "json_object"):
        return json_schema(members.raw("value"), f"{name}.value")
    if kind == "regex":
        return regex(members.raw("value"), f"{name}.value")
    raise bad_request(f"{name}.type is {show(kind)}; it must be json or regex", name)


def structured_outputs(value: Any, name: str) -> Structure | None:
    """VLLM's newer form: an object with one member that is not null or false."""
    members = BodyFields(value, name)
    readers: Mapping[str, Reader] = {
        "json": json_schema,
        "json_object": json_object,
        "regex": regex,
        "choice": choice,
        "grammar": grammar,
    }
    found = [
        structure
        for key, read in readers.items()
        if key in members and (structure := read(members.raw(key), f"{name}.{key}")) is not None
    ]
    if len(found) != 1:
        raise bad_request(
            f"{name} is {show(value)}; it must have one of {', '.join(readers)}", name
        )
    return found[0]


def json_object(value: Any, name: str) -> Structure | None:
    """True for any JSON object."""
    if not isinstance(value, bool):
        raise bad_request(f"{name} is {show(value)}; it must be true or false", name)
    return Structure("json_object") if value else None


def json_schema(value: Any, name: str) -> Structure:
    """A schema, or the text of one."""
    if isinstance(value, str):
        return Structure("json_schema", value)
    if not isinstance(value, dict):
        raise bad_request(f"{name} is {show(value)}; it must be a JSON schema", name)
    return Structure("json_schema", msgspec.json.encode(value).decode())


def regex(value: Any, name: str) -> Structure:
    """A pattern for the whole text."""
    return Structure("regex", text(value, name))


def grammar(value: Any, name: str) -> Structure:
    """EBNF with a rule named root."""
    return Structure("grammar", text(value, name))


def choice(value: Any, name: str) -> Structure:
    """A list of texts."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise bad_request(f"{name} is {show(value)}; it must be a list of strings", name)
    return Structure("choice", msgspec.json.encode(value).decode())


def text(value: Any, name: str) -> str:
    """A string that is not empty."""
    if not isinstance(value, str) or not value:
        raise bad_request(f"{name} is {show(value)}; it must be a string", name)
    return value


READERS: Mapping[str, Reader] = {
    "response_format": response_format,
    "structured_outputs": structured_outputs,
    "guided_json": json_schema,
    "guided_regex": regex,
    "guided_grammar": grammar,
    "guided_choice": choice,
    "grammar": tgi_grammar,
}
