"""Each row of the table of fields, over HTTP: done ones act, refused ones are refused by name."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Any, get_type_hints

import pytest
from msgspec.structs import asdict
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params
from tests.selection import first_alone
from tests.unit.containers.lmi.tiny import Answer, ask, config, fake, server

from hostelry.containers.lmi.http.server import LmiServer
from hostelry.containers.lmi.request.field_table import (
    INPUTS,
    MESSAGES,
    PARAMETERS,
    PROMPT,
    ROWS,
    TABLE,
    Fate,
    FieldRow,
    by_place,
)

TRUSTING = config(
    "option.enable_lora=true\noption.trust_request_chat_template=true\n"
    "option.tool_call_parser=hermes\noption.reasoning_parser=qwen3"
)
PATHS = {PROMPT: "/v1/completions", MESSAGES: "/v1/chat/completions"}
USER = {"role": "user", "content": "hi there"}
BODIES: Mapping[str, dict[str, Any]] = {
    PROMPT: {"prompt": "hi there"},
    MESSAGES: {"messages": [USER], "max_tokens": 20},
    INPUTS: {"inputs": "hi there"},
    PARAMETERS: {"inputs": "hi there"},
}
TOOLS = [{"type": "function", "function": {"name": "f"}}]
WITH_TOOLS = {"chat_template": "{{ tools }}a"}
# A value that changes the answer or the engine's request, with other fields if it needs them.
EFFECTS: Mapping[str, Any] = {
    "prompt": "ho", "inputs": "ho", "messages": [{"role": "user", "content": "ho"}],
    "parameters": {"max_new_tokens": 2},
    "model": "es", "adapters": "es", "adapter": "es", "adapter_id": "es",
    "stream": True,
    "stream_options": ({"include_usage": True}, {"stream": True}),
    "stream_options.include_usage": ({"include_usage": True}, {"stream": True}),
    "stream_options.continuous_usage_stats": (
        {"include_usage": True, "continuous_usage_stats": True},
        {"stream": True, "stream_options": {"include_usage": True}},
    ),
    "output_formatter": "sse", "details": True, "return_full_text": True,
    "echo": (True, {"messages": [USER, {"role": "assistant", "content": "so"}],
                    "add_generation_prompt": False}),
    "truncate": 2, "truncate_prompt_tokens": 2,
    "truncation_side": ("right", {"truncate_prompt_tokens": 2}),
    "add_generation_prompt": False,
    "continue_final_message": (True, {"messages": [USER, {"role": "assistant", "content": "so"}]}),
    "chat_template_kwargs": ({"name": "x"}, {"chat_template": "{{ name }}a"}),
    "documents": ([{"text": "x"}], {"chat_template": "{{ documents }}a"}),
    "chat_template": "{{ messages[0].content }}!",
    "reasoning_effort": ("low", {"chat_template": "{{ enable_thinking }}{{ reasoning_effort }}a"}),
    "thinking_token_budget": 5,
    "include_reasoning": (False, {"chat_template": "a<think>"}),
    "tools": (TOOLS, WITH_TOOLS),
    "tool_choice": ("required", {"tools": TOOLS, **WITH_TOOLS}),
    "parallel_tool_calls": (False, {"tools": TOOLS, "tool_choice": "required", **WITH_TOOLS}),
    "return_prompt_text": True, "return_token_ids": True,
    "return_tokens_as_token_ids": (True, {"logprobs": 1}),
    "request_id": "mine",
    "max_tokens": 2, "max_completion_tokens": 2, "max_new_tokens": 2,
    "min_tokens": 2, "min_new_tokens": 2,
    "stop": "base", "stop_sequences": ["base"],
    "include_stop_str_in_output": (True, {"stop": "base"}),
    "stop_token_ids": [5], "ignore_eos": True, "ignore_eos_token": True,
    "do_sample": False, "temperature": 0.5, "top_p": 0.5, "top_k": 3, "min_p": 0.1, "seed": 8,
    "presence_penalty": 1, "frequency_penalty": 1, "repetition_penalty": 1.1,
    "allowed_token_ids": [5, 6], "bad_words": ["bad"], "no_repeat_ngram_size": 2,
    "cache_salt": "pepper",
    "repetition_detection": {"max_pattern_size": 2, "min_count": 2},
    "logit_bias": {"5": 1}, "n": 2, "best_of": 2,
    "logprobs": 1, "top_logprobs": (2, {"logprobs": True}), "top_n_tokens": (2, {"details": True}),
    "prompt_logprobs": (1, {"details": True}), "decoder_input_details": (True, {"details": True}),
    "skip_special_tokens": False,
    "response_format": {"type": "json_object"},
    "response_format.type": ({"type": "json_object"}, {"response_format": {"type": "text"}}),
    "response_format.json_schema": {"type": "json_schema", "json_schema": {"schema": {}}},
    "structured_outputs": {"regex": "a"}, "structured_outputs.json": {"json": {}},
    "structured_outputs.json_object": {"json_object": True},
    "structured_outputs.regex": {"regex": "a"}, "structured_outputs.choice": {"choice": ["a"]},
    "structured_outputs.grammar": {"grammar": "root ::= \"a\""},
    "guided_json": {}, "guided_regex": "a", "guided_grammar": "root ::= \"a\"",
    "guided_choice": ["a"], "grammar": {"type": "regex", "value": "a"},
}  # fmt: skip
# In these schemas the value that has an effect is another one.
ELSEWHERE: Mapping[tuple[str, str], Any] = {
    (PROMPT, "echo"): True,
    (PROMPT, "logprobs"): 0,
    (PROMPT, "prompt_logprobs"): 1,
    (MESSAGES, "prompt_logprobs"): 1,
    (MESSAGES, "logprobs"): True,
    (PARAMETERS, "logprobs"): (3, {"details": True}),
    (MESSAGES, "return_tokens_as_token_ids"): (True, {"logprobs": True}),
}
# Fields with only a check: a refused value, with other fields.
WRONG: Mapping[str, Any] = {"documents": 7}
CHECKS: Mapping[str, Any] = {
    "spaces_between_special_tokens": (False, {"skip_special_tokens": False}),
    "add_special_tokens": "maybe",
    "use_beam_search": "maybe",
    "num_beams": "x",
    "beam_width": "x",
    "length_penalty": ("x", {"num_beams": 2}),
    "early_stopping": ("x", {"num_beams": 2}),
}


def cases(fate: Fate, *, nested: bool) -> list[Any]:
    """Row and place of each field of this fate. `nested` adds members of objects."""
    return [
        pytest.param(row, place, id=f"{row.name} in {place} is {row.fate.value}")
        for row in ROWS
        for place in row.places
        if row.fate is fate and (nested or "." not in row.name)
    ]


def in_one_place(cases: Sequence[Any]) -> list[Any]:
    """The cases. `make test` runs one place per row, and another place for the next row."""
    found = []
    for number, (_, row) in enumerate(groupby(cases, lambda it: it.values[0].name)):
        places = list(row)
        first = number % len(places)
        found += first_alone([*places[first:], *places[:first]])
    return found


OF_FATE = {fate: cases(fate, nested=True) for fate in Fate}
ONE_LEVEL = {fate: cases(fate, nested=False) for fate in Fate}


def posted(served: LmiServer, place: str, fields: Mapping[str, Any], **headers: str) -> Answer:
    body = dict(BODIES[place])
    if place == PARAMETERS:
        body["parameters"] = dict(fields)
    else:
        body |= fields
    return ask(served, PATHS.get(place, "/invocations"), body, headers=headers)


def observed(place: str, fields: Mapping[str, Any]) -> tuple[Answer, Any]:
    """The answer and the engine's request, without the parts that differ each time."""
    served = server({None: "a base<|im_start|> annswer", "es": "hola"}, settings=TRUSTING)
    answer = posted(served, place, {"seed": 7, **fields} if place != INPUTS else fields)
    seen = fake(served).seen
    requests = [{**asdict(it), "id": "", "sampling": asdict(it.sampling)} for it in seen]
    for each in requests:
        each["sampling"]["seed"] = 7 if place == INPUTS else each["sampling"]["seed"]
    text = answer.text
    if answer.status == 200 and "id" in text:
        text = "".join(part for part in text.split('"') if "cmpl-" not in part or "mine" in part)
    return answer, (answer.status, answer.type, text, requests)


