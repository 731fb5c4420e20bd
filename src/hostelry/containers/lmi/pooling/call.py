"""A parsed request for vectors, and the form of its answer."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy
from numpy.typing import NDArray

Vectors = NDArray[numpy.float32]
Side = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class PooledText:
    """A text, a pair of texts, or token ids as they are."""

    text: str | tuple[int, ...]
    second: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerHead:
    """The values of an answer that do not come from its vectors."""

    id: str
    created: int
    model: str
    num_tokens: int

    @property
    def usage(self) -> dict[str, int]:
        """OpenAI's usage of a request that generates nothing."""
        tokens = self.num_tokens
        return {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0}


class PooledForm(Protocol):
    """Writes the answer of one request."""

    def answer(self, vectors_BP: Vectors, head: AnswerHead) -> Any:
        """The answer by the vectors of the request's texts, in order; any value for JSON."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledCall:
    """One request: its texts, how they are read, and the form of the answer.

    `adapters` has one name a text (None: the base model). `truncate` is the most tokens of a text,
    special ones included, -1 the most the model takes; None refuses longer ones. `prefix` comes
    before every text.
    """

    texts: tuple[PooledText, ...]
    adapters: tuple[str | None, ...]
    form: PooledForm
    model: str
    truncate: int | None = None
    side: Side = "right"
    add_special_tokens: bool = True
    prefix: str = ""
