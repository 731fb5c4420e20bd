"""Parser of sampling parameters, under LMI's and OpenAI's names and ranges."""

import math

from hostelry.containers.lmi.refusal import bad_request
from hostelry.containers.lmi.request.fields import MAX_INTEGER, BodyFields, shown
from hostelry.containers.lmi.request.invocation import SequenceCounts, TextOptions
from hostelry.containers.lmi.request.sampling_defaults import SamplingDefaults
from hostelry.containers.lmi.request.structure import parse_structure
from hostelry.engine.request import (
    LEAST_REPETITION_PENALTY,
    MAX_TOKEN_ID,
    MOST_REPETITION_PENALTY,
    SamplingParams,
)

MAX_STOP_STRINGS = 64
MAX_STOP_CHARACTERS = 1000
MAX_STOP_TOKEN_IDS = 1024
MAX_TEMPERATURE = 100
MAX_LOGPROBS = 20
SMALLEST = math.ulp(0.0)  # stands for "greater than zero"

MAX_BIASED_TOKENS = 1024
MAX_BIAS = 100
MAX_SEQUENCES = 128  # of one input
MAX_ALL_SEQUENCES = 1024

NOT_IN_THIS_VERSION = "not supported by this version; leave it out"


def refuse_unsupported(fields: BodyFields) -> None:
    """Raise Refusal for parameters that would change the response and are not supported."""
    fields.refuse("bad_words", ([],), NOT_IN_THIS_VERSION)
    fields.refuse("suffix", ("",), NOT_IN_THIS_VERSION)


def parse_sampling(
    fields: BodyFields,
    *,
    temperature: float,
    num_logprobs: int | None,
    seed: int,
    defaults: SamplingDefaults,
) -> SamplingParams:
    """The sampling parameters but max_new_tokens; `temperature` is taken as given.

    `seed` and `defaults` hold where the request does not say. Raises Refusal naming the field and
    its range.
    """
    fewest = fields.integer("min_new_tokens", 0) or fields.integer("min_tokens", 0) or 0
    given_seed = fields.integer("seed", -MAX_INTEGER, MAX_INTEGER)
    top_k = fields.integer("top_k", -1, MAX_TOKEN_ID)
    try:
        return SamplingParams(
            temperature=temperature,
            top_k=defaults.top_k if top_k is None else max(0, top_k),
            top_p=or_default(fields.number("top_p", SMALLEST, 1), defaults.top_p),
            min_p=or_default(fields.number("min_p", 0, 1), defaults.min_p),
            repetition_penalty=or_default(
                fields.number(
                    "repetition_penalty", LEAST_REPETITION_PENALTY, MOST_REPETITION_PENALTY
                ),
                defaults.repetition_penalty,
            ),
            presence_penalty=or_default(
                fields.number("presence_penalty", -2, 2), defaults.presence_penalty
            ),
            frequency_penalty=or_default(
                fields.number("frequency_penalty", -2, 2), defaults.frequency_penalty
            ),
            seed=(seed if given_seed is None else given_seed) & MAX_INTEGER,
            stop_token_ids=fields.integers("stop_token_ids", most=MAX_STOP_TOKEN_IDS),
            ignore_eos=fields.flag("ignore_eos_token") or fields.flag("ignore_eos"),
            num_logprobs=num_logprobs,
            logit_bias=parse_bias(fields),
            min_new_tokens=fewest,
            structure=parse_structure(fields),
        )
    except ValueError as error:
        raise bad_request(str(error)) from error


def parse_bias(fields: BodyFields) -> tuple[tuple[int, float], ...]:
    """Token ids (the names of an object's members) and the values added to their logits."""
    members = fields.raw("logit_bias")
    if members is None:
        return ()
    bias = BodyFields(members, "logit_bias")
    if len(members) > MAX_BIASED_TOKENS:
        raise bad_request(
            f"logit_bias has {len(members)} members; at most {MAX_BIASED_TOKENS}", "logit_bias"
        )
    for name in members:
        if not (name.isascii() and name.isdigit() and len(name) < 10):
            raise bad_request(f"logit_bias has the name {shown(name)}, no token id", "logit_bias")
    values = ((name, bias.number(name, -MAX_BIAS, MAX_BIAS)) for name in members)
    return tuple((int(name), float(value)) for name, value in values if value is not None)


def parse_sequences(fields: BodyFields, *, num_prompts: int, stream: bool) -> SequenceCounts:
    """`n` sequences of each prompt, the best of `best_of`."""
    returned = fields.integer("n", 1, MAX_SEQUENCES) or 1
    generated = fields.integer("best_of", 1, MAX_SEQUENCES) or returned
    if generated < returned:
        raise bad_request(f"best_of is {generated}; it must be at least n, {returned}", "best_of")
    if generated > returned and stream:
        raise bad_request(
            f"best_of is {generated} and n {returned}: the best are known at the end only; leave "
            "out stream",
            "best_of",
        )
    if generated * num_prompts > MAX_ALL_SEQUENCES:
        raise bad_request(
            f"{generated} sequences of each of {num_prompts} inputs are "
            f"{generated * num_prompts}; at most {MAX_ALL_SEQUENCES} in one request",
            "n",
        )
    return SequenceCounts(returned, generated)


def parse_texts(fields: BodyFields) -> TextOptions:
    """Stop strings under both of their names, and the treatment of special tokens."""
    stops = tuple(
        stop
        for name in ("stop_sequences", "stop")
        for stop in fields.texts(name, most=MAX_STOP_STRINGS, longest=MAX_STOP_CHARACTERS)
    )
    return TextOptions(
        stop=tuple(dict.fromkeys(stops)),
        include_stop=fields.flag("include_stop_str_in_output"),
        skip_special_tokens=fields.flag("skip_special_tokens", True),
    )


def parse_temperature(fields: BodyFields, default: float, high: float = MAX_TEMPERATURE) -> float:
    """The temperature, `default` where the request gives none."""
    return or_default(fields.number("temperature", 0, high), default)


def or_default(value: float | None, default: float) -> float:
    """`value`, or `default` in place of None."""
    return default if value is None else float(value)
