"""Defects of what taps requests, which no client's request fails by."""

import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

log = logging.getLogger(__name__)
LOG_EACH_S = 60.0
P = ParamSpec("P")
T = TypeVar("T")


class TapDefects:
    """Exceptions of taps: counted, and logged once a minute.

    `now_s` is of a clock that never goes back.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._quiet_until_s = float("-inf")
        self.num = 0

    def guarded(
        self, count: Callable[[], None], step: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """The result of `step`; None, and `count` is called, where it raises."""
        try:
            return step(*args, **kwargs)
        except Exception:
            self.num += 1
            if self._now_s() >= self._quiet_until_s:
                self._quiet_until_s = self._now_s() + LOG_EACH_S
                log.exception("a tap of requests failed, %d by now", self.num)
            count()
            return None
