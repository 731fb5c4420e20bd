"""Memory of many routes, which garbage collection does not look at.

They have about five objects a component, none of them in a cycle. Looking at those of 10,000
components took a worker 14 ms each second or two under load, and decoding them twice their time.
"""

import contextlib
import gc
from collections.abc import Iterator

LARGE_BYTES = 1 << 20  # of routes as JSON, some thousand components; less is not worth a freeze


class RouteMemory:
    """Exempts what routes that came since are made of, once they are many.

    What else is alive then is exempt too. Nothing that serves requests is in cycles for long, and
    all is freed as before when nothing refers to it any more.
    """

    def __init__(self) -> None:
        self._since_bytes = 0

    @contextlib.contextmanager
    def taking(self, num_bytes: int) -> Iterator[None]:
        """While routes, or changes of them, of `num_bytes` as JSON are decoded and indexed."""
        if num_bytes < LARGE_BYTES:
            yield
            self._since_bytes += num_bytes
            if self._since_bytes >= LARGE_BYTES:
                gc.collect()
                self._freeze()
            return
        gc.collect()  # garbage is not to be exempt
        gc.disable()
        try:
            yield
            self._freeze()
        finally:
            gc.enable()

    def _freeze(self) -> None:
        self._since_bytes = 0
        gc.freeze()