@cache
def baseline(place: str, beside: str) -> Any:
    """The observation for the other fields by themselves, as JSON."""
    return observed(place, json.loads(beside))[1]


def without(place: str, beside: Mapping[str, Any] | None = None) -> Any:
    return baseline(place, json.dumps(beside or {}))


def case_of(row: FieldRow, place: str) -> tuple[Any, dict[str, Any]]:
    """The value of the row's case, and the fields that it needs."""
    case = ELSEWHERE.get((place, row.name), EFFECTS.get(row.name, CHECKS.get(row.name)))
    value, beside = case if isinstance(case, tuple) else (case, {})
    return value, beside


@pytest.mark.parametrize(("row", "place"), OF_FATE[Fate.DONE])
def test_a_done_field_has_an_effect_or_a_check(row: FieldRow, place: str) -> None:
    name = row.name.split(".")[0]
    if row.name in CHECKS:
        case = CHECKS[row.name]
        value, beside = case if isinstance(case, tuple) else (case, {})
        answer = posted(server(), place, {**beside, name: value})
        assert answer.status in (400, 424)
        assert name in answer.text
        return
    value, beside = case_of(row, place)
    answer, seen = observed(place, {**beside, name: value})
    assert answer.status == 200, answer.text
    assert "x-hostelry-ignored-fields" not in answer.headers
    assert seen != without(place, beside)


