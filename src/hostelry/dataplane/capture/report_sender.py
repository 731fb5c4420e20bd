"""Reports of data capture to control. Counts wait while control is down."""

import logging
from collections.abc import Callable, Mapping

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.http import HttpRequest
from hostelry.domain.data_capture import CaptureCounts, CaptureReport, VariantCapture
from hostelry.domain.load import LoadKey
from hostelry.http1.calls import call
from hostelry.http1.reply import UpstreamError
from hostelry.http1.upstream import Timeouts, Upstream

LOG = logging.getLogger(__name__)
TIMEOUTS = Timeouts(total_s=5.0, connect_s=1.0)
MAX_ANSWER_BYTES = 64 * 1024
MAX_VARIANTS = 1000  # in a report. The other variants are in the next report
REPORT_S = 5.0


class CaptureReportSender:
    """Reports the counts of one process. One event loop uses it.

    Args:
        reporter: the process.
        take: returns the counts since the last call.
        pool: connections.
        address: control's ``http://host:port``.
        internal_key: the key of calls between the platform's processes.
        clock: dates reports.
    """

    def __init__(
        self,
        reporter: str,
        take: Callable[[], Mapping[LoadKey, CaptureCounts]],
        pool: Upstream,
        address: str,
        internal_key: str,
        clock: Clock,
    ) -> None:
        self._reporter = reporter
        self._take = take
        self._pool = pool
        self._address = address
        self._internal_key = internal_key
        self._clock = clock
        self._started_at = clock.now()
        self._sequence = 0
        self._waiting: dict[LoadKey, CaptureCounts] = {}
        self._causes: dict[LoadKey, str] = {}  # of drops that were logged
        self._unanswered: CaptureReport | None = None

    async def send(self) -> None:
        """Report the counts, unless control is down. Control counts no report twice."""
        for key, counts in self._take().items():
            self._note(key, counts)
            self._waiting.setdefault(key, CaptureCounts()).add(counts)
        report = self._unanswered or self._next()
        if report is None:
            return
        self._unanswered = report
        if await self._post(report):
            self._unanswered = None

    def _next(self) -> CaptureReport | None:
        keys = list(self._waiting)[:MAX_VARIANTS]
        if not keys:
            return None
        self._sequence += 1
        return CaptureReport(
            reporter=self._reporter,
            started_at=self._started_at,
            sequence=self._sequence,
            at=self._clock.now(),
            variants=tuple(VariantCapture(key=it, counts=self._waiting.pop(it)) for it in keys),
        )

    async def _post(self, report: CaptureReport) -> bool:
        """Send a report. False if control is down, and the report must be sent again."""
        body = msgspec.json.encode(report)
        headers = {INTERNAL_KEY_HEADER: self._internal_key}
        request = HttpRequest("POST", "/internal/capture", "", headers, body)
        try:
            answer = await call(self._pool, self._address, request, TIMEOUTS, MAX_ANSWER_BYTES)
        except UpstreamError:
            return False
        if 400 <= answer.status < 500:
            LOG.error("control refused a report of data capture: %.300r", answer.body)
        return answer.status < 500

    def _note(self, key: LoadKey, counts: CaptureCounts) -> None:
        """Log the cause of drops once, until the variant is captured without drops again."""
        cause = counts.drop_cause
        if counts.captured and not counts.dropped:
            self._causes.pop(key, None)
        if cause is None or self._causes.get(key) == cause:
            return
        self._causes[key] = cause
        LOG.warning(
            "endpoint %s, variant %s: requests are not captured: %s",
            key.endpoint_name,
            key.variant_name,
            cause,
        )
