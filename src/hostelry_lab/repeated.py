"""A call that is repeated during a measurement, with the duration of each call."""

import math
import threading
from collections.abc import Callable

from botocore.exceptions import BotoCoreError, ClientError

from hostelry.base.clock import monotonic_s

PAUSE_S = 0.1


class Repeated:
    """Repeats a call in a thread during the block, and notes the duration of each call."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._took: list[float] = []
        self.num_failed = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Repeated":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def at(self, share: float) -> float:
        """The quantile of the seconds of answered calls, or infinity without any."""
        took = sorted(self._took)
        return took[min(int(len(took) * share), len(took) - 1)] if took else math.inf

    def _run(self) -> None:
        while not self._over.wait(PAUSE_S):
            began_s = monotonic_s()
            try:
                self._call()
            except (ClientError, BotoCoreError, OSError):
                self.num_failed += bool(self._took)  # no failure counts before the first answer
                continue
            self._took.append(monotonic_s() - began_s)
