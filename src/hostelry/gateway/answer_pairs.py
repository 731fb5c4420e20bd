"""Answer pairs: a shadow's answers and production's to the same requests, compared in idle time.

answers of a pair                                         result
--------------------------------------------------------  ----------------------------------------
an answer is an error, or breaks off                      no pair: the metrics of both count errors
an answer has more than `max_bytes`                       no pair
`max_waiting` pairs wait to be compared                   no pair
both are whole                                            compared, in turn, and counted

A worker compares at most `pairs_per_s`, for at most `share` of its time. No request waits for a
comparison.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from hostelry.base.concurrency import run_guarded
from hostelry.comparison.answers import measure_distance
from hostelry.dataplane.metering.meter import Meter
from hostelry.domain.load import LoadKey


class PairLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the comparisons in one worker."""

    pairs_per_s: float = 20.0
    share: float = 0.05
    max_bytes: int = 64 * 1024
    max_waiting: int = 32


class AnswerHalf:
    """One answer of a pair, as it is read (`AnswerTap`)."""

    __slots__ = ("_num_bytes", "_pair", "chunks", "is_whole")

    def __init__(self, pair: "AnswerPair") -> None:
        self._pair: AnswerPair | None = pair
        self._num_bytes = 0
        self.chunks: list[bytes] = []
        self.is_whole = False

    def add(self, chunk: bytes) -> None:
        """Keep the next part, unless the pair was given up."""
        pair = self._pair
        if pair is None:
            return
        self._num_bytes += len(chunk)
        if self._num_bytes > pair.max_bytes:
            pair.give_up()
        else:
            self.chunks.append(chunk)

    def finish(self, answered: Mapping[str, str]) -> None:
        """Mark the answer as whole. Its headers are not compared."""
        if self._pair is not None:
            self.is_whole = True
            self._pair.finished()

    def close(self) -> None:
        """End the answer. If it is not whole, the pair is given up."""
        if self._pair is not None and not self.is_whole:
            self._pair.give_up()

    def drop(self) -> None:
        """Forget the parts, and keep none of the next ones."""
        self._pair = None
        self.chunks = []


class AnswerPair:
    """The two answers to one request."""

    __slots__ = ("_pairs", "key", "max_bytes", "production", "shadow")

    def __init__(self, pairs: "AnswerPairs", key: LoadKey, max_bytes: int) -> None:
        self._pairs = pairs
        self.key = key
        self.max_bytes = max_bytes
        self.production = AnswerHalf(self)
        self.shadow = AnswerHalf(self)

    def finished(self) -> None:
        """Have the answers compared if both are whole."""
        if self.production.is_whole and self.shadow.is_whole:
            self._pairs.compare(self)

    def give_up(self) -> None:
        """Forget both answers. They are not compared."""
        self.production.drop()
        self.shadow.drop()


class AnswerPairs:
    """The pairs of one worker.

    Args:
        meter: counts the results under the shadow's name.
        now_s: seconds of a clock that never goes back.
        limits: limits of the comparisons.
        sleep: waits.
    """

    def __init__(
        self,
        meter: Meter,
        now_s: Callable[[], float],
        limits: PairLimits | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._meter = meter
        self._now_s = now_s
        self._limits = limits or PairLimits()
        self._sleep = sleep
        self._waiting: deque[AnswerPair] = deque()
        self._task: asyncio.Task[None] | None = None

    def begin(self, key: LoadKey) -> AnswerPair | None:
        """Begin the pair of a request to the shadow `key`. None if too many pairs wait."""
        if len(self._waiting) >= self._limits.max_waiting:
            return None
        return AnswerPair(self, key, self._limits.max_bytes)

    def compare(self, pair: AnswerPair) -> None:
        """Queue a pair whose answers are whole. It is given up if too many pairs wait."""
        if len(self._waiting) >= self._limits.max_waiting:
            pair.give_up()
            return
        self._waiting.append(pair)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Cancel the comparisons."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        """Compare the waiting pairs, with a pause before each."""
        limits, pause_s = self._limits, 0.0
        while self._waiting:
            await self._sleep(max(pause_s, 1 / limits.pairs_per_s))
            began_s = self._now_s()
            await run_guarded("comparing answers", self._next)
            pause_s = (self._now_s() - began_s) * (1 / limits.share - 1)
        self._task = None

    async def _next(self) -> None:
        pair = self._waiting.popleft()
        production, shadow = (b"".join(it.chunks) for it in (pair.production, pair.shadow))
        pair.give_up()
        found = measure_distance(production, shadow)
        self._meter.count_pair(
            pair.key, exact=found.exact, close=found.close, distance=found.distance
        )
