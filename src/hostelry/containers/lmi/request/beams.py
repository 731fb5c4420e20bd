"""Parser of the fields of a beam search, under the names of transformers, LMI and vLLM."""

from dataclasses import fields as fields_of
from dataclasses import replace

from hostelry.containers.lmi.refusal import bad_request
from hostelry.containers.lmi.request.fields import BodyFields, shown
from hostelry.containers.lmi.request.invocation import Invocation, Schema, SequenceCounts
from hostelry.engine.request import SamplingParams
from hostelry.engine.sampling.beams import BeamParams, EarlyStopping

MAX_BEAMS = 32  # of one prompt
MAX_ALL_BEAMS = 128  # of one request
MAX_LENGTH_PENALTY = 10.0
# What a search reads, or what cannot change it.
READ = frozenset({"max_new_tokens", "temperature", "seed", "stop_token_ids", "ignore_eos"})
READ |= {"num_logprobs"}
TRUNCATION = frozenset({"top_k", "top_p", "min_p"})  # a model's own defaults are for sampling
DETERMINISTIC = "a beam search takes the likeliest sequences by the model's own probabilities"


def with_beams(invocation: Invocation, fields: BodyFields) -> Invocation:
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
    """Whether the request asks for a search. Raises Refusal."""
    return fields.flag("use_beam_search") or (given_beams(fields) or 1) > 1


def given_beams(fields: BodyFields) -> int | None:
    """The number of beams, under either name."""
    num_beams = fields.integer("num_beams", 1, MAX_BEAMS)
    return num_beams or fields.integer("beam_width", 1, MAX_BEAMS)


def beam_counts(fields: BodyFields, invocation: Invocation) -> tuple[int, int]:
    """The beams of each prompt and how many of them are returned. Raises Refusal.

    `best_of`, else `n`, is the number of beams where none is given. Without `n` LMI's details have
    all of them.
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
    """Raise Refusal for what a beam search cannot do."""
    temperature = fields.raw("temperature")
    if temperature not in (None, 0, 1):
        raise bad_request(
            f"temperature is {shown(temperature)}: {DETERMINISTIC}; leave it out", "temperature"
        )
    if fields.raw("do_sample") not in (None, False, "false"):
        raise bad_request(f"do_sample is true: {DETERMINISTIC}; leave it out", "do_sample")
    default = SamplingParams()
    for name in (field.name for field in fields_of(SamplingParams)):
        value = getattr(invocation.sampling, name)
        is_default = value == getattr(default, name) or (name in TRUNCATION and name not in fields)
        if name not in READ and not is_default:
            raise bad_request(f"{name} is {shown(value)}: {DETERMINISTIC}; leave it out", name)
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
