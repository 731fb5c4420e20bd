"""Parser of a request's body: content type, then schema, then the schema's parser."""

import csv
import io
import sys
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from hostelry.containers.lmi.refusal import Surface, bad_request
from hostelry.containers.lmi.request.context import ParseContext
from hostelry.containers.lmi.request.field_table import ignored_fields
from hostelry.containers.lmi.request.fields import BodyFields, parse_json
from hostelry.containers.lmi.request.inputs import parse_inputs
from hostelry.containers.lmi.request.invocation import Invocation, Schema
from hostelry.containers.lmi.request.openai import parse_chat, parse_completion
from hostelry.containers.lmi.request.responses_api import parse_responses
from hostelry.containers.lmi.request.sampling import add_beams
from hostelry.containers.lmi.sessions import SessionRequest, parse_session_request

csv.field_size_limit(sys.maxsize)  # the body's limit bounds a cell

PARSERS: Mapping[Schema, Callable[[BodyFields, ParseContext], Invocation]] = {
    Schema.COMPLETION: parse_completion,
    Schema.INPUTS: parse_inputs,
    Schema.CHAT: parse_chat,
    Schema.RESPONSES: parse_responses,
}
ORDER: Mapping[Surface, tuple[Schema, ...]] = {
    Surface.ASYNC: (Schema.COMPLETION, Schema.INPUTS, Schema.CHAT),
    Surface.LEGACY: (Schema.CHAT, Schema.INPUTS, Schema.COMPLETION),
    Surface.OPENAI: (Schema.CHAT, Schema.COMPLETION, Schema.INPUTS),
}


def parse_invocation(
    content_type: str, body: bytes, context: ParseContext
) -> Invocation | SessionRequest:
    """The invocation, or the session request, of a body of `/invocations`. Raises Refusal.

    The body's members decide the schema.
    """
    fields = body_fields(content_type, body)
    for schema in ORDER[context.dialect]:
        if schema.value in fields:
            return parse_fields(schema, fields, context)
    if "requestType" in fields:
        return parse_session_request(fields.raw("requestType"))
    raise bad_request("invalid payload. must contain prompt, inputs, or messages")


def parse_as(schema: Schema, body: bytes, context: ParseContext) -> Invocation:
    """The invocation of a body of an OpenAI route. Raises Refusal."""
    return parse_members(schema, parse_json(body), context)


def parse_members(schema: Schema, members: object, context: ParseContext) -> Invocation:
    """The invocation of a JSON object of an OpenAI route. Raises Refusal."""
    return parse_fields(schema, BodyFields(members, "the body"), context)


def parse_fields(schema: Schema, fields: BodyFields, context: ParseContext) -> Invocation:
    """The invocation of a body of this schema. Raises Refusal."""
    ignored = ignored_fields(schema, fields, strict=context.strict_fields)
    asked = fields.members("parameters") if schema is Schema.INPUTS else fields
    invocation = add_beams(PARSERS[schema](fields, context), asked)
    ignored = (*invocation.ignored_fields, *ignored)
    return replace(invocation, ignored_fields=ignored) if ignored else invocation


def body_fields(content_type: str, body: bytes) -> BodyFields:
    """The members of a body of any accepted content type."""
    kind = content_type.split(";")[0].strip().lower()
    if kind == "text/plain":
        return BodyFields({"inputs": [decode(body)]}, "the body")
    if kind == "text/csv":
        return BodyFields({"inputs": csv_inputs(decode(body).removeprefix("\ufeff"))}, "the body")
    return BodyFields(parse_json(body), "the body")


def decode(body: bytes) -> str:
    """The body as UTF-8 text."""
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise bad_request(f"the body is not UTF-8 text: {error}") from error


def csv_inputs(text: str) -> list[str]:
    """The `inputs` column of a CSV table with a header row."""
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise bad_request(f"the body is not a CSV table: {error}") from error
    inputs = [row.get("inputs") for row in rows]
    if not inputs or None in inputs:
        raise bad_request("a CSV body needs a header row with a column named inputs, and a row")
    return [str(each) for each in inputs]
