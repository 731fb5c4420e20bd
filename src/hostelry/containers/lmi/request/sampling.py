"""Parser of sampling and beam search, under the names of LMI, OpenAI and transformers."""

import math

import msgspec
from msgspec.structs import replace

from hostelry.containers.lmi.refusal import bad_request
from hostelry.containers.lmi.request.fields import MAX_INTEGER, BodyFields, show
from hostelry.containers.lmi.request.invocation import (
    Invocation,
    Repetition,
    Schema,
    SequenceCounts,
    TextOptions,
    Truncation,
)
from hostelry.containers.lmi.request.structure import parse_structure
from hostelry.engine.request import (
    LEAST_REPETITION_PENALTY,
    MAX_NGRAM,
    MAX_TOKEN_ID,
    MOST_REPETITION_PENALTY,
    SamplingParams,
)
from hostelry.engine.sampling.beams import BeamParams, EarlyStopping

MAX_BEAMS = 32  # of one prompt
MAX_ALL_BEAMS = 128  # of one request
MAX_LENGTH_PENALTY = 10.0
# Fields that a search reads, or that cannot change it.
READ = frozenset({"max_new_tokens", "temperature", "seed", "stop_token_ids", "ignore_eos"})
MAX_STOP_STRINGS = 64
MAX_STOP_CHARACTERS = 1000
MAX_STOP_TOKEN_IDS = 1024
MAX_TEMPERATURE = 100
MAX_LOGPROBS = 20
SMALLEST = math.ulp(0.0)  # stands for "greater than zero"

MAX_BIASED_TOKENS = 1024
MAX_BIAS = 100
MAX_ALLOWED_TOKENS = 100_000
MAX_BAD_WORDS = 256
MAX_SALT_CHARACTERS = 128
MAX_PATTERN_TOKENS = 128  # of a repetition
MAX_REPETITIONS = 128
MAX_SEQUENCES = 128  # of one input
MAX_ALL_SEQUENCES = 1024


class SamplingDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling of requests that give no value.

    `max_new_tokens` is for chats, which otherwise may fill the model's length. `most_new_tokens`
    bounds every request (None: no bound).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    max_new_tokens: int | None = None
    most_new_tokens: int | None = None

    def bound(self, max_new_tokens: int | None) -> int | None:
        """The smaller of `max_new_tokens` and the bound. None without either."""
        given = [it for it in (max_new_tokens, self.most_new_tokens) if it is not None]
        return min(given, default=None)


NEUTRAL = SamplingDefaults()


READ |= {"num_logprobs"}
TRUNCATION = frozenset({"top_k", "top_p", "min_p"})  # a model's own defaults are for sampling
DETERMINISTIC = "a beam search takes the likeliest sequences by the model's own probabilities"


def add_beams(invocation: Invocation, fields: BodyFields) -> Invocation:
    """The invocation with the beam search that `fields` ask for, if they do. Raises Refusal."""
    if not is_beam_search(fields):
        return invocation
    num_beams, returned = beam_counts(fields, invocation)
    params = BeamParams(
        num_beams=num_beams,
        length_penalty=length_penalty(fields),
        early_stopping=early_stopping(fields),
    )
    check_rest(invocation, fields)
    return replace(
        invocation,
        beams=params,
        sequences=SequenceCounts(returned, returned),
        form=replace(invocation.form, num_sequences=returned),
    )


def is_beam_search(fields: BodyFields) -> bool:
    """True if the request asks for a search. Raises Refusal."""
    return fields.flag("use_beam_search") or (given_beams(fields) or 1) > 1


def given_beams(fields: BodyFields) -> int | None:
    """The number of beams, under either name."""
    num_beams = fields.integer("num_beams", 1, MAX_BEAMS)
    return num_beams or fields.integer("beam_width", 1, MAX_BEAMS)


def beam_counts(fields: BodyFields, invocation: Invocation) -> tuple[int, int]:
    """The beams of each prompt and how many of them are returned. Raises Refusal.

    The number of beams defaults to `best_of`, or else to `n`. Without `n` LMI's details have all
    beams.
    """
    counts = invocation.sequences
    given = given_beams(fields)
    num_beams = given or counts.generated
    if given and "best_of" in fields and counts.generated != given:
        raise bad_request(
            f"best_of is {counts.generated} and num_beams {given}; leave out best_of", "best_of"
        )
    if num_beams > MAX_BEAMS:
        raise bad_request(f"{num_beams} beams; at most {MAX_BEAMS}", "n")
    returned = counts.returned
    if invocation.form.schema is Schema.INPUTS and "n" not in fields:
        returned = num_beams
    if returned > num_beams:
        raise bad_request(f"n is {returned}; there are {num_beams} beams", "n")
    if num_beams * len(invocation.prompts) > MAX_ALL_BEAMS:
        raise bad_request(
            f"{num_beams} beams of each of {len(invocation.prompts)} prompts are "
            f"{num_beams * len(invocation.prompts)}; at most {MAX_ALL_BEAMS} in one request",
            "num_beams",
        )
    return num_beams, returned


