"""Threads that run during a block of code."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def running_threads(stopping: threading.Event, *work: Callable[[], None]) -> Iterator[None]:
    """Run each of `work` in a thread during the block.

    When the block ends, `stopping` is set and the threads are joined. This also happens if the
    block raises, or if a thread cannot be started (RuntimeError).
    """
    started: list[threading.Thread] = []
    try:
        for target in work:
            thread = threading.Thread(target=target)
            thread.start()
            started.append(thread)
        yield
    finally:
        stopping.set()
        for thread in started:
            thread.join()
