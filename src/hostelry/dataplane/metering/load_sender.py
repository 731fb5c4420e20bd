"""Reports each second's load to control, in order. Keeps reports while control is away."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from hostelry.base.clock import AFTER_THE_SECOND_S, Clock
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.http import HttpRequest
from hostelry.dataplane.metering.meter import ClosedSeconds, Meter
from hostelry.domain.load import LoadKey, LoadReport, SecondLoad
from hostelry.domain.load_sums import one_after_the_other
from hostelry.http1.calls import call
from hostelry.http1.reply import UpstreamError
from hostelry.http1.upstream import Timeouts, Upstream

LOG = logging.getLogger(__name__)
MAX_LOADS = 20_000  # seconds of names, about 20 MB
MAX_LOADS_A_REPORT = 5_000
MAX_CLOSED = 300


class LoadBacklog:
    """The reports of one process of a worker.

    Above `max_loads`, the older half is merged into one second. Every request stays counted, but
    the times get coarser.

    Args:
        worker: name of the worker.
        started_at: start of the process, in seconds since the epoch.
        max_loads: limit of the waiting seconds of names.
    """

    def __init__(self, worker: str, started_at: float, max_loads: int = MAX_LOADS) -> None:
        self._worker = worker
        self._started_at = started_at
        self._max_loads = max_loads
        self._closed: deque[ClosedSeconds] = deque()
        self._sequence = 0
        self._report: LoadReport | None = None

    @property
    def num_loads(self) -> int:
        """Number of waiting seconds of names, without the report under way."""
        return sum(len(it.loads) for it in self._closed)

    def add(self, seconds: Iterable[ClosedSeconds]) -> None:
        """Keep closed seconds until they are delivered."""
        for closed in seconds:
            last = self._closed[-1] if self._closed else None
            if last is None or last.through + 1 != closed.first:
                self._closed.append(closed)
            else:
                self._closed[-1] = _join(last, closed)
        if self.num_loads > self._max_loads or len(self._closed) > MAX_CLOSED:
            self._compact()

    def report(self) -> LoadReport | None:
        """The report to send, the same until `drop_report` is called. None without a backlog."""
        if self._report is None and self._closed:
            closed = self._cut(self._closed.popleft())
            self._sequence += 1
            self._report = LoadReport(
                worker=self._worker,
                started_at=self._started_at,
                sequence=self._sequence,
                seconds=closed.loads,
                first=closed.first,
                through=closed.through,
            )
        return self._report

    def drop_report(self) -> None:
        """Drop the report, because control has taken it or never will."""
        self._report = None

    def _cut(self, closed: ClosedSeconds) -> ClosedSeconds:
        """Take whole seconds from the beginning of `closed`. The rest waits."""
        if len(closed.loads) <= MAX_LOADS_A_REPORT or closed.first == closed.through:
            return closed
        last = min(closed.loads[MAX_LOADS_A_REPORT].second, closed.through)
        until = max(last, closed.first + 1)
        now = tuple(it for it in closed.loads if it.second < until)
        rest = tuple(it for it in closed.loads if it.second >= until)
        self._closed.appendleft(ClosedSeconds(first=until, through=closed.through, loads=rest))
        return ClosedSeconds(first=closed.first, through=until - 1, loads=now)

    def _compact(self) -> None:
        """Merge the older half of the backlog into one second, at its end."""
        loads = [load for closed in self._closed for load in closed.loads]
        first, through = self._closed[0].first, self._closed[-1].through
        half = loads[: len(loads) // 2]
        at = half[-1].second if half else first
        merged: dict[LoadKey, SecondLoad] = {}
        for load in (it for it in loads if it.second <= at):
            known = merged.get(load.key)
            both = load if known is None else one_after_the_other(known, load)
            merged[load.key] = replace(both, second=at)
        rest = [it for it in loads if it.second > at]
        self._closed.clear()
        self._closed.append(
            ClosedSeconds(first=at, through=max(at, through), loads=(*merged.values(), *rest))
        )


def _join(first: ClosedSeconds, later: ClosedSeconds) -> ClosedSeconds:
    loads = (*first.loads, *later.loads)
    return ClosedSeconds(first=first.first, through=later.through, loads=loads)


TIMEOUTS = Timeouts(total_s=5.0, connect_s=1.0)
LAST_TIMEOUTS = Timeouts(total_s=1.0, connect_s=0.5)
MAX_ANSWER_BYTES = 64 * 1024
# A process without requests reports that each `IDLE_S`, and reports at once when a request arrives.
# Control waits for its seconds again from then on.
IDLE_S = 5.0
MOST_REPORTS_AT_ONCE = 20  # of a backlog, each second


class LoadSender:
    """Sends the load that `meter` measures to control.

    Args:
        meter: the source of reports.
        backlog: reports that control has not taken yet.
        pool: connections.
        address: control's ``http://host:port``.
        internal_key: the key of calls between the platform's processes.
        clock: waiting.
    """

    def __init__(
        self,
        meter: Meter,
        backlog: LoadBacklog,
        pool: Upstream,
        address: str,
        internal_key: str,
        clock: Clock,
    ) -> None:
        self._meter = meter
        self._backlog = backlog
        self._pool = pool
        self._address = address
        self._internal_key = internal_key
        self._clock = clock
        self._connected = True
        self._has_begun = asyncio.Event()
        meter.began = self._has_begun.set

    async def run(self) -> None:
        """Report right after each second, until cancelled."""
        while True:
            await self._clock.sleep(self._meter.until_next_s + AFTER_THE_SECOND_S)
            self._backlog.add(self._meter.take_closed())
            while await self._send(TIMEOUTS):
                await self._idle()

    async def _idle(self) -> None:
        """Wait for a request, or until the next idle report is due."""
        wait_s = self._meter.until_next_s + AFTER_THE_SECOND_S + IDLE_S - 1.0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._has_begun.wait()
        self._backlog.add((*self._meter.take_closed(), self._meter.nothing()))

    async def finish(self) -> None:
        """Report the rest, including the current second. Gives up within about two seconds."""
        self._backlog.add(self._meter.close_now())
        await self._send(LAST_TIMEOUTS)

    async def _send(self, timeouts: Timeouts) -> bool:
        """Send the backlog until control takes no report.

        True if all is sent, and the last report said that nothing is under way.
        """
        is_known = False
        for _ in range(MOST_REPORTS_AT_ONCE):
            report = self._backlog.report()
            if report is None:
                return is_known
            is_known = self._meter.is_idle
            self._has_begun.clear()
            report = replace(report, idle_s=IDLE_S if is_known else 0.0)
            try:
                status, answer = await self._post(msgspec.json.encode(report), timeouts)
            except UpstreamError as error:
                self._note_connection(connected=False, reason=str(error))
                return False
            if status >= 500:
                self._note_connection(connected=False, reason=f"it answered {status}")
                return False
            if status >= 400:  # a retry would be refused too
                LOG.error("control refused a report of load (%d): %.300s", status, answer)
            self._backlog.drop_report()
            self._note_connection(connected=True, reason="")
        return False

    async def _post(self, body: bytes, timeouts: Timeouts) -> tuple[int, str]:
        headers = {INTERNAL_KEY_HEADER: self._internal_key}
        request = HttpRequest("POST", "/internal/load", "", headers, body)
        answer = await call(self._pool, self._address, request, timeouts, MAX_ANSWER_BYTES)
        return answer.status, answer.body.decode("utf-8", "replace")

    def _note_connection(self, *, connected: bool, reason: str) -> None:
        if connected != self._connected:
            self._connected = connected
            if connected:
                LOG.info("control takes reports of load again")
            else:
                LOG.warning("control takes no reports of load; they are kept (%s)", reason)
