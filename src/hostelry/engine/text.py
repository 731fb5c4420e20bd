"""Incremental conversion of token ids to text, and stop strings in it. Pure, without tensors.

A token may be part of a character, and its text may depend on the token before it. Therefore a
window of recent tokens is decoded, never a token alone.
"""

from collections.abc import Callable, Sequence

import msgspec

_REPLACEMENT = "\ufffd"  # a decoder's output for an incomplete character
_MAX_PENDING = 3  # bytes of a character without its last byte. Each may decode to _REPLACEMENT
_WINDOW_TOKENS = 4  # decoded again with each token. A longer window is cut at a whole character
_FORCED_WINDOW_TOKENS = 256  # cut even inside a character: the tokens are not text
_KEPT_TOKENS = 8  # after a forced cut. The longest character has fewer bytes


class IncrementalDetokenizer:
    """Text of a growing list of tokens. All deltas together equal the decoding of all tokens.

    Args:
        decode: text of a list of token ids, with or without special tokens.
        prompt_tail: tokens before the first token. Their text is not reported, but decides the text
            of the first token (a leading space, for example).
    """

    def __init__(self, decode: Callable[[list[int]], str], prompt_tail: Sequence[int] = ()) -> None:
        self._decode = decode
        self._window = list(prompt_tail)[-_KEPT_TOKENS:]
        self._num_reported = len(decode(self._window)) if self._window else 0
        self._boundary = len(self._window)  # tokens of the window up to the last whole character

    def push(self, token_id: int) -> str:
        """The text that became certain with this token. Empty inside a character."""
        self._window.append(token_id)
        text = self._decode(self._window)
        certain = len(text) - _num_pending(text)
        if self._boundary and certain == len(text) == self._num_reported:
            self._window.pop()  # a token without text must not be all that the next one follows
            return ""
        delta = text[self._num_reported : certain]
        self._num_reported = max(self._num_reported, certain)
        self._cut(text, is_whole=certain == len(text))
        return delta

    def finish(self) -> str:
        """The text held back. An unfinished character becomes the replacement character."""
        if not self._window:
            return ""
        rest = self._decode(self._window)[self._num_reported :]
        self._num_reported += len(rest)
        return rest

    def _cut(self, text: str, *, is_whole: bool) -> None:
        """Shorten the window, at a whole character if there is one."""
        pending = len(text) - self._num_reported
        if is_whole and len(self._window) > _WINDOW_TOKENS and self._boundary > 0:
            del self._window[: self._boundary]
            self._num_reported = len(self._decode(self._window))
        elif len(self._window) > _FORCED_WINDOW_TOKENS:
            del self._window[:-_KEPT_TOKENS]
            self._boundary = 0
            self._num_reported = len(self._decode(self._window)) - pending
        if is_whole:
            self._boundary = len(self._window)


def _num_pending(text: str) -> int:
    """Characters at the end that the next token may still change."""
    count = 0
    while count < _MAX_PENDING and text.endswith(_REPLACEMENT, 0, len(text) - count):
        count += 1
    return count


class StopResult(msgspec.Struct, frozen=True):
    """Text that may be shown, and the stop string that ended it (None: no stop string yet)."""

    text: str
    stop: str | None = None


class StopStrings:
    """A search for stop strings in text that arrives in pieces, cut anywhere.

    Text that may be the beginning of a stop string is held back. The stop string that ends first
    wins. Among those that end together the longest wins. Raises ValueError for an empty stop
    string.
    """

    def __init__(self, stops: Sequence[str], *, include_stop: bool = False) -> None:
        if any(not stop for stop in stops):
            raise ValueError("a stop string is empty")
        self._stops = tuple(stops)
        self._include_stop = include_stop
        self._longest = max((len(stop) for stop in stops), default=1)
        self._held = ""

    def feed(self, delta: str) -> StopResult:
        """Add text and return the text that may be shown. Not to be called after a `stop`."""
        if not self._stops:
            return StopResult(delta)
        text, held = self._held + delta, len(self._held)
        starts = [(text.find(it, max(0, held - len(it) + 1)), it) for it in self._stops]
        found = [(start + len(stop), -len(stop), stop) for start, stop in starts]
        found = [match for match in found if match[0] + match[1] >= 0]
        if found:
            end, negative_length, stop = min(found)
            self._held = ""
            return StopResult(
                text[:end] if self._include_stop else text[: end + negative_length], stop
            )
        self._held = ""
        return StopResult(self.feed_unmatched(text))

    def feed_unmatched(self, delta: str) -> str:
        """Add text in which no stop string ends, and return the text that may be shown."""
        text = self._held + delta
        num_held = self._num_held(text)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held]

    def flush(self) -> str:
        """The text held back, at the end of all text."""
        held, self._held = self._held, ""
        return held

    def _num_held(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop string."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            end = text[len(text) - length :]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0
