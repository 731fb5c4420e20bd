"""A time limit for each step of a stream, with one timer for the whole stream.

`asyncio.timeout` around each step would cost a token more than its JSON does.
"""

import asyncio
from types import TracebackType
from typing import Self


class StepLimit:
    """A context manager for each step. A step that takes longer than `limit_s` is cancelled.

    It then raises TimeoutError. Call `close` after the last step.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None  # in a step
        self._began_at = 0.0
        self._cancelled = False
        self._timer = self._loop.call_later(limit_s, self._look)

    def __enter__(self) -> Self:
        """Begin a step."""
        self._began_at = self._loop.time()
        self._task = asyncio.current_task()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the step. A cancellation by this object becomes a TimeoutError."""
        task, self._task = self._task, None
        if self._cancelled and task is not None:
            self._cancelled = False
            # Another cancellation, of a client that left, counts as well.
            if task.uncancel() == 0 and kind is asyncio.CancelledError:
                raise TimeoutError from error

    def close(self) -> None:
        """End the timer."""
        self._timer.cancel()

    def _look(self) -> None:
        """Cancel a step that is late, and look again when the present step would be late."""
        now = self._loop.time()
        due_at = now + self.limit_s if self._task is None else self._began_at + self.limit_s
        if self._task is not None and due_at <= now:
            self._cancelled = True
            self._task.cancel()
            due_at = now + self.limit_s
        self._timer = self._loop.call_at(due_at, self._look)
