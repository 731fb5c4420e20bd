"""Writes of the reconciler's own passes, by which its watch knows them: no pass follows them.

a change that the watch sees                     result
----------------------------------------------   --------------------------------------------------
has the body that a pass wrote last              own: the plan of that state changes nothing
has another body: an API call came after it      not own
of a record that no pass wrote                   not own
"""

import threading
from collections.abc import Iterable

from hostelry.store.protocol import Change, Key, RecordWrite


class OwnWrites:
    """What passes have written, or are about to, and the watch has not seen yet; thread-safe."""

    def __init__(self) -> None:
        self._bodies: dict[Key, bytes | None] = {}
        self._lock = threading.Lock()

    def expect(self, writes: Iterable[RecordWrite]) -> None:
        """Know these writes as own ones; one that fails is followed by a pass in any case."""
        with self._lock:
            self._bodies.update((it.key, it.body) for it in writes)

    def others(self, changes: Iterable[Change]) -> list[Change]:
        """The changes that are not own ones; each is known once."""
        with self._lock:
            return [it for it in changes if not self._is_own(it)]

    def _is_own(self, change: Change) -> bool:
        if change.key not in self._bodies:
            return False
        body = self._bodies.pop(change.key)
        return body == (None if change.record is None else change.record.body)
