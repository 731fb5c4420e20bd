"""Threads that run for as long as a block of code."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def running_threads(stopping: threading.Event, *work: Callable[[], None]) -> Iterator[None]:
    """Run each of `work` in a thread for as long as the block.

    `stopping` is set and the threads are joined when the block ends, also where it raised or one
    of them could not be started (RuntimeError).
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
