"""Long polls: waiting for a message of a queue without a thread."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

MAX_WATCHERS = 1000


class Arrivals:
    """Events of those that wait for a queue; `announce` may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self._count = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_full(self) -> bool:
        """Whether no more clients may wait."""
        return self._count >= MAX_WATCHERS

    @contextmanager
    def watching(self, queue_arn: str) -> Iterator[asyncio.Event]:
        """An event of the running loop that is set when a message of the queue comes."""
        event = asyncio.Event()
        with self._lock:
            self._loop = asyncio.get_running_loop()
            self._watchers.setdefault(queue_arn, set()).add(event)
            self._count += 1
        try:
            yield event
        finally:
            with self._lock:
                self._count -= 1
                watchers = self._watchers[queue_arn]
                watchers.discard(event)
                if not watchers:
                    del self._watchers[queue_arn]

    def announce(self, queue_arn: str) -> None:
        """Wake every watcher of the queue."""
        with self._lock:
            events, loop = list(self._watchers.get(queue_arn, ())), self._loop
        for event in events:
            if loop is not None and not loop.is_closed():
                loop.call_soon_threadsafe(event.set)