def length_penalty(fields: BodyFields) -> float:
    """The power of the length by which the sum of a sequence's logprobs is divided."""
    value = fields.number("length_penalty", -MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY)
    return 1.0 if value is None else float(value)


def early_stopping(fields: BodyFields) -> EarlyStopping:
    """True, false or never, as transformers has them."""
    if fields.raw("early_stopping") == "never":
        return "never"
    return fields.flag("early_stopping")


def check_rest(invocation: Invocation, fields: BodyFields) -> None:
    """Raise Refusal for a field that a beam search cannot follow."""
    temperature = fields.raw("temperature")
    if temperature not in (None, 0, 1):
        raise bad_request(
            f"temperature is {show(temperature)}: {DETERMINISTIC}; leave it out",
            "temperature",
        )
    if fields.raw("do_sample") not in (None, False, "false"):
        raise bad_request(f"do_sample is true: {DETERMINISTIC}; leave it out", "do_sample")
    default = SamplingParams()
    for name in SamplingParams.__struct_fields__:
        value = getattr(invocation.sampling, name)
        is_default = value == getattr(default, name) or (name in TRUNCATION and name not in fields)
        if name not in READ and not is_default:
            raise bad_request(f"{name} is {show(value)}: {DETERMINISTIC}; leave it out", name)
    refused = (
        ("stream", invocation.stream, "the best sequences are known at the end only"),
        ("stop", invocation.texts.stop, "beams end at tokens; use stop_token_ids"),
        ("bad_words", invocation.bad_words, DETERMINISTIC),
        ("repetition_detection", invocation.texts.repetition, DETERMINISTIC),
        ("max_tokens", invocation.max_new_tokens == 0, "a search makes at least one token"),
        (
            "prompt_logprobs",
            invocation.form.scores.num_top is not None,
            "a search has no log-probabilities of the prompt (nor echo with logprobs)",
        ),
    )
    for name, is_asked, reason in refused:
        if is_asked:
            raise bad_request(f"{name} with a beam search: {reason}; leave it out", name)


def parse_sampling(
    fields: BodyFields,
    *,
    temperature: float,
    num_logprobs: int | None,
    seed: int,
    defaults: SamplingDefaults,
) -> SamplingParams:
    """The sampling parameters without max_new_tokens. `temperature` is taken as given.

    `seed` and `defaults` replace missing fields. Raises Refusal with the field and its range.
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
            allowed_token_ids=parse_allowed(fields),
            no_repeat_ngram_size=fields.integer("no_repeat_ngram_size", 0, MAX_NGRAM) or 0,
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
            raise bad_request(f"logit_bias has the name {show(name)}, no token id", "logit_bias")
    values = ((name, bias.number(name, -MAX_BIAS, MAX_BIAS)) for name in members)
    return tuple((int(name), float(value)) for name, value in values if value is not None)


def parse_sequences(
    fields: BodyFields, *, num_prompts: int, stream: bool, greedy: bool
) -> SequenceCounts:
    """`n` sequences of each prompt, the best of `best_of`. One if they are all alike."""
    returned = fields.integer("n", 1, MAX_SEQUENCES) or 1
    generated = fields.integer("best_of", 1, MAX_SEQUENCES) or returned
    if generated < returned:
        raise bad_request(f"best_of is {generated}; it must be at least n, {returned}", "best_of")
    if greedy and generated > 1 and not is_beam_search(fields):
        raise bad_request(
            f"n is {returned} and best_of {generated}, but temperature 0 makes all sequences "
            "alike; leave them out, or set a temperature",
            "n",
        )
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
    check_spaces(fields)
    stops = tuple(
        stop
        for name in ("stop_sequences", "stop")
        for stop in fields.texts(name, most=MAX_STOP_STRINGS, longest=MAX_STOP_CHARACTERS)
    )
    return TextOptions(
        stop=tuple(dict.fromkeys(stops)),
        include_stop=fields.flag("include_stop_str_in_output"),
        min_tokens=fields.integer("min_new_tokens", 0) or fields.integer("min_tokens", 0) or 0,
        repetition=parse_repetition(fields),
        skip_special_tokens=fields.flag("skip_special_tokens", True),
    )


def parse_allowed(fields: BodyFields) -> tuple[int, ...]:
    """`allowed_token_ids`. An empty list is refused."""
    allowed = fields.integers("allowed_token_ids", most=MAX_ALLOWED_TOKENS)
    if not allowed and "allowed_token_ids" in fields:
        raise bad_request(
            "allowed_token_ids is empty, so no token may be chosen; name one or leave it out",
            "allowed_token_ids",
        )
    return allowed


def parse_bad_words(fields: BodyFields) -> tuple[str, ...]:
    """Words that are never completed."""
    return fields.texts("bad_words", most=MAX_BAD_WORDS, longest=MAX_STOP_CHARACTERS)


def parse_cache_salt(fields: BodyFields) -> str:
    """The salt of the prefix cache, in vLLM's limits. Empty without a salt."""
    salt = fields.text("cache_salt")
    if salt is None:
        return ""
    if not 0 < len(salt) <= MAX_SALT_CHARACTERS or any(it in salt for it in "@/\\\0"):
        raise bad_request(
            f"cache_salt is {show(salt)}; it must be 1 to {MAX_SALT_CHARACTERS} characters "
            "without @, /, \\ and NUL",
            "cache_salt",
        )
    return salt


