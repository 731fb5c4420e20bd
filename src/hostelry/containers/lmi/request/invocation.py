"""A parsed request: prompts, sampling, and the form of the response."""

from dataclasses import dataclass
from enum import Enum

from hostelry.engine.request import SamplingParams


class Schema(Enum):
    """Schema of a request, which decides the schema of its response."""

    INPUTS = "inputs"  # LMI's own
    COMPLETION = "prompt"  # OpenAI completions
    CHAT = "messages"  # OpenAI chat completions


class Formatter(Enum):
    """Serialization of a response in LMI's schema."""

    JSON = "json"
    JSONLINES = "jsonlines"
    SSE = "sse"


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
class AnswerForm:
    """Form of the response.

    `listed` is set when the prompts are given as a list. With `num_top_tokens` None the OpenAI
    forms have no logprobs. `full_text` puts the prompt before the generated text. Each prompt has
    `num_sequences` consecutive sequences.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One request: prompts, and the adapter of each (None: the base model).

    `max_new_tokens` None allows the rest of the model's length. `truncate` is the number of last
    tokens kept of each prompt. `sampling.max_new_tokens` is not read.
    """

    prompts: tuple[Prompt, ...]
    adapters: tuple[str | None, ...]
    max_new_tokens: int | None
    sampling: SamplingParams
    texts: TextOptions
    stream: bool
    truncate: int | None = None
    sequences: SequenceCounts = SequenceCounts()
    form: AnswerForm
