"""Answers kept by the content of their input: bounded in bytes and in time."""

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec

from hostelry.base.clock import Clock
from hostelry.graph.state import StepOutcome

ENTRY_BYTES = 512  # what an entry takes beside its answer, about


@dataclass(frozen=True, slots=True)
class _Kept:
    outcome: StepOutcome
    size_bytes: int
    ends_at: float


class AnswerCache:
    """The answers of one step; the least recently used leaves first."""

    def __init__(self, ttl_s: float, max_bytes: int, clock: Clock) -> None:
        self._ttl_s = ttl_s
        self._max_bytes = max_bytes
        self._clock = clock
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: bytes) -> StepOutcome | None:
        """The answer that is kept under the key; None where there is none any more."""
        found = self._kept.get(key)
        if found is not None and found.ends_at <= self._clock.now():
            self._remove(key)
            found = None
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        self._kept.move_to_end(key)
        return found.outcome

    def put(self, key: bytes, outcome: StepOutcome) -> None:
        """Keep an answer; one that is larger than the cache, or a dropped one, is not kept."""
        self._remove(key)
        size_bytes = ENTRY_BYTES + size_of(outcome)
        if outcome.is_dropped or outcome.fault is not None or size_bytes > self._max_bytes:
            return
        while self._kept and self.size_bytes + size_bytes > self._max_bytes:
            self._remove(next(iter(self._kept)))
        self._kept[key] = _Kept(outcome, size_bytes, self._clock.now() + self._ttl_s)
        self.size_bytes += size_bytes

    def _remove(self, key: bytes) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self.size_bytes -= found.size_bytes


def content_key(given: StepOutcome) -> bytes:
    """The key of an input, by its content; objects are equal whatever the order of their keys."""
    if isinstance(given.value, bytes):
        return sha256(b"bytes:" + given.value).digest()
    return sha256(msgspec.json.encode(given.value, order="deterministic")).digest()


def size_of(outcome: StepOutcome) -> int:
    """About the bytes that an answer takes in memory: its body, and its value, each as text."""
    value: Any = outcome.value
    text = len(value) if isinstance(value, bytes) else len(msgspec.json.encode(value))
    return text + len(outcome.body or b"")