def parse_repetition(fields: BodyFields) -> Repetition | None:
    """`repetition_detection`: when an answer that repeats itself ends. None for never."""
    members = fields.members("repetition_detection")
    for name in members.names():
        if name not in ("max_pattern_size", "min_pattern_size", "min_count"):
            raise bad_request(
                f"repetition_detection has {show(name)}; it knows max_pattern_size, "
                "min_pattern_size and min_count",
                "repetition_detection",
            )
    largest = members.integer("max_pattern_size", 0, MAX_PATTERN_TOKENS) or 0
    smallest = members.integer("min_pattern_size", 0, MAX_PATTERN_TOKENS) or 0
    count = members.integer("min_count", 0, MAX_REPETITIONS) or 0
    if smallest > largest or (largest and count < 2):
        raise bad_request(
            f"repetition_detection has max_pattern_size {largest}, min_pattern_size {smallest} and "
            f"min_count {count}; the pattern's sizes must be in order, and min_count at least 2",
            "repetition_detection",
        )
    return Repetition(largest, max(1, smallest), count) if largest else None


def check_spaces(fields: BodyFields) -> None:
    """Raise Refusal if the request wants no spaces between shown control tokens."""
    spaced = fields.flag("spaces_between_special_tokens", True)
    if not spaced and not fields.flag("skip_special_tokens", True):
        raise bad_request(
            "spaces_between_special_tokens is false and skip_special_tokens too: the tokenizer "
            "decides about spaces between control tokens; leave one of them out",
            "spaces_between_special_tokens",
        )


def parse_truncation(fields: BodyFields) -> Truncation | None:
    """`truncate`, or `truncate_prompt_tokens` with `truncation_side`, which is left by default."""
    name = "truncate_prompt_tokens" if "truncate_prompt_tokens" in fields else "truncate"
    tokens = fields.integer(name, -1)
    side = fields.text("truncation_side") or "left"
    if side not in ("left", "right"):
        raise bad_request(
            f"truncation_side is {show(side)}; it must be left or right", "truncation_side"
        )
    if tokens == 0:
        raise bad_request(f"{name} is 0, which leaves no prompt; it must be -1 or at least 1", name)
    if tokens is None:
        return None
    return Truncation(None if tokens < 0 else tokens, keep_first=side == "right")


def check_lengths(sampling: SamplingParams, max_tokens: int | None) -> None:
    """Raise Refusal if the minimum number of tokens is more than the maximum."""
    if max_tokens is not None and sampling.min_new_tokens > max_tokens:
        raise bad_request(
            f"min_tokens is {sampling.min_new_tokens}; it must be at most max_tokens, {max_tokens}",
            "min_tokens",
        )


def parse_temperature(fields: BodyFields, default: float, high: float = MAX_TEMPERATURE) -> float:
    """The temperature, or `default` if the request has no temperature."""
    return or_default(fields.number("temperature", 0, high), default)


def or_default(value: float | None, default: float) -> float:
    """`value`, or `default` in place of None."""
    return default if value is None else float(value)