@pytest.mark.parametrize(("row", "place"), in_one_place(ONE_LEVEL[Fate.DONE]))
def test_a_done_field_of_a_wrong_type_is_refused(row: FieldRow, place: str) -> None:
    _, beside = case_of(row, place)
    answer = posted(
        server(settings=TRUSTING), place, {**beside, row.name: WRONG.get(row.name, [{"a": 1}])}
    )
    assert answer.status in (400, 424), answer.text
    assert row.name in answer.text


@pytest.mark.parametrize(("row", "place"), in_one_place(OF_FATE[Fate.REFUSED]))
def test_a_refused_field_is_refused_by_name_with_the_reason(row: FieldRow, place: str) -> None:
    value = next(it for it in (True, 3, "x", ["x"]) if it not in row.neutral)
    name, _, member = row.name.partition(".")
    given = {member: value} if member else value
    answer = posted(server(), place, {name: given})
    assert answer.status in (400, 424)
    assert row.name in answer.text
    assert row.reason in answer.text


@pytest.mark.parametrize(("row", "place"), in_one_place(ONE_LEVEL[Fate.REFUSED]))
def test_a_refused_field_may_ask_for_what_is_done_anyway(row: FieldRow, place: str) -> None:
    for value in (None, *row.neutral):
        answer, seen = observed(place, {row.name: value})
        assert answer.status == 200, answer.text
        assert seen == without(place)


@pytest.mark.parametrize(("row", "place"), in_one_place(OF_FATE[Fate.ACCEPTED]))
def test_an_accepted_field_changes_nothing(row: FieldRow, place: str) -> None:
    name, _, member = row.name.partition(".")
    beside = {"stream": True} if member else {}
    for value in (True, {"x": 1}):
        answer, seen = observed(place, {**beside, name: {member: value} if member else value})
        assert "x-hostelry-ignored-fields" not in answer.headers
        assert seen == without(place, beside)


