"""Writes what the load board closes to the metric store, as it closes, for as long as it runs."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from hostelry.base.clock import Clock
from hostelry.base.errors import RetryableError
from hostelry.domain.load import SecondLoad
from hostelry.metrics.census import Census
from hostelry.metrics.load_board import LoadBoard
from hostelry.metrics.protocol import MetricWriter
from hostelry.metrics.publication import Publication
from hostelry.metrics.publish import Told, by_scope
from hostelry.metrics.totals import Totals
from hostelry.metrics.utilization import cpus_used, utilization

log = logging.getLogger(__name__)
PAUSE_S = 0.25
MAX_SECONDS_BEHIND = 900
MAX_UNRECORDED = 100_000
UTILIZATION_PERIOD_S = 60


class Publisher:
    """Publishes `board`'s seconds to `store`, and adds them up in `totals`.

    Args:
        board: what gateway workers report.
        store: where samples are recorded.
        census: everything in service now.
        clock: seconds since the epoch, and waiting.
    """

    def __init__(
        self,
        board: LoadBoard,
        store: MetricWriter,
        census: Callable[[], Census],
        clock: Clock,
    ) -> None:
        self._board = board
        self._store = store
        self._census = census
        self._clock = clock
        self.totals = Totals()
        self._publication = Publication()
        self._closed: deque[tuple[int, Sequence[SecondLoad]]] = deque(maxlen=MAX_SECONDS_BEHIND)
        self._unrecorded: deque[Told] = deque(maxlen=MAX_UNRECORDED)
        self._use: tuple[float, Census] | None = None
        self._is_full = False
        board.subscribe(lambda second, loads: self._closed.append((second, loads)))

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            await asyncio.to_thread(self.publish)
            await self._clock.sleep(PAUSE_S)

    def publish(self) -> None:
        """Publish what has closed since the last time; what cannot be recorded now is kept."""
        self._board.tick(self._clock.now())
        if self._closed:
            census = self._census()
            while self._closed:
                second, loads = self._closed.popleft()
                self._unrecorded.extend(self._publication.take(second, loads, census))
                self.totals.take(second, loads)
            late = self._board.late()
            self._unrecorded.extend(self._publication.late(late, census))
            self.totals.take_late(late)
            self._measure_use(census)
        self._record()

    def _measure_use(self, census: Census) -> None:
        """Once a minute: what copies used since the last time."""
        now = self._clock.now()
        if self._use is None:
            self._use = (now, census)
        since, before = self._use
        if now - since >= UTILIZATION_PERIOD_S:
            used = cpus_used(before, census)
            self._unrecorded.extend(utilization(int(since), census, used))
        if now - since >= UTILIZATION_PERIOD_S or now < since:
            self._use = (now, census)

    def _record(self) -> None:
        if not self._unrecorded:
            return
        samples = list(self._unrecorded)
        self._unrecorded.clear()
        for scope, mine in by_scope(samples).items():
            try:
                self._store.record(scope, mine)
            except RetryableError as error:
                self._unrecorded.extend((scope, it) for it in mine)
                self._tell(is_full=True, reason=str(error))
            else:
                self._tell(is_full=False, reason="")

    def _tell(self, *, is_full: bool, reason: str) -> None:
        if is_full != self._is_full:
            self._is_full = is_full
            if is_full:
                log.warning("metrics cannot be recorded; the last ones are kept (%s)", reason)
            else:
                log.info("metrics are recorded again")
