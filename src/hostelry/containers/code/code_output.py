"""The lines that an author's code prints: into the server's log, within limits."""

import asyncio
import logging
import re

MAX_LINE_CHARACTERS = 2000
LINES_PER_PERIOD = 500
PERIOD_S = 10.0
READ_BYTES = 64 * 1024
FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>[^"]*)')

log = logging.getLogger(__name__)


class CodeOutput(asyncio.Protocol):
    """Reads the pipe of a process's standard output and error, so that it never blocks on it.

    `author` names the code in the log. Lines above LINES_PER_PERIOD in PERIOD_S seconds are
    counted and left out. Frames of a dump of stacks are given to `frames`, not to the log.
    """

    def __init__(self, author: str, now: float) -> None:
        self._author = author
        self._open_line = b""
        self._period_ends_at = now + PERIOD_S
        self._num_lines = 0
        self._loop = asyncio.get_running_loop()
        self.frames: list[tuple[str, int, str]] = []
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """Log whole lines; a line that is too long is cut."""
        *lines, rest = (self._open_line + data).split(b"\n")
        for line in lines:
            self._take(line)
        self._open_line = rest[: MAX_LINE_CHARACTERS + 1]

    def connection_lost(self, error: Exception | None) -> None:
        """Log the rest."""
        if self._open_line:
            self._take(self._open_line)
        self.ended.set()

    def _take(self, line: bytes) -> None:
        text = line.decode(errors="replace")
        if frame := FRAME.fullmatch(text):
            self.frames.append((frame["file"], int(frame["line"]), frame["function"]))
            del self.frames[:-100]
            return
        now = self._loop.time()
        if now > self._period_ends_at:
            if self._num_lines > LINES_PER_PERIOD:
                log.warning(
                    "%s: %d lines left out", self._author, self._num_lines - LINES_PER_PERIOD
                )
            self._period_ends_at, self._num_lines = now + PERIOD_S, 0
        self._num_lines += 1
        if self._num_lines <= LINES_PER_PERIOD and text.strip():
            shown = "".join(it if it.isprintable() else "?" for it in text[:MAX_LINE_CHARACTERS])
            log.info("%s: %s", self._author, shown)
