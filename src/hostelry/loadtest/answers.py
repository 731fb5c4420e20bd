"""Answers of LLMs as they come, and the texts of errors."""

from typing import Any

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.base.json import decode
from hostelry.base.printable import one_line

MAX_LINE_BYTES = 8 * 1024 * 1024
MAX_ERROR_CHARACTERS = 2_000


class AnswerPiece(msgspec.Struct, frozen=True):
    """A piece of text. `is_reasoning` is true for reasoning, which is not part of the answer."""

    text: str
    is_reasoning: bool = False


class ModelAnswerError(TerminalError):
    """The model refused the request, or its answer broke off or has an unknown format."""


def error_text(body: Any) -> str:
    """The text of an error in the format of OpenAI, of an LLM server, or of AWS."""
    found = body
    for key in ("error", "message", "Message", "error_msg"):
        if isinstance(found, dict) and found.get(key):
            found = found[key]
    return one_line(found if isinstance(found, str) else str(body), MAX_ERROR_CHARACTERS)


class AnswerReader:
    """Parses the bytes of one answer as they come.

    Has no `num_tokens` and `num_prompt_tokens` (None) until the answer states them.
    """

    def __init__(self) -> None:
        self.num_tokens: int | None = None
        self.num_prompt_tokens: int | None = None
        self.finish_reason: str | None = None
        self._rest = b""
        self._is_answer = False

    def take(self, data: bytes) -> list[AnswerPiece]:
        """The text that these bytes complete. Raises ModelAnswerError if the text is an error."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            raise ModelAnswerError(f"the answer has a line of more than {MAX_LINE_BYTES} bytes")
        return [piece for line in lines for piece in self._take(line)]

    def end(self) -> list[AnswerPiece]:
        """The text of an unfinished last line. Raises ModelAnswerError for an empty answer."""
        pieces = self._take(self._rest)
        self._rest = b""
        if not self._is_answer:
            raise ModelAnswerError("the answer is empty, or not an LLM's: it has no `choices`")
        return pieces

    def _take(self, line: bytes) -> list[AnswerPiece]:
        text = line.strip()
        if text.startswith(b"data:"):
            text = text.removeprefix(b"data:").strip()
        elif text.startswith((b":", b"event:", b"id:", b"retry:")):
            return []
        if not text or text == b"[DONE]":
            return []
        try:
            event = decode(text, dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            shown = one_line(text.decode("utf-8", "replace"), 120)
            raise ModelAnswerError(f"the answer is not an LLM's; it begins: {shown}") from None
        if "error" in event or "error_msg" in event:
            raise ModelAnswerError(error_text(event))
        return self._event(event)

    def _event(self, event: dict[str, Any]) -> list[AnswerPiece]:
        usage = event.get("usage")
        if isinstance(usage, dict):
            self.num_tokens = _count(usage.get("completion_tokens"), self.num_tokens)
            self.num_prompt_tokens = _count(usage.get("prompt_tokens"), self.num_prompt_tokens)
        choices = event.get("choices")
        if not isinstance(choices, list):
            return []
        self._is_answer = True
        pieces = []
        for choice in choices[:1]:
            if not isinstance(choice, dict):
                continue
            part = choice.get("delta") or choice.get("message") or choice
            thought = part.get("reasoning_content") or part.get("reasoning")
            if isinstance(thought, str) and thought:
                pieces.append(AnswerPiece(thought, is_reasoning=True))
            text = part.get("content") or part.get("text")
            if isinstance(text, str) and text:
                pieces.append(AnswerPiece(text))
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
        return pieces


def _count(value: Any, otherwise: int | None) -> int | None:
    return value if isinstance(value, int) and value >= 0 else otherwise
