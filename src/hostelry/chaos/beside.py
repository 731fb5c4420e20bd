"""Work that goes on in threads beside a block of code."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(stopping: threading.Event, *work: Callable[[], None]) -> Iterator[None]:
    """Each of `work` runs in a thread for as long as the block does.

    `stopping` tells them that the block has ended, also where it raised; they are waited for.
    """
    threads = [threading.Thread(target=it) for it in work]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
