"""Memory of many routes, which garbage collection does not look at.

They have about five objects a component, none of them in a cycle. Looking at those of 10,000
components took a worker 14 ms each second or two under load, and decoding them twice their time.
"""

import contextlib
import gc
from collections.abc import Iterator

LARGE_BYTES = 1 << 20  # of routes as JSON; less is not worth a freeze
MANY = 2_000  # components, which are about as much
THOROUGH_EVERY = 16  # freezes


class RouteMemory:
    """Exempts what routes that came since are made of, once they are many.

    What else is alive then is exempt too, and freed as before when nothing refers to it any more.
    Should some of it be in cycles, all is looked at again at one freeze in `THOROUGH_EVERY`.
    """

    def __init__(self) -> None:
        self._since_bytes = 0
        self._num_freezes = 0

    @contextlib.contextmanager
    def taking(self, num_bytes: int, num_kept: int = 0) -> Iterator[None]:
        """While routes, or changes of them, of `num_bytes` as JSON are decoded and indexed.

        `num_kept` components are changed, not replaced.
        """
        if num_bytes < LARGE_BYTES:
            yield
            self._since_bytes = self._since_bytes + num_bytes if num_kept >= MANY else 0
            if self._since_bytes >= LARGE_BYTES:
                self._collect()
                self._freeze()
            return
        self._collect()  # garbage is not to be exempt
        gc.disable()
        try:
            yield
            self._freeze()
        finally:
            gc.enable()

    def _collect(self) -> None:
        if self._num_freezes % THOROUGH_EVERY == THOROUGH_EVERY - 1:
            gc.unfreeze()
        gc.collect()

    def _freeze(self) -> None:
        self._since_bytes = 0
        self._num_freezes += 1
        gc.freeze()
