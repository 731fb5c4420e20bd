"""Lines for the data logs of jobs and endpoints, kept in memory until control has them."""

from collections import deque
from collections.abc import Awaitable, Callable

from hostelry.base.clock import Clock
from hostelry.base.errors import RetryableError
from hostelry.domain.log_source import DataLine, DataLogReport
from hostelry.domain.scope import Scope

SEND_S = 1.0
MAX_LINES = 10_000  # further lines are counted and dropped
MAX_LINES_AT_ONCE = 1_000
MAX_TEXT_CHARS = 2_048
Send = Callable[[DataLogReport], Awaitable[None]]


class DataLog:
    """The lines of one process. Lines that control has not taken are lost when the process ends.

    Args:
        send: sends a report to control. Raises RetryableError while control does not take reports.
        clock: dates the lines.
    """

    def __init__(self, send: Send, clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._started_at = clock.now()
        self._sequence = 0
        self._lines: deque[DataLine] = deque()
        self._sending: DataLogReport | None = None
        self._num_lost = 0

    def note(
        self,
        scope: Scope,
        endpoint_name: str,
        variant_name: str,
        text: str,
        copy_id: str | None = None,
    ) -> None:
        """Keep a line about the endpoint, or about the job that the endpoint belongs to."""
        if len(self._lines) >= MAX_LINES:
            self._num_lost += 1
            return
        text = text[:MAX_TEXT_CHARS]
        if self._num_lost:
            text = f"({self._num_lost} lines are missing before this one) {text}"
            self._num_lost = 0
        self._lines.append(
            DataLine(
                scope=scope,
                endpoint_name=endpoint_name,
                variant_name=variant_name,
                copy_id=copy_id,
                at=self._clock.now(),
                text=text,
            )
        )

    async def flush(self) -> None:
        """Send the lines to control. While control is down, the lines stay in memory."""
        while self._lines or self._sending is not None:
            if self._sending is None:
                self._sequence += 1
                num = min(len(self._lines), MAX_LINES_AT_ONCE)
                lines = tuple(self._lines.popleft() for _ in range(num))
                self._sending = DataLogReport(
                    started_at=self._started_at, sequence=self._sequence, lines=lines
                )
            try:
                await self._send(self._sending)
            except RetryableError:
                return
            self._sending = None
