"""Reports measurements to control; keeps the last reports while control is down."""

from collections import deque

from hostelry.base.clock import Clock
from hostelry.domain.async_metrics import AsyncMetricsReport
from hostelry.jobs.dispatch.control_line import ControlDownError, ControlLine, ControlRefusedError
from hostelry.jobs.dispatch.measurements import AsyncMeasurements
from hostelry.jobs.queue.work_claims import SharedWork

REPORT_S = 5.0
MAX_KEPT = 200
QUEUES = "metrics of queues"
TURN_S = 12.0  # after a report: the next one, and one after that, may be late


class MetricReports:
    """The reports of one process, numbered, so that control publishes each once.

    Args:
        measurements: are reported.
        control: takes reports.
        clock: dates them.
        shared: whose turn it is to report the queues, which several processes see.
        host: this host, where there are several.
    """

    def __init__(
        self,
        measurements: AsyncMeasurements,
        control: ControlLine,
        clock: Clock,
        shared: SharedWork,
        host: str = "",
    ) -> None:
        self._measurements = measurements
        self._control = control
        self._clock = clock
        self._shared = shared
        self._host = host
        self._started_at = clock.now()
        self._sequence = 0
        self._kept: deque[AsyncMetricsReport] = deque(maxlen=MAX_KEPT)

    async def send(self) -> None:
        """Report what was measured since the last call, and what control has not taken yet."""
        # Once for all hosts: sums and counts are those of one process.
        is_ours = self._measurements.has_queues and await self._shared.has_turn(QUEUES, TURN_S)
        samples = self._measurements.take(self._clock.now(), with_queues=is_ours)
        if samples:
            self._sequence += 1
            self._kept.append(
                AsyncMetricsReport(
                    started_at=self._started_at,
                    sequence=self._sequence,
                    samples=samples,
                    host=self._host,
                )
            )
        while self._kept:
            try:
                await self._control.report(self._kept[0])
            except ControlDownError:
                return
            except ControlRefusedError:
                self._kept.popleft()
                raise
            self._kept.popleft()

    async def finish(self) -> None:
        """Send what is left, and let another host report the queues."""
        await self.send()
        await self._shared.end_turn(QUEUES)
