"""Any JSON is understood or refused, and never causes an unexpected error."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.containers.lmi.request.test_parse import CONTEXT, LEGACY, parse

from hostelry.containers.lmi.refusal import Refusal

NAMES = (
    "inputs", "prompt", "messages", "parameters", "stream", "adapters", "model", "n", "seed",
    "stop", "stop_sequences", "max_new_tokens", "max_tokens", "temperature", "top_k", "top_p",
    "logprobs", "top_logprobs", "details", "stream_options", "role", "content", "type", "text",
    "stop_token_ids", "truncate", "output_formatter", "do_sample", "echo", "response_format",
    "best_of", "logit_bias", "min_new_tokens", "guided_json", "guided_choice", "guided_regex",
    "structured_outputs", "json", "json_schema", "schema", "choice", "grammar", "value",
)  # fmt: skip
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.text(max_size=8),
    st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["user", "es", "text"]),
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    ),
    max_leaves=12,
)
BODIES = st.dictionaries(st.sampled_from(NAMES), VALUES, min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(body=BODIES)
def test_any_body_is_understood_or_refused(body: dict[str, Any]) -> None:
    for context in (CONTEXT, LEGACY):
        try:
            parsed = parse(body, context)
        except Refusal:
            continue
        assert len(parsed.prompts) == len(parsed.adapters) > 0


@settings(max_examples=80, deadline=None)
@given(parameters=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6))
def test_any_parameters_are_understood_or_refused(parameters: dict[str, Any]) -> None:
    try:
        parsed = parse({"inputs": "a", "parameters": parameters})
    except Refusal:
        return
    assert parsed.max_new_tokens is not None
    assert parsed.max_new_tokens >= 1


@settings(max_examples=80, deadline=None)
@given(body=st.binary(max_size=60), kind=st.sampled_from(["", "text/plain", "text/csv"]))
def test_any_bytes_are_understood_or_refused(body: bytes, kind: str) -> None:
    try:
        parsed = parse(body, kind=kind)
    except Refusal:
        return
    assert parsed.prompts
