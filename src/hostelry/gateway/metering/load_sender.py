"""Tells control each second what the meter has measured; keeps it while control is away."""

import logging

import msgspec

from hostelry.base.clock import Clock
from hostelry.gateway.http.reply import UpstreamError
from hostelry.gateway.http.upstream import Timeouts, Upstream
from hostelry.gateway.metering.load_backlog import LoadBacklog
from hostelry.gateway.metering.meter import Meter

log = logging.getLogger(__name__)
TIMEOUTS = Timeouts(total_s=5.0, connect_s=1.0)
LAST_TIMEOUTS = Timeouts(total_s=1.0, connect_s=0.5)
MAX_ANSWER_BYTES = 64 * 1024
AFTER_THE_SECOND_S = 0.002
MOST_REPORTS_AT_ONCE = 20  # of a backlog, each second


class LoadSender:
    """Sends what `meter` has to control.

    Args:
        meter: what is told of.
        backlog: what waits to be told.
        pool: connections.
        address: control's ``http://host:port``.
        internal_key: what control lets its own processes in by.
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

    async def run(self) -> None:
        """Report right after each second, until cancelled."""
        while True:
            await self._clock.sleep(self._meter.until_next_s + AFTER_THE_SECOND_S)
            self._backlog.add(self._meter.closed())
            await self._send(TIMEOUTS)

    async def finish(self) -> None:
        """Report what is left, the present second too; gives up within about two seconds."""
        self._backlog.add(self._meter.close_now())
        await self._send(LAST_TIMEOUTS)

    async def _send(self, timeouts: Timeouts) -> None:
        """Send what waits, until nothing does or control does not take it."""
        for _ in range(MOST_REPORTS_AT_ONCE):
            report = self._backlog.report()
            if report is None:
                return
            try:
                status, said = await self._post(msgspec.json.encode(report), timeouts)
            except UpstreamError as error:
                self._tell(connected=False, reason=str(error))
                return
            if status >= 500:
                self._tell(connected=False, reason=f"it answered {status}")
                return
            if status >= 400:  # it will not take it the next time either
                log.error("control refused a report of load (%d): %.300s", status, said)
            self._backlog.delivered()
            self._tell(connected=True, reason="")

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

    def _tell(self, *, connected: bool, reason: str) -> None:
        if connected != self._connected:
            self._connected = connected
            if connected:
                log.info("control takes reports of load again")
            else:
                log.warning("control takes no reports of load; they are kept (%s)", reason)
