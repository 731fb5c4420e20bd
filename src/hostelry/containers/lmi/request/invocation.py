"""A parsed request: prompts, sampling, and the form of the response."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

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
    TEXT_STREAM = "none_stream"  # what `none` is for a stream; no request names it

    @property
    def streams(self) -> bool:
        """Whether the response is sent while it is generated."""
        return self not in (self.JSON, self.JSON_CHAT, self.THIRD_PARTY, self.TEXT)

    @property
    def is_chat(self) -> bool:
        """Whether the response has the schema of OpenAI's chats."""
        return self in (self.JSON_CHAT, self.JSONLINES_CHAT, self.SSE_CHAT)

    @property
    def is_one_text(self) -> bool:
        """Whether the response has room for one text only."""
        return self in (self.THIRD_PARTY, self.THIRD_PARTY_STREAM, self.TEXT, self.TEXT_STREAM)


@dataclass(frozen=True, slots=True)
class PromptText:
    """A prompt still to be tokenized; a rendered chat carries its special tokens in the text."""

    text: str
    add_special_tokens: bool = True


Prompt = PromptText | tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """Options of turning token ids into text."""

    stop: tuple[str, ...] = ()
    include_stop: bool = False
    skip_special_tokens: bool = True


@dataclass(frozen=True, slots=True)
class SequenceCounts:
    """Sequences of each prompt: how many are generated, and how many of the likeliest returned."""

    returned: int = 1
    generated: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptScores:
    """Log-probabilities of the prompt's tokens in the response.

    `reported` is the number of alternatives of those reported apart from the answer (None: no
    report). Where `is_echoed`, they are in one list with the answer's, with `num_echoed_top`.
    """

    reported: int | None = None
    is_echoed: bool = False
    num_echoed_top: int = 0

    @property
    def num_top(self) -> int | None:
        """The alternatives to compute beside each token; None where no prompt is scored."""
        if self.reported is None and not self.is_echoed:
            return None
        return max(self.reported or 0, self.num_echoed_top)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """Form of the response.

    `listed` is set when the prompts are given as a list. With `num_top_tokens` None the OpenAI
    forms have no logprobs. `full_text` puts the prompt before the generated text. Each prompt has
    `num_sequences` consecutive sequences. `repeated` are members of the request that a response of
    the Responses schema repeats.
    """

    schema: Schema
    model: str
    formatter: Formatter = Formatter.JSON
    listed: bool = False
    details: bool = False
    full_text: bool = False
    tgi_compat: bool = False
    include_usage: bool = False
    num_top_tokens: int | None = None
    seed: int | None = None
    num_sequences: int = 1
    scores: PromptScores = PromptScores()
    repeated: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One request: prompts, and the adapter of each (None: the base model).

    `max_new_tokens` None allows the rest of the model's length. `truncate` is the number of last
    tokens kept of each prompt. `sampling.max_new_tokens` is not read. With `beams` the sequences
    are the best beams of each prompt.
    """

    prompts: tuple[Prompt, ...]
    adapters: tuple[str | None, ...]
    max_new_tokens: int | None
    sampling: SamplingParams
    texts: TextOptions
    stream: bool
    truncate: int | None = None
    sequences: SequenceCounts = SequenceCounts()
    beams: BeamParams | None = None
    form: AnswerForm
