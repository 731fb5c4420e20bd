"""Records the answers of a load test in its tally, and names their errors."""

from collections.abc import Callable
from typing import Any

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.base.json import decode
from hostelry.loadtest.answers import AnswerPiece, AnswerReader, ModelAnswerError, error_text
from hostelry.loadtest.tally import LoadTally

BROKEN = 0  # the status of a broken-off answer
MAX_ERROR_BYTES = 4096


class AnswerRecord:
    """Records one answer as it comes, in the tally of the window that is open then.

    `is_whole` is True once the answer has arrived whole, whatever its status.
    """

    def __init__(
        self, get_tally: Callable[[], LoadTally], due_s: float, *, streams_text: bool
    ) -> None:
        self.is_whole = False
        self._get_tally = get_tally
        self._due_s = due_s
        self._reader = AnswerReader() if streams_text else None
        self._first_s: float | None = None
        self._last_s = due_s
        self._num_pieces = 0
        self._beginning = b""
        self._trouble = ""

    def take(self, part: bytes) -> None:
        """Record a part of the body."""
        now_s = monotonic_s()
        self._get_tally().num_bytes += len(part)
        if len(self._beginning) < MAX_ERROR_BYTES:
            self._beginning += part[:MAX_ERROR_BYTES]
        reader = self._reader
        num_pieces = 1 if reader is None else self._take_text(lambda: reader.take(part))
        for _ in range(num_pieces):
            if self._first_s is None:
                self._first_s = now_s - self._due_s
            elif self._reader is not None:
                self._get_tally().gaps.append(now_s - self._last_s)
            self._last_s = now_s
        self._num_pieces += num_pieces

    def end(self, status: int, error_type: bytes) -> None:
        """Record the end of the answer."""
        if status == BROKEN:
            self.fail("connection broke off")
            return
        self.is_whole = True
        if not 200 <= status < 300:
            self.fail(*refusal(status, error_type, self._beginning))
            return
        if self._reader is not None and not self._trouble:
            self._take_text(self._reader.end)
        if self._trouble:
            self.fail("broken answer", self._trouble)
            return
        tally = self._get_tally()
        tally.num_ok += 1
        tally.latencies.append(monotonic_s() - self._due_s)
        if self._first_s is not None:
            tally.first.append(self._first_s)
        if self._reader is not None:
            stated = self._reader.num_tokens
            tally.num_tokens += self._num_pieces if stated is None else stated
            tally.num_prompt_tokens += self._reader.num_prompt_tokens or 0

    def fail(self, code: str, text: str = "") -> None:
        """Record a request without an answer."""
        self._get_tally().fail(code, text)

    def give_up(self, code: str, text: str) -> None:
        """Record an unanswered request with the time that it has taken so far."""
        self._get_tally().fail(code, text)
        self._get_tally().latencies.append(monotonic_s() - self._due_s)

    def _take_text(self, read: Callable[[], list[AnswerPiece]]) -> int:
        """Count the texts in new bytes. 0 once the answer is broken."""
        try:
            return 0 if self._trouble else len(read())
        except ModelAnswerError as error:
            self._trouble = str(error)
            return 0


def refusal(status: int, error_type: bytes, beginning: bytes) -> tuple[str, str]:
    """The code and the text of an error answer."""
    try:
        body = decode(beginning, dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        body = {}
    found = body.get("error")
    code = found.get("code") if isinstance(found, dict) else None
    kind = error_type.decode("latin-1").partition(":")[0] or str(code or "")
    text = error_text(body) if body else beginning.decode("utf-8", "replace")
    return f"{status} {kind}".strip(), text
