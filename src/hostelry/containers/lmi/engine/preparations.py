"""Adapters being read in threads of the engine process, while its steps go on."""

import threading
from collections import deque
from collections.abc import Callable

from hostelry.engine.lora.loader import Prepared
from hostelry.engine.lora.sources import is_remote

MAX_LOCAL = 4  # reads at a time from folders, which take CPU
MAX_REMOTE = 16  # and from remote places, which wait for their network
MAX_STUCK = 16
MAX_WAITING = 1000

Outcome = Prepared | Exception


class TooManyPreparationsError(Exception):
    """As many adapters wait to be read as may."""


class Preparations:
    """Reads for the engine's thread; `wake` is called in another one when a read has ended.

    One that was given up counts no longer, though its thread may hang for good; with `MAX_STUCK` of
    those nothing more is read before one comes back.
    """

    def __init__(self, prepare: Callable[[str], Prepared], wake: Callable[[], None]) -> None:
        self._prepare = prepare
        self._wake = wake
        self._waiting: dict[int, str] = {}  # places by call, in order
        self._running: dict[int, str] = {}
        self._stuck: set[int] = set()
        self._ended: deque[tuple[int, Outcome]] = deque()  # filled by other threads

    def begin(self, call: int, place: str) -> None:
        """Read the adapter at a path or URI. Raises TooManyPreparationsError."""
        if len(self._waiting) >= MAX_WAITING:
            raise TooManyPreparationsError(
                f"{MAX_WAITING} adapters wait to be read already; try again in a moment"
            )
        self._waiting[call] = place
        self._start()

    def give_up(self, call: int) -> None:
        """Its outcome is not wanted any more."""
        self._waiting.pop(call, None)
        if self._running.pop(call, None) is not None:
            self._stuck.add(call)
        self._start()

    def take_ended(self) -> list[tuple[int, Outcome]]:
        """What ended since the last call and was not given up."""
        wanted = []
        while self._ended:
            call, outcome = self._ended.popleft()
            if self._running.pop(call, None) is not None:
                wanted.append((call, outcome))
            self._stuck.discard(call)
        self._start()
        return wanted

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
            outcome: Outcome = self._prepare(place)
        except Exception as error:  # noqa: BLE001 - whatever happens, the call is answered
            outcome = error
        self._ended.append((call, outcome))
        self._wake()
