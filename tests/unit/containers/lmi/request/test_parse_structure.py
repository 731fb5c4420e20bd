"""Structures and numbers of sequences, under all the names that clients know."""

from typing import Any

import pytest
from tests.unit.containers.lmi.request.test_parse import MESSAGES, inputs, parse

from hostelry.containers.lmi.request.invocation import SequenceCounts
from hostelry.engine.request import Structure

SCHEMA = {"type": "object", "properties": {"b": {"type": "null"}, "a": {"type": "null"}}}
SCHEMA_TEXT = '{"type":"object","properties":{"b":{"type":"null"},"a":{"type":"null"}}}'


@pytest.mark.parametrize(
    ("asked", "structure"),
    [
        pytest.param({}, None, id="none"),
        pytest.param({"response_format": {"type": "text"}}, None, id="any text"),
        pytest.param(
            {"response_format": {"type": "json_object"}}, Structure("json_object"), id="any object"
        ),
        pytest.param(
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "strict": True, "schema": SCHEMA},
                }
            },
            Structure("json_schema", SCHEMA_TEXT),
            id="OpenAI's schema, its properties in their order",
        ),
        pytest.param(
            {"guided_json": SCHEMA}, Structure("json_schema", SCHEMA_TEXT), id="vLLM's schema"
        ),
        pytest.param({"guided_json": "{}"}, Structure("json_schema", "{}"), id="schema as text"),
        pytest.param({"guided_regex": "a+"}, Structure("regex", "a+"), id="a pattern"),
        pytest.param(
            {"guided_grammar": 'root ::= "a"'}, Structure("grammar", 'root ::= "a"'), id="a grammar"
        ),
        pytest.param(
            {"guided_choice": ["a", "é"]}, Structure("choice", '["a","é"]'), id="a choice"
        ),
        pytest.param(
            {"structured_outputs": {"json": SCHEMA, "regex": None}},
            Structure("json_schema", SCHEMA_TEXT),
            id="vLLM's newer words",
        ),
        pytest.param(
            {"structured_outputs": {"json_object": True}}, Structure("json_object"), id="an object"
        ),
        pytest.param(
            {"grammar": {"type": "json", "value": SCHEMA}},
            Structure("json_schema", SCHEMA_TEXT),
            id="TGI's schema",
        ),
        pytest.param(
            {"grammar": {"type": "regex", "value": "a"}},
            Structure("regex", "a"),
            id="TGI's pattern",
        ),
        pytest.param(
            {"guided_regex": "a", "response_format": {"type": "text"}},
            Structure("regex", "a"),
            id="any text says nothing",
        ),
    ],
)
def test_structures(asked: dict[str, Any], structure: Structure | None) -> None:
    for body in (inputs(**asked), {"prompt": "a", **asked}, {"messages": MESSAGES, **asked}):
        assert parse(body).sampling.structure == structure


@pytest.mark.parametrize(
    ("asked", "sequences"),
    [
        pytest.param({}, SequenceCounts(1, 1), id="one"),
        pytest.param({"n": 3}, SequenceCounts(3, 3), id="three"),
        pytest.param({"best_of": 4}, SequenceCounts(1, 4), id="the best"),
        pytest.param({"n": 2, "best_of": 4}, SequenceCounts(2, 4), id="the best two"),
    ],
)
def test_numbers_of_sequences(asked: dict[str, Any], sequences: SequenceCounts) -> None:
    for body in (inputs(**asked), {"prompt": "a", **asked}, {"messages": MESSAGES, **asked}):
        parsed = parse(body)
        assert parsed.sequences == sequences
        assert parsed.form.num_sequences == sequences.returned
