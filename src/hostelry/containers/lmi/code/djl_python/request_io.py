"""Requests and generated tokens of the rolling batch, as its formatters know them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class Token:
    """One generated token."""

    def __init__(
        self,
        id: int,
        text: str,
        log_prob: float | None = None,
        special_token: bool | None = None,
        error_msg: str | None = None,
    ) -> None:
        self.id = id
        self.text = text
        self.log_prob = log_prob
        self.special_token = special_token
        self.request_id: int | None = None
        self.error_msg = error_msg

    def __repr__(self) -> str:
        return f"Token({self.as_dict()})"

    def as_dict(self) -> dict[str, Any]:
        """The token in LMI's form."""
        members: dict[str, Any] = {"id": self.id, "text": self.text, "log_prob": self.log_prob}
        if self.special_token:
            members["special_token"] = True
        if self.error_msg:
            members["error_msg"] = self.error_msg
        return members

    def as_tgi_dict(self) -> dict[str, Any]:
        """The token in TGI's form."""
        members: dict[str, Any] = {"id": self.id, "text": self.text, "logprob": self.log_prob}
        if self.special_token:
            members["special"] = True
        return members


@dataclass
class Sequence:
    """The tokens of one sequence, and how far a formatter has read them."""

    tokens: list[Token] = field(default_factory=list)
    top_tokens: list[list[Token]] = field(default_factory=list)
    cumulative_log_prob: float = 0.0
    finish_reason: str | None = None
    stop_reason: str | None = None
    _last_index: int | None = None
    _next_index: int = 0
    _next_top_index: int = 0

    def set_next_token(self, token: Token, is_last_token: bool = False) -> None:
        """Append a token."""
        self.tokens.append(token)
        self.cumulative_log_prob += token.log_prob or 0.0
        if is_last_token:
            self._last_index = len(self.tokens) - 1

    def has_next_token(self) -> bool:
        """True if there is a token that was not read."""
        return self._next_index < len(self.tokens)

    def get_next_token(self) -> tuple[Token | None, int, bool, bool]:
        """The next token, its index, and whether it is the first and the last."""
        if not self.has_next_token():
            return None, 0, False, False
        index = self._next_index
        self._next_index += 1
        return self.tokens[index], index, index == 0, index == self._last_index

    def get_last_token(self) -> Token | None:
        """The last token, once the sequence ended."""
        return None if self._last_index is None else self.tokens[self._last_index]

    def has_next_top_tokens(self) -> bool:
        """True if there are alternatives that were not read."""
        return self._next_top_index < len(self.top_tokens)

    def get_next_top_tokens(self) -> list[Token] | None:
        """The next token's alternatives."""
        if not self.has_next_top_tokens():
            return None
        self._next_top_index += 1
        return self.top_tokens[self._next_top_index - 1]


@dataclass
class RequestInput:
    """A request: its parameters."""

    request_id: int | None = None
    client_request_id: str | None = None
    output_formatter: Callable[..., Any] | str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    server_parameters: dict[str, Any] = field(default_factory=dict)
    tgi_compat: bool = False


@dataclass
class TextInput(RequestInput):
    """A request of text generation: its text."""

    input_text: str | list[str] | None = None
    adapters: Any = None
    tokenizer: Any = None


@dataclass
class RequestOutput:
    """The output of a request so far."""

    request_id: int
    input: RequestInput
    finished: bool = False


@dataclass
class TextGenerationOutput(RequestOutput):
    """The sequences of a request so far."""

    sequences: dict[int, Sequence] = field(default_factory=dict)
    best_sequence_index: int = 0
    prompt_tokens_details: list[Token] = field(default_factory=list)
    other_sequences_indices: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sequences.setdefault(self.best_sequence_index, Sequence())

    def get_tokens_as_dict(self, sequence_index: int = 0) -> list[dict[str, Any]]:
        """The tokens of one sequence in the form that the request asks for."""
        return [self._form(token) for token in self.sequences[sequence_index].tokens]

    def get_prompt_tokens_as_dict(self) -> list[dict[str, Any]]:
        """The prompt's tokens in that form."""
        return [self._form(token) for token in self.prompt_tokens_details]

    def get_top_tokens_as_dict(self, sequence_index: int = 0) -> list[list[dict[str, Any]]]:
        """The alternatives of each token in that form."""
        found = self.sequences[sequence_index].top_tokens
        return [[self._form(token) for token in tokens] for tokens in found]

    def _form(self, token: Token) -> dict[str, Any]:
        return token.as_tgi_dict() if self.input.tgi_compat else token.as_dict()
