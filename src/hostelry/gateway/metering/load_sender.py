"""Reports each second's load to control; keeps reports while control is down."""

import logging

import msgspec

from hostelry.base.clock import AFTER_THE_SECOND_S, Clock
from hostelry.gateway.http.reply import UpstreamError
from hostelry.gateway.http.upstream import Timeouts, Upstream
from hostelry.gateway.metering.load_backlog import LoadBacklog
from hostelry.gateway.metering.meter import Meter

log = logging.getLogger(__name__)
TIMEOUTS = Timeouts(total_s=5.0, connect_s=1.0)
LAST_TIMEOUTS = Timeouts(total_s=1.0, connect_s=0.5)
MAX_ANSWER_BYTES = 64 * 1024
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

    async def run(self) -> None:
        """Report right after each second, until cancelled."""
        while True:
            await self._clock.sleep(self._meter.until_next_s + AFTER_THE_SECOND_S)
            self._backlog.add(self._meter.closed())
            await self._send(TIMEOUTS)

    async def finish(self) -> None:
        """Report the rest, the present second included; gives up within about two seconds."""
        self._backlog.add(self._meter.close_now())
        await self._send(LAST_TIMEOUTS)

    async def _send(self, timeouts: Timeouts) -> None:
        """Send the backlog, until it is empty or control does not take it."""
        for _ in range(MOST_REPORTS_AT_ONCE):
            report = self._backlog.report()
            if report is None:
                return
            try:
                status, answer = await self._post(msgspec.json.encode(report), timeouts)
            except UpstreamError as error:
                self._note_connection(connected=False, reason=str(error))
                return
            if status >= 500:
                self._note_connection(connected=False, reason=f"it answered {status}")
                return
            if status >= 400:  # a retry would be refused too
                log.error("control refused a report of load (%d): %.300s", status, answer)
            self._backlog.delivered()
            self._note_connection(connected=True, reason="")

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
