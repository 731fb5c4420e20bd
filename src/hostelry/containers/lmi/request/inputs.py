"""Parser of LMI's own schema, and of the fields that ask for a prompt's log-probabilities."""

from hostelry.containers.lmi.refusal import Surface, bad_request
from hostelry.containers.lmi.request.adapter_choice import choose_for_inputs
from hostelry.containers.lmi.request.context import ParseContext
from hostelry.containers.lmi.request.fields import BodyFields, show
from hostelry.containers.lmi.request.invocation import (
    AnswerForm,
    Formatter,
    Invocation,
    PromptScores,
    PromptText,
    Schema,
)
from hostelry.containers.lmi.request.sampling import (
    check_lengths,
    parse_bad_words,
    parse_cache_salt,
    parse_sampling,
    parse_sequences,
    parse_temperature,
    parse_texts,
    parse_truncation,
)

MAX_INPUTS = 1024
DEFAULT_MAX_NEW_TOKENS = 30
FORMATTERS = {it.value: it for it in Formatter if it is not Formatter.TEXT_STREAM}
STREAMED = {
    Formatter.THIRD_PARTY: Formatter.THIRD_PARTY_STREAM,
    Formatter.TEXT: Formatter.TEXT_STREAM,
}


def completion_scores(
    body: BodyFields, *, top: int | None, most: int, stream: bool, num_sequences: int
) -> PromptScores:
    """The scores that a body with `prompt` asks for: `prompt_logprobs`, or `echo` with `logprobs`.

    `top` is `logprobs`, `most` the most alternatives. Raises Refusal.
    """
    asked = prompt_logprobs(body, most=most, stream=stream)
    is_echoed = body.flag("echo") and top is not None
    if is_echoed and stream and num_sequences > 1:
        raise bad_request(
            f"n is {num_sequences} with echo, logprobs and stream; leave out one of them", "n"
        )
    return PromptScores(reported=asked, is_echoed=is_echoed, num_echoed_top=top or 0)


def prompt_logprobs(fields: BodyFields, *, most: int, stream: bool) -> int | None:
    """Alternatives of each token of the prompt. None if it is not scored. Raises Refusal."""
    if fields.raw("prompt_logprobs") is False:
        return None
    asked = fields.integer("prompt_logprobs", 0, most)
    if asked is not None and stream:
        raise bad_request(
            f"prompt_logprobs is {asked} with stream: it is not streamed; leave out stream",
            "prompt_logprobs",
        )
    return asked


def input_scores(
    parameters: BodyFields, *, details: bool, most: int, can_stream: bool, stream: bool
) -> PromptScores:
    """The scores that an LMI body asks for: they are in its details. Raises Refusal.

    `can_stream` says whether the stream's last line has details of the prompt.
    """
    asked = prompt_logprobs(parameters, most=most, stream=stream and not can_stream)
    wants = parameters.flag("decoder_input_details")
    if wants and details and stream and not can_stream:
        raise bad_request(
            "decoder_input_details is true with stream: the lines of a stream have no place for "
            "it; leave out one of them",
            "decoder_input_details",
        )
    if not details:
        return PromptScores()
    return PromptScores(reported=0 if wants and asked is None else asked)


def completion_tokens(body: BodyFields, scores: PromptScores, default: int) -> int:
    """`max_tokens` of a body with `prompt`. 0 only if the request asks about its prompt."""
    asked = body.integer("max_tokens", 0)
    if asked == 0 and not (body.flag("echo") or scores.reported is not None):
        raise bad_request(
            f"max_tokens is {show(asked)}, which needs echo or prompt_logprobs; else it must be "
            "at least 1",
            "max_tokens",
        )
    return default if asked is None else asked


