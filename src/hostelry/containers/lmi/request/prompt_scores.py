"""Parser of the fields that ask for log-probabilities of the prompt's tokens."""

from hostelry.containers.lmi.refusal import bad_request
from hostelry.containers.lmi.request.fields import BodyFields, shown
from hostelry.containers.lmi.request.invocation import PromptScores


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
    """Alternatives beside each token of the prompt; None where it is not scored. Raises Refusal."""
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
    """`max_tokens` of a body with `prompt`; 0 only where its prompt is what is asked about."""
    asked = body.integer("max_tokens", 0)
    if asked == 0 and not (body.flag("echo") or scores.reported is not None):
        raise bad_request(
            f"max_tokens is {shown(asked)}, which needs echo or prompt_logprobs; else it must be "
            "at least 1",
            "max_tokens",
        )
    return default if asked is None else asked
