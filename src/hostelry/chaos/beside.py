"""Work that goes on in threads beside a block of code."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(stopping: threading.Event, *work: Callable[[], None]) -> Iterator[None]:
    """Each of `work` runs in a thread for as long as the block does.

    `stopping` tells them that the block has ended, also where it raised or one of them could not be
    started (RuntimeError); they are waited for.
    """
    started: list[threading.Thread] = []
    try:
        for it in work:
            thread = threading.Thread(target=it)
            thread.start()
            started.append(thread)
        yield
    finally:
        stopping.set()
        for thread in started:
            thread.join()
