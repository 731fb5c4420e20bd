"""A request's parameters as vLLM's, or a refusal. Pure: plain values, no vLLM.

ours                                vLLM's SamplingParams
----------------------------------  ------------------------------------------------------
max_new_tokens                      max_tokens, at least 1: with 0 the token is dropped
seed                                seed, of 63 bits: vLLM takes -1 for none
the model's end tokens              stop_token_ids, unless ignore_eos; vLLM's own ignore_eos is
                                    set, as it means the tokenizer's, except with a structure
min_new_tokens                      min_tokens, at most max_tokens
num_logprobs, num_prompt_logprobs   logprobs, prompt_logprobs
structure                           structured_outputs, one of json, regex, grammar, choice
temperature above 0, below 0.01     refused: vLLM raises it to 0.01
SAME, except where named above      the field of the same name, meaning and range
any other field that is set         refused: it is our own engine's
"""

from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any

import msgspec

from hostelry.base.json import decode
from hostelry.engine.request import Request, SamplingParams, Structure
from hostelry.engine.sampling.json_schema import kept_json_schema
from hostelry.engine.sampling.structural_tag import kept_structural_tag

SAME = frozenset(
    {
        "max_new_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty",
        "presence_penalty", "frequency_penalty", "seed", "stop_token_ids", "ignore_eos",
        "num_logprobs", "logit_bias", "min_new_tokens", "structure",
    }
)  # fmt: skip
OF_REQUEST = frozenset(
    {
        "id", "prompt_token_ids", "sampling", "adapter", "tenant", "first_token_deadline_s",
        "num_prompt_logprobs", "images",
    }
)  # fmt: skip
LEAST_TEMPERATURE = 0.01
SEED_BITS = 2**63 - 1


def sampling_arguments(request: Request, end_token_ids: Sequence[int]) -> dict[str, Any]:
    """Arguments of vLLM's SamplingParams, `structured_outputs` as those of its own class.

    Raises ValueError for a value that vLLM would replace by another, and for a field that it is not
    given.
    """
    sampling = request.sampling
    check_given(request, OF_REQUEST)
    check_given(sampling, SAME)
    if 0 < sampling.temperature < LEAST_TEMPERATURE:
        raise ValueError(
            f"temperature is {sampling.temperature}; vLLM raises values between 0 and "
            f"{LEAST_TEMPERATURE:g} to {LEAST_TEMPERATURE:g}: give 0 (greedy) or at least that"
        )
    max_tokens = max(1, sampling.max_new_tokens)
    return dict(  # noqa: C408 - named arguments
        max_tokens=max_tokens,
        min_tokens=min(sampling.min_new_tokens, max_tokens),
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        seed=None if sampling.seed is None else sampling.seed & SEED_BITS,
        stop_token_ids=stop_token_ids(sampling, end_token_ids),
        ignore_eos=sampling.structure is None,
        logprobs=sampling.num_logprobs,
        prompt_logprobs=request.num_prompt_logprobs,
        logit_bias=dict(sampling.logit_bias) or None,
        structured_outputs=structure_arguments(sampling.structure),
        detokenize=False,
    )


def check_given(value: Request | SamplingParams, given: frozenset[str]) -> None:
    """Raise ValueError where a field that is not in `given` has another value than its default."""
    for field in fields(value):
        if field.name in given:
            continue
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if getattr(value, field.name) != default:
            raise ValueError(f"{field.name} is not done with vLLM; use option.backend=hostelry")


def stop_token_ids(sampling: SamplingParams, end_token_ids: Sequence[int]) -> list[int]:
    """The tokens that end the request: its own, and the model's unless they are ignored."""
    ends = () if sampling.ignore_eos else end_token_ids
    return list(dict.fromkeys((*sampling.stop_token_ids, *ends)))


def structure_arguments(structure: Structure | None) -> dict[str, Any] | None:
    """Arguments of vLLM's StructuredOutputsParams. Raises ValueError as the schema's check does."""
    if structure is None:
        return None
    match structure.kind:
        case "json_object":
            return {"json_object": True}
        case "json_schema":
            return {"json": kept_json_schema(structure.text)}
        case "regex":
            return {"regex": structure.text}
        case "grammar":
            return {"grammar": structure.text}
        case "choice":
            try:
                return {"choice": decode(structure.text, list[str])}
            except msgspec.MsgspecError as error:
                raise ValueError(f"the choice is no JSON list of texts: {error}") from error
        case "structural_tag":
            return {"structural_tag": kept_structural_tag(structure.text)}