def parse_inputs(body: BodyFields, context: ParseContext) -> Invocation:
    """The invocation of a body with `inputs`. Raises Refusal."""
    parameters = body.members("parameters")
    texts, listed = parse_prompts(body.raw("inputs"))
    formatter = choose_formatter(body, parameters, context)
    top_tokens = parameters.integer("top_n_tokens", 0, context.max_logprobs)
    logprobs = parameters.integer("logprobs", 0, context.max_logprobs)
    details = parameters.flag("details", context.tgi_compat)
    reported = details or formatter is not Formatter.JSON
    sampling = parse_sampling(
        parameters,
        temperature=lmi_temperature(parameters, context),
        num_logprobs=max(top_tokens or 0, logprobs or 0) if reported else None,
        seed=context.fresh_seed,
        defaults=context.defaults,
    )
    sequences = parse_sequences(
        parameters,
        num_prompts=len(texts),
        stream=formatter.streams,
        greedy=not sampling.temperature,
    )
    if sequences.returned > 1 and formatter.streams:
        raise bad_request(
            f"n is {sequences.returned}, which cannot be streamed; leave out stream", "n"
        )
    if formatter.is_one_text and len(texts) * sequences.returned > 1:
        raise bad_request(
            f"output_formatter is {formatter.value}, which has room for one text; send one of "
            "inputs, and n 1",
            "output_formatter",
        )
    scores = input_scores(
        parameters,
        details=details,
        most=context.max_logprobs,
        can_stream=context.dialect is Surface.LEGACY,
        stream=formatter.streams,
    )
    max_new_tokens = context.defaults.bound(
        parameters.integer("max_new_tokens", 1)
        or parameters.integer("max_tokens", 1)
        or DEFAULT_MAX_NEW_TOKENS
    )
    check_lengths(sampling, max_new_tokens)
    special = parameters.flag("add_special_tokens", True)
    return Invocation(
        prompts=tuple(PromptText(text, add_special_tokens=special) for text in texts),
        adapters=choose_for_inputs(
            context.caller, body, len(texts), context.served, context.registered
        ),
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        texts=parse_texts(parameters),
        stream=formatter.streams,
        truncation=parse_truncation(parameters),
        bad_words=parse_bad_words(parameters),
        cache_salt=parse_cache_salt(parameters),
        sequences=sequences,
        form=AnswerForm(
            schema=Schema.INPUTS,
            model=context.model_name,
            formatter=formatter,
            listed=listed,
            details=details,
            full_text=parameters.flag("return_full_text"),
            tgi_compat=context.tgi_compat,
            num_top_tokens=logprobs if formatter.is_chat else top_tokens,
            seed=sampling.seed,
            num_sequences=sequences.returned,
            scores=scores,
        ),
    )


def parse_prompts(inputs: object) -> tuple[list[str], bool]:
    """The prompts' texts, and whether they are given as a list."""
    texts = [inputs] if isinstance(inputs, str) else inputs
    if not isinstance(texts, list) or not texts or not all(isinstance(it, str) for it in texts):
        raise bad_request(
            f"inputs is {show(inputs)}; it must be a string or a non-empty list of strings",
            "inputs",
        )
    if len(texts) > MAX_INPUTS:
        raise bad_request(f"inputs has {len(texts)} members; at most {MAX_INPUTS}", "inputs")
    return texts, isinstance(inputs, list)


def lmi_temperature(parameters: BodyFields, context: ParseContext) -> float:
    """Zero (greedy) if the request does not sample, else its temperature.

    The rolling batch samples only with do_sample true, the async handler unless it is false.
    """
    sample = parameters.flag("do_sample", context.dialect is not Surface.LEGACY)
    temperature = parse_temperature(parameters, context.defaults.temperature)
    return temperature if sample else 0.0


def choose_formatter(body: BodyFields, parameters: BodyFields, context: ParseContext) -> Formatter:
    """The request's formatter.

    `output_formatter` of the request, else of the configuration -> that one
    not streaming                                                -> JSON
    streaming                                                    -> SSE with tgi_compat, else lines

    In a stream `3p` becomes `3p_stream`, and `none` is the text as it is generated.
    """
    name = parameters.text("output_formatter") or context.output_formatter
    streaming = body.flag("stream", parameters.flag("stream", context.caller.streaming_api))
    if name is None:
        if not streaming:
            return Formatter.JSON
        return Formatter.SSE if context.tgi_compat else Formatter.JSONLINES
    if name not in FORMATTERS:
        raise bad_request(
            f"output_formatter is {show(name)}; it must be one of {', '.join(FORMATTERS)}",
            "output_formatter",
        )
    formatter = FORMATTERS[name]
    return STREAMED.get(formatter, formatter) if streaming else formatter
