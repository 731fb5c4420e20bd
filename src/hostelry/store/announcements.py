"""Wakes the threads of this process that wait for a topic of a database."""

import threading
from collections import Counter
from collections.abc import Callable

from hostelry.base.clock import monotonic_s


class Announcements:
    """How often each topic was announced; thread-safe."""

    def __init__(self) -> None:
        self._announced = threading.Condition()
        self._counts: Counter[str] = Counter()
        self._missed = 0
        self._has_ended = False

    def announce(self, topic: str) -> None:
        """Wake everything that waits for `topic`."""
        with self._announced:
            self._counts[topic] += 1
            self._announced.notify_all()

    def announce_all(self) -> None:
        """Wake everything that waits: announcements may have been missed."""
        with self._announced:
            self._missed += 1
            self._announced.notify_all()

    def end(self) -> None:
        """Wake everything that waits, for good: nothing is waited for any more."""
        self._has_ended = True
        self.announce_all()

    def wait_until(
        self,
        topic: str,
        condition: Callable[[], bool],
        timeout_s: float,
        poll_s: Callable[[], float],
    ) -> bool:
        """Whether `condition` holds before `timeout_s` has passed.

        It is asked first, at each announcement of `topic`, and `poll_s` after it was asked last;
        after `end` it does not hold.
        """
        ends_at = monotonic_s() + timeout_s
        while True:
            before = self._count(topic)
            if self._has_ended:
                return False
            if condition():
                return True
            left_s = ends_at - monotonic_s()
            if left_s <= 0:
                return False
            self._wait(topic, before, min(left_s, poll_s()))

    def _count(self, topic: str) -> int:
        with self._announced:
            return self._counts[topic] + self._missed

    def _wait(self, topic: str, before: int, timeout_s: float) -> None:
        with self._announced:
            self._announced.wait_for(
                lambda: self._counts[topic] + self._missed != before, timeout_s
            )
