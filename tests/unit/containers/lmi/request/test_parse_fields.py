"""Fields that are not done, and structured output."""

from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.containers.lmi.request.test_parse import CONTEXT, LEGACY, MESSAGES, inputs, parse

from hostelry.containers.lmi.refusal import Cause, Refusal
from hostelry.containers.lmi.request.invocation import SequenceCounts
from hostelry.engine.request import Structure

SCHEMA = {"type": "object", "properties": {"b": {"type": "null"}, "a": {"type": "null"}}}
SCHEMA_TEXT = '{"type":"object","properties":{"b":{"type":"null"},"a":{"type":"null"}}}'


@cases(
    "body, message",
    case("a length beyond", inputs(min_tokens=9, max_new_tokens=8), "at most max_tokens, 8"),
    case("beyond the default", {"prompt": "a", "min_tokens": 17}, "max_tokens, 16"),
    case("no token of the prompt", inputs(truncate=0), "leaves no prompt"),
    case("a middle side", {"prompt": "a", "truncation_side": "middle"}, "left or right"),
    case("options of no stream", {"prompt": "a", "stream_options": {"include_usage": True}},
        "stream true"),
    case("an id of two lines", {"prompt": "a", "request_id": "a\nb"}, "printable"),
    case("a template of the request", {"messages": MESSAGES, "chat_template": "x"},
        "trust_request_chat_template"),
    case("messages as a variable", {"messages": MESSAGES, "chat_template_kwargs": {"messages": []}},
        "cannot set"),
    case("a template as a variable",
        {"messages": MESSAGES, "chat_template_kwargs": {"chat_template": "x"}}, "cannot set"),
    case("too many variables",
        {"messages": MESSAGES, "chat_template_kwargs": dict.fromkeys(map(str, range(101)), 1)},
        "at most 100"),
    case("no token allowed", inputs(allowed_token_ids=[]), "is empty"),
    case("an empty bad word", inputs(bad_words=[""]), "bad_words"),
    case("a long n-gram", inputs(no_repeat_ngram_size=33), "at most 32"),
    case("a salt with a slash", inputs(cache_salt="a/b"), "without @"),
    case("a long salt", inputs(cache_salt="x" * 129), "128 characters"),
    case("no count", inputs(repetition_detection={"max_pattern_size": 2}), "at least 2"),
    case("another way to detect", inputs(repetition_detection={"max_pattern_size": 2, "mode": "x"}),
        "it knows"),
    case("text documents", {"messages": MESSAGES, "documents": ["a"]}, "documents"),
    case("a huge effort", {"messages": MESSAGES, "reasoning_effort": "huge"}, "one of none"),
    case("an answer that continues and begins",
        {"messages": MESSAGES, "continue_final_message": True, "add_generation_prompt": True},
        "both true"),
)  # fmt: skip
def test_refusals_name_field_and_limit(body: Any, message: str) -> None:
    for context in (CONTEXT, LEGACY):
        with pytest.raises(Refusal, match=message) as refused:
            parse(body, context)
        assert refused.value.cause is Cause.BAD_REQUEST


@cases(
    "asked, structure",
    case("none", {}, None),
    case("any text", {"response_format": {"type": "text"}}, None),
    case("any object", {"response_format": {"type": "json_object"}}, Structure("json_object")),
    case(
        "OpenAI's schema, its properties in their order",
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "strict": True, "schema": SCHEMA},
            }
        },
        Structure("json_schema", SCHEMA_TEXT),
    ),
    case("vLLM's schema", {"guided_json": SCHEMA}, Structure("json_schema", SCHEMA_TEXT)),
    case("schema as text", {"guided_json": "{}"}, Structure("json_schema", "{}")),
    case("a pattern", {"guided_regex": "a+"}, Structure("regex", "a+")),
    case("a grammar", {"guided_grammar": 'root ::= "a"'}, Structure("grammar", 'root ::= "a"')),
    case("a choice", {"guided_choice": ["a", "é"]}, Structure("choice", '["a","é"]')),
    case(
        "vLLM's newer words",
        {"structured_outputs": {"json": SCHEMA, "regex": None}},
        Structure("json_schema", SCHEMA_TEXT),
    ),
    case("an object", {"structured_outputs": {"json_object": True}}, Structure("json_object")),
    case(
        "TGI's schema",
        {"grammar": {"type": "json", "value": SCHEMA}},
        Structure("json_schema", SCHEMA_TEXT),
    ),
    case("TGI's pattern", {"grammar": {"type": "regex", "value": "a"}}, Structure("regex", "a")),
    case(
        "any text says nothing",
        {"guided_regex": "a", "response_format": {"type": "text"}},
        Structure("regex", "a"),
    ),
)
def test_structures(asked: dict[str, Any], structure: Structure | None) -> None:
    for body in (inputs(**asked), {"prompt": "a", **asked}, {"messages": MESSAGES, **asked}):
        assert parse(body).sampling.structure == structure


@cases(
    "asked, sequences",
    case("one", {}, SequenceCounts(1, 1)),
    case("three", {"n": 3}, SequenceCounts(3, 3)),
    case("the best", {"best_of": 4}, SequenceCounts(1, 4)),
    case("the best two", {"n": 2, "best_of": 4}, SequenceCounts(2, 4)),
)
def test_numbers_of_sequences(asked: dict[str, Any], sequences: SequenceCounts) -> None:
    for body in (inputs(**asked), {"prompt": "a", **asked}, {"messages": MESSAGES, **asked}):
        parsed = parse(body)
        assert parsed.sequences == sequences
        assert parsed.form.num_sequences == sequences.returned
