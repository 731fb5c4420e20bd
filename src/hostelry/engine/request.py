"""Requests to the engine and its outputs: plain values of token ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

import msgspec
from msgspec import structs


class FinishReason(Enum):
    """Why a request ended."""

    LENGTH = "length"  # max_new_tokens or the model's length reached
    EOS = "eos_token"  # the model ended it, or a stop token was sampled
    STOP = "stop_sequence"  # a stop string was found
    REPETITION = "repetition"  # the answer repeats itself
    ABORT = "abort"  # cancelled
    DEADLINE = "deadline"  # without a first token in time, or predicted to be
    POOLED = "pooled"  # its vector is computed
    REFUSED = "refused"  # its own limits leave no token that may come next
    ERROR = "error"  # failed. The request's output has the message


MAX_TOKEN_ID = 2**31 - 1  # the engine's arrays of token ids have 32 bits
MAX_NGRAM = 32  # tokens of the sequences that may not come twice
MAX_COUNT = 2**63 - 1
MAX_LOGPROBS = 256  # alternatives of a token
# Beyond these a logit may overflow or vanish in single precision.
LEAST_REPETITION_PENALTY, MOST_REPETITION_PENALTY = 0.01, 100.0

StructureKind = Literal[
    "json_object", "json_schema", "regex", "grammar", "choice", "structural_tag"
]


@dataclass(frozen=True, slots=True)
class Structure:
    """The form of a generated text, from its first character to its last.

    The meaning of `text` depends on `kind`:

    - "json_object": unused
    - "json_schema": the schema as JSON
    - "regex": a pattern for the whole text
    - "grammar": EBNF with a rule named root
    - "choice": a JSON list of the texts to choose from
    - "structural_tag": a format of xgrammar's structural tags as JSON
    """

    kind: StructureKind
    text: str = ""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of sampling.

    Raises ValueError for a value out of range. `temperature` 0 is greedy. `top_k` 0, `top_p` 1 and
    `min_p` 0 are off. With a `seed` the tokens depend on the request alone. None draws a seed.
    Penalties are defined as by OpenAI and Hugging Face. With `max_new_tokens` 0 the request ends
    once its prompt is computed.

    `logit_bias` has pairs of token id and value that are added to the logits. Before
    `min_new_tokens` no token that would end the request is chosen. `num_logprobs` alternatives are
    reported with each token (None: no logprobs). `structure` bounds the text to a form. The tokens
    that end the request may come once the form is complete. With `allowed_token_ids` no other token
    is chosen. No word of `bad_words`, each a tuple of token ids, is completed. No sequence of
    `no_repeat_ngram_size` tokens, prompt included, comes twice (0: off).
    """

    max_new_tokens: int = 30
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    num_logprobs: int | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_new_tokens: int = 0
    structure: Structure | None = None
    allowed_token_ids: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    no_repeat_ngram_size: int = 0

    def __post_init__(self) -> None:
        """Check every range."""
        limits: Sequence[tuple[str, float, float, float]] = (
            ("max_new_tokens", self.max_new_tokens, 0, MAX_COUNT),
            ("temperature", self.temperature, 0, 100),
            ("top_k", self.top_k, 0, MAX_TOKEN_ID),
            ("min_p", self.min_p, 0, 1),
            (
                "repetition_penalty",
                self.repetition_penalty,
                LEAST_REPETITION_PENALTY,
                MOST_REPETITION_PENALTY,
            ),
            ("presence_penalty", self.presence_penalty, -2, 2),
            ("frequency_penalty", self.frequency_penalty, -2, 2),
            ("num_logprobs", self.num_logprobs or 0, 0, MAX_LOGPROBS),
            ("min_new_tokens", self.min_new_tokens, 0, MAX_COUNT),
            ("seed", self.seed or 0, -MAX_COUNT, 2 * MAX_COUNT + 1),
            ("the least of stop_token_ids", min(self.stop_token_ids, default=0), 0, MAX_TOKEN_ID),
            ("the largest of stop_token_ids", max(self.stop_token_ids, default=0), 0, MAX_TOKEN_ID),
            ("no_repeat_ngram_size", self.no_repeat_ngram_size, 0, MAX_NGRAM),
            *(("logit_bias", value, -100, 100) for _, value in self.logit_bias),
            *(("logit_bias' token id", token, 0, MAX_TOKEN_ID) for token, _ in self.logit_bias),
        )
        for name, value, low, high in limits:
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}; it must be between {low} and {high}")
        if not all(self.bad_words):
            raise ValueError("a word of bad_words has no token")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must be greater than 0 and at most 1")
        if self.structure is not None and (self.ignore_eos or self.min_new_tokens):
            raise ValueError(
                "ignore_eos and min_new_tokens contradict structured output, which ends where its "
                "structure does; leave them out"
            )


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence to continue.

    `adapter` names a registered adapter, None is the base model. The request counts against the
    fair share and quotas of `tenant`. None is the adapter's name, or the empty name for the base
    model. Without a first token within `first_token_deadline_s` of its arrival it ends with
    FinishReason.DEADLINE. It shares cached prefixes only with requests of the same `cache_salt`.
    With `num_prompt_logprobs` the tokens of its prompt are scored, each with that number of
    alternatives. `token_types` is the type of each token, for encoders. Empty: all 0. This engine
    refuses `images`, encoded files. vLLM reads them.
    """

    id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    adapter: str | None = None
    tenant: str | None = None
    first_token_deadline_s: float | None = None
    cache_salt: str = ""
    num_prompt_logprobs: int | None = None
    token_types: tuple[int, ...] = ()
    images: tuple[bytes, ...] = ()


class TokenLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """A token and the natural logarithm of its probability before penalties and truncation."""

    token_id: int
    logprob: float


class PromptLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of consecutive prompt tokens, from token `start` of the prompt on.

    `logprobs` are natural logarithms of the probability of each token after the tokens before it,
    by the unchanged logits. `ranks` are 1 for the most likely token. Both are in order of the
    prompt. `top_ids` and `top_logprobs` are flat: the same number of alternatives for each token,
    likeliest first.
    """

    start: int
    logprobs: tuple[float, ...]
    ranks: tuple[int, ...]
    top_ids: tuple[int, ...] = ()
    top_logprobs: tuple[float, ...] = ()


