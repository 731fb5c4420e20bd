"""The result of a choice of a token."""

import msgspec

from hostelry.engine.request import TokenLogprob

NOT_FINITE = "the model's logits are not finite"
NONE_ALLOWED = (
    "no token is left that may come next; loosen logit_bias, grammar, min_new_tokens, "
    "allowed_token_ids, bad_words or no_repeat_ngram_size"
)


class Sampled(msgspec.Struct, frozen=True):
    """The chosen token, and logarithms of probabilities before penalties and truncation.

    Without a token `error` has the reason, with `is_refused` if the request's own limits leave
    none. A pooled model gives a `vector` (see `request.Output`) instead of a token.
    """

    token_id: int | None
    logprob: float | None = None
    top_logprobs: tuple[TokenLogprob, ...] = ()
    error: str | None = None
    is_refused: bool = False
    vector: bytes | None = None
