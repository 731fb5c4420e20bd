"""A parsed request: prompts, sampling, and the form of the response."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from hostelry.containers.lmi.request.images import ImageSource
from hostelry.containers.lmi.tools.reading import AnswerReading
from hostelry.engine.request import SamplingParams
from hostelry.engine.sampling.beams import BeamParams


class Schema(Enum):
    """Schema of a request, which decides the schema of its response."""

    INPUTS = "inputs"  # LMI's own
    COMPLETION = "prompt"  # OpenAI completions
    CHAT = "messages"  # OpenAI chat completions
    RESPONSES = "input"  # OpenAI responses


class Formatter(Enum):
    """Serialization of a response in LMI's schema."""

    JSON = "json"
    JSONLINES = "jsonlines"
    SSE = "sse"
    JSON_CHAT = "json_chat"
    JSONLINES_CHAT = "jsonlines_chat"
    SSE_CHAT = "sse_chat"
    THIRD_PARTY = "3p"
    THIRD_PARTY_STREAM = "3p_stream"
    TEXT = "none"
    TEXT_STREAM = "none_stream"  # stands for `none` in a stream: no request names it

    @property
    def streams(self) -> bool:
        """True if the response is sent while it is generated."""
        return self not in (self.JSON, self.JSON_CHAT, self.THIRD_PARTY, self.TEXT)

    @property
    def is_chat(self) -> bool:
        """True if the response has the schema of OpenAI's chats."""
        return self in (self.JSON_CHAT, self.JSONLINES_CHAT, self.SSE_CHAT)

    @property
    def is_one_text(self) -> bool:
        """True if the response has room for only one text."""
        return self in (self.THIRD_PARTY, self.THIRD_PARTY_STREAM, self.TEXT, self.TEXT_STREAM)


class PromptText(msgspec.Struct, frozen=True):
    """A prompt to be tokenized. A rendered chat has its special tokens in the text."""

    text: str
    add_special_tokens: bool = True


Prompt = PromptText | tuple[int, ...]


class Repetition(msgspec.Struct, frozen=True):
    """An answer ends once a run of `smallest` to `largest` tokens comes `count` times in a row."""

    largest: int
    smallest: int
    count: int


class TextOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options for turning token ids into text.

    A stop string that ends within the first `min_tokens` tokens is ordinary text. The control
    tokens `shown_tokens` are shown as text.
    """

    stop: tuple[str, ...] = ()
    include_stop: bool = False
    min_tokens: int = 0
    repetition: Repetition | None = None
    skip_special_tokens: bool = True
    shown_tokens: frozenset[int] = frozenset()


class Truncation(msgspec.Struct, frozen=True):
    """The number of tokens to keep of a prompt, from its start or its end. None: as many as fit."""

    tokens: int | None
    keep_first: bool = False


class SequenceCounts(msgspec.Struct, frozen=True):
    """Numbers of sequences of each prompt: generated, and (the likeliest of them) returned."""

    returned: int = 1
    generated: int = 1


class PromptScores(msgspec.Struct, frozen=True, kw_only=True):
    """Log-probabilities of the prompt's tokens in the response.

    With `reported` they are a separate part of the response, with this number of alternatives. With
    `is_echoed` they are in one list with the answer's, with `num_echoed_top` alternatives.
    """

    reported: int | None = None
    is_echoed: bool = False
    num_echoed_top: int = 0

    @property
    def num_top(self) -> int | None:
        """The number of alternatives to compute for each token. None if no prompt is scored."""
        if self.reported is None and not self.is_echoed:
            return None
        return max(self.reported or 0, self.num_echoed_top)


class AnswerForm(msgspec.Struct, frozen=True, kw_only=True):
    """Form of the response.

    `listed` is set when the prompts are given as a list. With `num_top_tokens` None the OpenAI
    forms have no logprobs. `full_text` puts the prompt before the generated text, and `echoed` is
    put before a chat's text. `role` is the role of a chat's messages. Each prompt has
    `num_sequences` consecutive sequences. `token_ids` and `prompt_text` add the ids of all tokens
    and a chat's rendered prompt. `tokens_as_ids` writes `token_id:7` for a token's text in
    logprobs. `continuous_usage` puts token counts into each chunk. A response of the Responses
    schema repeats the members `repeated` of the request. `reading` finds calls and reasoning.
    """

    schema: Schema
    model: str
    formatter: Formatter = Formatter.JSON
    listed: bool = False
    details: bool = False
    full_text: bool = False
    tgi_compat: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    role: str = "assistant"
    echoed: str = ""
    token_ids: bool = False
    tokens_as_ids: bool = False
    prompt_text: bool = False
    request_id: str | None = None
    num_top_tokens: int | None = None
    seed: int | None = None
    num_sequences: int = 1
    scores: PromptScores = PromptScores()
    repeated: Mapping[str, Any] = msgspec.field(default_factory=dict)
    reading: AnswerReading | None = None


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """One request: prompts, and the adapter of each (None: the base model).

    `max_new_tokens` None allows the rest of the model's length. `sampling.max_new_tokens` is not
    read. No text of `bad_words` is completed. `ignored_fields` are the names in the body that are
    outside the table of fields. With `beams` the sequences are the best beams of each prompt.
    `images` belong to a chat, in the order of their places in the prompt.
    """

    prompts: tuple[Prompt, ...]
    adapters: tuple[str | None, ...]
    max_new_tokens: int | None
    sampling: SamplingParams
    texts: TextOptions
    stream: bool
    truncation: Truncation | None = None
    sequences: SequenceCounts = SequenceCounts()
    beams: BeamParams | None = None
    form: AnswerForm
    bad_words: tuple[str, ...] = ()
    cache_salt: str = ""
    ignored_fields: tuple[str, ...] = ()
    images: tuple[ImageSource, ...] = ()