class Output(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, eq=False):
    """One step of one request.

    `token_id` is None if the request ended without a further token (abort, error, no token
    requested). It is also None in an output with `prompt_logprobs`, which comes before the first
    token.

    The last output has `finish_reason`, `error` after a failure, and `adapter_content_id`, the
    version of the adapter that computed the whole answer. The first output has `queued_s`, the time
    from the request's arrival to its first computed row, and `num_cached_tokens`, the prompt tokens
    from the prefix cache. With images it also has `num_prompt_tokens`, the tokens of the whole
    prompt. A pooled model gives one output, with a `vector` of fp32 numbers, little-endian.
    """

    request_id: str
    token_id: int | None
    logprob: float | None = None
    top_logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    error: str | None = None
    adapter_content_id: str | None = None
    prompt_logprobs: PromptLogprobs | None = None
    queued_s: float | None = None
    num_cached_tokens: int | None = None
    num_prompt_tokens: int | None = None
    vector: bytes | None = None

    def __eq__(self, other: object) -> bool:
        """Compare all but `queued_s`, which depends on the load."""
        if not isinstance(other, Output):
            return NotImplemented
        mine, its = (structs.astuple(structs.replace(it, queued_s=None)) for it in (self, other))
        return mine == its

    def __ne__(self, other: object) -> bool:
        """The contrary of `==`, which msgspec's own `!=` does not ask."""
        return not self == other

    def __hash__(self) -> int:
        """By its request and token."""
        return hash((self.request_id, self.token_id))
