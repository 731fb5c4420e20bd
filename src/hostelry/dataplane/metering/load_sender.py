"""Reports each second's load to control; keeps reports while control is down.

A process without a request says so each `IDLE_S`, and reports at once when one comes: control waits
for its seconds again from then on.
"""

import asyncio
import contextlib
import logging
from dataclasses import replace

import msgspec

from hostelry.base.clock import AFTER_THE_SECOND_S, Clock
from hostelry.dataplane.http.reply import UpstreamError
from hostelry.dataplane.http.upstream import Timeouts, Upstream
from hostelry.dataplane.metering.load_backlog import LoadBacklog
from hostelry.dataplane.metering.meter import Meter

log = logging.getLogger(__name__)
TIMEOUTS = Timeouts(total_s=5.0, connect_s=1.0)
LAST_TIMEOUTS = Timeouts(total_s=1.0, connect_s=0.5)
MAX_ANSWER_BYTES = 64 * 1024
IDLE_S = 5.0
MOST_REPORTS_AT_ONCE = 20  # of a backlog, each second


class LoadSender:
    """Sends the load that `meter` measures to control.

    Args:
        meter: the source of reports.
        backlog: reports that control has not taken yet.
        pool: connections.
        address: control's ``http://host:port``.
        internal_key: of calls between the platform's own processes.
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
            self._backlog.add(self._meter.closed())
            while await self._send(TIMEOUTS):
                await self._idle()

    async def _idle(self) -> None:
        """Wait for a request, or until it is time to report again that there is none."""
        wait_s = self._meter.until_next_s + AFTER_THE_SECOND_S + IDLE_S - 1.0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._has_begun.wait()
        self._backlog.add((*self._meter.closed(), self._meter.nothing()))

    async def finish(self) -> None:
        """Report the rest, the present second included; gives up within about two seconds."""
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
                log.error("control refused a report of load (%d): %.300s", status, answer)
            self._backlog.delivered()
            self._note_connection(connected=True, reason="")
        return False

    async def _post(self, body: bytes, timeouts: Timeouts) -> tuple[int, str]:
        head = (
            f"POST /internal/load HTTP/1.1\r\nHost: {self._address.removeprefix('http://')}\r\n"
            f"X-Hostelry-Key: {self._internal_key}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        reply = await self._pool.send(
            self._address, (head.encode("latin-1"), body), timeouts, MAX_ANSWER_BYTES
        )
        try:
            return reply.status, (await reply.body(MAX_ANSWER_BYTES)).decode("utf-8", "replace")
        finally:
            reply.close()

    def _note_connection(self, *, connected: bool, reason: str) -> None:
        if connected != self._connected:
            self._connected = connected
            if connected:
                log.info("control takes reports of load again")
            else:
                log.warning("control takes no reports of load; they are kept (%s)", reason)
