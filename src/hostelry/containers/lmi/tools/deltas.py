"""Findings of the parsers in a model's text, piece by piece."""

from dataclasses import dataclass
from typing import Protocol, TypeVar

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class ContentText:
    """More of the answer itself."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningText:
    """More of the reasoning before the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class CallName:
    """The next call: the function that it names."""

    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of the JSON text of the present call's arguments."""

    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The end of the present call; `raw` is all of it as the model wrote it."""

    raw: str


Delta = ContentText | ReasoningText | CallName | CallArguments | CallEnd


class TextParser(Protocol[S]):
    """A pure state machine over text that arrives in pieces, cut anywhere.

    The same text gives the same deltas, texts joined, however it is cut. No text is an error: what
    is no call is content.
    """

    def start(self) -> S:
        """The state before the first character."""
        ...

    def feed(self, state: S, text: str) -> tuple[S, tuple[Delta, ...]]:
        """The state after more text, and the deltas that it made certain."""
        ...

    def finish(self, state: S) -> tuple[Delta, ...]:
        """The deltas that were held back, at the end of all text."""
        ...
