"""A parsed request: what to generate, from which prompts, and which form the answer has."""

from dataclasses import dataclass
from enum import Enum

from hostelry.engine.request import SamplingParams


class Schema(Enum):
    """Which request schema the body followed, and so the form of its answer."""

    INPUTS = "inputs"  # LMI's own
    COMPLETION = "prompt"  # OpenAI completions
    CHAT = "messages"  # OpenAI chat completions


class Formatter(Enum):
    """How an answer in LMI's schema is written."""

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
class Texts:
    """How token ids become the answer's text."""

    stop: tuple[str, ...] = ()
    include_stop: bool = False
    skip_special_tokens: bool = True


@dataclass(frozen=True, slots=True)
class Sequences:
    """How many sequences of each prompt are told; where more are made, the likeliest are."""

    told: int = 1
    made: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """What the client wants to see.

    `listed` is set when the prompts came as a list. `num_top_tokens` None reports no logprobs in
    the OpenAI forms. `full_text` puts the prompt before the generated text. `num_sequences` follow
    each other for each prompt.
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
    """One request: prompts, and for each of them the adapter (None is the base model).

    `max_new_tokens` None fills what the prompt leaves of the model's length. `truncate` keeps the
    last that many tokens of each prompt. `sampling.max_new_tokens` is not read.
    """

    prompts: tuple[Prompt, ...]
    adapters: tuple[str | None, ...]
    max_new_tokens: int | None
    sampling: SamplingParams
    texts: Texts
    stream: bool
    truncate: int | None = None
    sequences: Sequences = Sequences()
    form: AnswerForm
