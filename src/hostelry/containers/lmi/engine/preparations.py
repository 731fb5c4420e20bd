"""Reads adapters in threads of the engine process, beside its steps."""

import threading
from collections import deque
from collections.abc import Callable

from hostelry.engine.lora.loader import Prepared
from hostelry.engine.lora.sources import is_remote

MAX_LOCAL = 4  # concurrent reads from folders, which take CPU
MAX_REMOTE = 16  # concurrent reads from remote places, which wait for their network
MAX_STUCK = 16  # cancelled reads whose threads still run
MAX_WAITING = 1000

PreparationResult = Prepared | Exception


class TooManyPreparationsError(Exception):
    """The queue of adapters to read is full."""


class Preparations:
    """Adapter reads for the engine's thread; `wake` is called in another one when a read ends.

    A cancelled read frees its slot, though its thread may hang for good; with `MAX_STUCK` of those
    no read starts before one of them ends.
    """

    def __init__(self, prepare: Callable[[str], Prepared], wake: Callable[[], None]) -> None:
        self._prepare = prepare
        self._wake = wake
        self._waiting: dict[int, str] = {}  # places by call, in order
        self._running: dict[int, str] = {}
        self._stuck: set[int] = set()
        self._ended: deque[tuple[int, PreparationResult]] = deque()  # filled by other threads

    def begin(self, call: int, place: str) -> None:
        """Read the adapter at a path or URI. Raises TooManyPreparationsError."""
        if len(self._waiting) >= MAX_WAITING:
            raise TooManyPreparationsError(
                f"{MAX_WAITING} adapters wait to be read already; try again in a moment"
            )
        self._waiting[call] = place
        self._start()

    def cancel(self, call: int) -> None:
        """Discard the result of a read."""
        self._waiting.pop(call, None)
        if self._running.pop(call, None) is not None:
            self._stuck.add(call)
        self._start()

    def take_ended(self) -> list[tuple[int, PreparationResult]]:
        """The reads that ended since the last call and were not cancelled."""
        ended = []
        while self._ended:
            call, outcome = self._ended.popleft()
            if self._running.pop(call, None) is not None:
                ended.append((call, outcome))
            self._stuck.discard(call)
        self._start()
        return ended

    def _start(self) -> None:
        for call, place in list(self._waiting.items()):
            if len(self._stuck) >= MAX_STUCK:
                return
            alike = [it for it in self._running.values() if is_remote(it) == is_remote(place)]
            if len(alike) < (MAX_REMOTE if is_remote(place) else MAX_LOCAL):
                self._running[call] = self._waiting.pop(call)
                threading.Thread(
                    target=self._run, args=(call, place), name=f"prepare-{call}", daemon=True
                ).start()

    def _run(self, call: int, place: str) -> None:
        try:
            outcome: PreparationResult = self._prepare(place)
        except Exception as error:  # noqa: BLE001 - every call gets a result
            outcome = error
        self._ended.append((call, outcome))
        self._wake()
