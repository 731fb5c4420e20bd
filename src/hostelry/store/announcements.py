"""Wakes threads of this process that wait for a topic of a database."""

import threading
from collections import Counter
from collections.abc import Callable

from hostelry.base.clock import monotonic_s


class Announcements:
    """Counts announcements by topic. Thread-safe."""

    def __init__(self) -> None:
        self._announced = threading.Condition()
        self._counts: Counter[str] = Counter()
        self._missed = 0
        self._has_ended = False
        self._polled: set[str] = set()  # topics that a waiting thread polls

    def announce(self, topic: str) -> None:
        """Wake all threads that wait for `topic`."""
        with self._announced:
            self._counts[topic] += 1
            self._announced.notify_all()

    def announce_all(self) -> None:
        """Wake all waiting threads, because announcements may have been missed."""
        with self._announced:
            self._missed += 1
            self._announced.notify_all()

    def end(self) -> None:
        """Wake all waiting threads, and let no thread wait from now on."""
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

        It is checked first, and at each announcement of `topic`. If several threads wait for a
        topic, only one also checks every `poll_s`. When this thread returns, another thread takes
        over and checks at once. After `end` the result is False.
        """
        ends_at = monotonic_s() + timeout_s
        is_polling = False
        try:
            while True:
                before = self._count(topic)
                if self._has_ended:
                    return False
                if condition():
                    return True
                left_s = ends_at - monotonic_s()
                if left_s <= 0:
                    return False
                is_polling = is_polling or self._begins_polling(topic)
                if is_polling:
                    self._wait(topic, before, min(left_s, poll_s()))
                else:
                    self._wait(topic, before, left_s, may_poll=True)
        finally:
            if is_polling:
                self._end_polling(topic)

    def _count(self, topic: str) -> int:
        with self._announced:
            return self._counts[topic] + self._missed

    def _begins_polling(self, topic: str) -> bool:
        with self._announced:
            is_free = topic not in self._polled
            self._polled.add(topic)
            return is_free

    def _end_polling(self, topic: str) -> None:
        """Wake the other threads. One of them polls from now on, and all see the change."""
        with self._announced:
            self._polled.discard(topic)
            self._announced.notify_all()

    def _wait(self, topic: str, before: int, timeout_s: float, *, may_poll: bool = False) -> None:
        with self._announced:
            self._announced.wait_for(
                lambda: (
                    self._counts[topic] + self._missed != before
                    or (may_poll and topic not in self._polled)
                ),
                timeout_s,
            )
