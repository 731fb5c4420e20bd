"""Sampling values out of a request, with LMI's and OpenAI's names and ranges."""

import math

from hostelry.containers.lmi.fields import MAX_INTEGER, Fields
from hostelry.containers.lmi.invocation import Texts
from hostelry.containers.lmi.refusal import bad_request
from hostelry.engine.request import SamplingParams

MAX_STOP_STRINGS = 64
MAX_STOP_CHARACTERS = 1000
MAX_STOP_TOKEN_IDS = 1024
MAX_TEMPERATURE = 100
MAX_LOGPROBS = 20
SMALLEST = math.ulp(0.0)  # stands for "greater than zero"

ONE_SEQUENCE = "this server makes one sequence per input; send the input several times instead"
NO_PROMPT_LOGPROBS = "log-probabilities of prompt tokens are not reported; leave it out"
NOT_IN_THIS_VERSION = "not supported by this version; leave it out"


def refuse_unsupported(fields: Fields) -> None:
    """Refuse what would change the answer and cannot be done."""
    for name in ("n", "best_of", "num_beams"):
        fields.refuse(name, (1,), ONE_SEQUENCE)
    fields.refuse("use_beam_search", (False,), ONE_SEQUENCE)
    for name in ("decoder_input_details", "prompt_logprobs"):
        fields.refuse(name, (False, 0), NO_PROMPT_LOGPROBS)
    fields.refuse("logit_bias", ({},), NOT_IN_THIS_VERSION)
    fields.refuse("bad_words", ([],), NOT_IN_THIS_VERSION)
    fields.refuse("suffix", ("",), NOT_IN_THIS_VERSION)
    for name in ("guided_json", "guided_regex", "guided_choice", "guided_grammar", "grammar"):
        fields.refuse(name, (), "structured output is " + NOT_IN_THIS_VERSION)
    fields.refuse(
        "response_format", ({"type": "text"},), "structured output is " + NOT_IN_THIS_VERSION
    )


def parse_sampling(
    fields: Fields, *, temperature: float, num_logprobs: int | None, seed: int
) -> SamplingParams:
    """Everything about choosing tokens but how many; `temperature` is the one to use.

    `seed` is used where the request gives none. Raises Refusal naming the field and its range.
    """
    given_seed = fields.integer("seed", -MAX_INTEGER, MAX_INTEGER)
    try:
        return SamplingParams(
            temperature=temperature,
            top_k=max(0, fields.integer("top_k", -1) or 0),
            top_p=or_default(fields.number("top_p", SMALLEST, 1), 1.0),
            min_p=fields.number("min_p", 0, 1) or 0.0,
            repetition_penalty=or_default(fields.number("repetition_penalty", SMALLEST), 1.0),
            presence_penalty=fields.number("presence_penalty", -2, 2) or 0.0,
            frequency_penalty=fields.number("frequency_penalty", -2, 2) or 0.0,
            seed=(seed if given_seed is None else given_seed) & MAX_INTEGER,
            stop_token_ids=fields.integers("stop_token_ids", most=MAX_STOP_TOKEN_IDS),
            ignore_eos=fields.flag("ignore_eos_token") or fields.flag("ignore_eos"),
            num_logprobs=num_logprobs,
        )
    except ValueError as error:
        raise bad_request(str(error)) from error


def parse_texts(fields: Fields) -> Texts:
    """Stop strings under both of their names, and how special tokens are shown."""
    stops = tuple(
        stop
        for name in ("stop_sequences", "stop")
        for stop in fields.texts(name, most=MAX_STOP_STRINGS, longest=MAX_STOP_CHARACTERS)
    )
    return Texts(
        stop=tuple(dict.fromkeys(stops)),
        include_stop=fields.flag("include_stop_str_in_output"),
        skip_special_tokens=fields.flag("skip_special_tokens", True),
    )


def parse_temperature(fields: Fields, default: float, high: float = MAX_TEMPERATURE) -> float:
    """The temperature, `default` where the request gives none."""
    return or_default(fields.number("temperature", 0, high), default)


def or_default(value: float | None, default: float) -> float:
    """`value`, or `default` in place of None."""
    return default if value is None else float(value)