@pytest.mark.parametrize("place", [PROMPT, MESSAGES, INPUTS, PARAMETERS])
def test_a_field_outside_the_table_is_named_in_a_header(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    served = server()
    for _ in range(3):
        answer = posted(served, place, {"flavour": 1, "top_q\r\n": 2})
        assert answer.status == 200
        assert answer.headers["x-hostelry-ignored-fields"] == "flavour, top_q%0D%0A"
    assert caplog.text.count("flavour") == 1


def test_many_fields_outside_the_table_are_counted() -> None:
    served = server()
    answer = posted(served, PROMPT, {f"field-{'x' * 500}{number}": 1 for number in range(3000)})
    assert len(answer.headers["x-hostelry-ignored-fields"]) < 3000
    assert answer.headers["x-hostelry-ignored-fields"].endswith("and 2980 more")
    assert len(served.noted_fields) <= 1000
    assert max(map(len, served.noted_fields)) <= 80


def test_a_stream_names_ignored_fields_too() -> None:
    answer = posted(server(), MESSAGES, {"stream": True, "flavour": 1})
    assert answer.headers["x-hostelry-ignored-fields"] == "flavour"


@pytest.mark.parametrize(
    ("place", "fields", "message"),
    [
        pytest.param(PROMPT, {"temperatur": 1}, "did you mean temperature", id="a slip"),
        pytest.param(INPUTS, {"max_new_tokens": 3}, "put it into parameters", id="a level up"),
        pytest.param(PARAMETERS, {"max_new_token": 3}, "max_new_tokens", id="a slip below"),
        pytest.param(MESSAGES, {"stream_options": {"include": 1}, "stream": True},
                     "stream_options.include", id="in an object"),
        pytest.param(PROMPT, {"x" * 10_000: 1}, "is no field", id="a long name"),
    ],
)  # fmt: skip
def test_a_strict_server_refuses_a_field_outside_the_table(
    place: str, fields: dict[str, Any], message: str
) -> None:
    answer = posted(server(settings=config("option.strict_fields=true")), place, fields)
    assert answer.status in (400, 424)
    assert message in answer.text
    assert len(answer.text) < 1000
    by_header = posted(server(), place, fields, **{"X-Hostelry-Strict-Fields": "true"})
    assert by_header.text == answer.text


def test_every_field_that_openai_sends_has_a_row() -> None:
    chat = get_type_hints(chat_create_params.CompletionCreateParamsBase)
    plain = get_type_hints(completion_create_params.CompletionCreateParamsBase)
    assert set(chat) - set(TABLE[MESSAGES]) == set()
    assert set(plain) - set(TABLE[PROMPT]) == set()


def test_a_name_has_one_row_in_a_place() -> None:
    with pytest.raises(ValueError, match="two rows"):
        by_place((ROWS[0], ROWS[0]))


# The fake's searches have no end tokens or control tokens, and each of them asks for 2 beams.
SAME_IN_BEAMS = {"n", "ignore_eos", "ignore_eos_token", "skip_special_tokens", "logprobs", *CHECKS}
BEAM_CASES = {"do_sample": True, "best_of": 3}


@pytest.mark.parametrize(
    ("row", "place"),
    in_one_place(
        [
            case
            for case in OF_FATE[Fate.DONE]
            if case.values[1] != INPUTS and case.values[0].name not in SAME_IN_BEAMS
        ]
    ),
)
def test_a_beam_search_does_a_field_or_refuses_it(row: FieldRow, place: str) -> None:
    name = row.name.split(".")[0]
    value, beside = case_of(row, place)
    value = BEAM_CASES.get(row.name, value)
    beams = {**beside, "num_beams": 2}
    answer, seen = observed(place, {**beams, name: value})
    if answer.status == 200:
        assert seen != without(place, beams)
    else:
        assert answer.status in (400, 424)
        assert "500" not in answer.text
