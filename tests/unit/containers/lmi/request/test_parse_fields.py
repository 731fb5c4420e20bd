"""Fields that are not done, and structured output."""

from typing import Any

import pytest
from tests.unit.containers.lmi.request.test_parse import CONTEXT, LEGACY, MESSAGES, inputs, parse

from hostelry.containers.lmi.refusal import Cause, Refusal
from hostelry.containers.lmi.request.invocation import SequenceCounts
from hostelry.engine.request import Structure

SCHEMA = {"type": "object", "properties": {"b": {"type": "null"}, "a": {"type": "null"}}}
SCHEMA_TEXT = '{"type":"object","properties":{"b":{"type":"null"},"a":{"type":"null"}}}'


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            inputs(min_tokens=9, max_new_tokens=8), "at most max_tokens, 8", id="a length beyond"
        ),
        pytest.param({"prompt": "a", "min_tokens": 17}, "max_tokens, 16", id="beyond the default"),
        pytest.param(inputs(truncate=0), "leaves no prompt", id="no token of the prompt"),
        pytest.param(
            {"prompt": "a", "truncation_side": "middle"}, "left or right", id="a middle side"
        ),
        pytest.param(
            {"prompt": "a", "stream_options": {"include_usage": True}}, "stream true",
            id="options of no stream",
        ),
        pytest.param({"prompt": "a", "request_id": "a\nb"}, "printable", id="an id of two lines"),
        pytest.param(
            {"messages": MESSAGES, "chat_template": "x"}, "trust_request_chat_template",
            id="a template of the request",
        ),
        pytest.param(
            {"messages": MESSAGES, "chat_template_kwargs": {"messages": []}}, "cannot set",
            id="messages as a variable",
        ),
        pytest.param(
            {"messages": MESSAGES, "chat_template_kwargs": {"chat_template": "x"}}, "cannot set",
            id="a template as a variable",
        ),
        pytest.param(
            {"messages": MESSAGES, "chat_template_kwargs": dict.fromkeys(map(str, range(101)), 1)},
            "at most 100", id="too many variables",
        ),
        pytest.param(inputs(allowed_token_ids=[]), "is empty", id="no token allowed"),
        pytest.param(inputs(bad_words=[""]), "bad_words", id="an empty bad word"),
        pytest.param(inputs(no_repeat_ngram_size=33), "at most 32", id="a long n-gram"),
        pytest.param(inputs(cache_salt="a/b"), "without @", id="a salt with a slash"),
        pytest.param(inputs(cache_salt="x" * 129), "128 characters", id="a long salt"),
        pytest.param(
            inputs(repetition_detection={"max_pattern_size": 2}), "at least 2", id="no count"
        ),
        pytest.param(
            inputs(repetition_detection={"max_pattern_size": 2, "mode": "x"}), "it knows",
            id="another way to detect",
        ),
        pytest.param({"messages": MESSAGES, "documents": ["a"]}, "documents", id="text documents"),
        pytest.param(
            {"messages": MESSAGES, "reasoning_effort": "huge"}, "one of none", id="a huge effort"
        ),
        pytest.param(
            {"messages": MESSAGES, "continue_final_message": True, "add_generation_prompt": True},
            "both true", id="an answer that continues and begins",
        ),
    ],
)  # fmt: skip
def test_refusals_name_field_and_limit(body: Any, message: str) -> None:
    for context in (CONTEXT, LEGACY):
        with pytest.raises(Refusal, match=message) as refused:
            parse(body, context)
        assert refused.value.cause is Cause.BAD_REQUEST


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
