"""Reports measurements to control; keeps the last reports while control is down."""

from collections import deque

from hostelry.base.clock import Clock
from hostelry.domain.async_metrics import AsyncMetricsReport
from hostelry.jobs.dispatch.control_line import ControlDownError, ControlLine, ControlRefusedError
from hostelry.jobs.dispatch.measurements import AsyncMeasurements

REPORT_S = 5.0
MAX_KEPT = 200


class MetricReports:
    """The reports of one process, numbered, so that control publishes each once.

    Args:
        measurements: are reported.
        control: takes reports.
        clock: dates them.
    """

    def __init__(self, measurements: AsyncMeasurements, control: ControlLine, clock: Clock) -> None:
        self._measurements = measurements
        self._control = control
        self._clock = clock
        self._started_at = clock.now()
        self._sequence = 0
        self._kept: deque[AsyncMetricsReport] = deque(maxlen=MAX_KEPT)

    async def send(self) -> None:
        """Report what was measured since the last call, and what control has not taken yet."""
        samples = self._measurements.take(self._clock.now())
        if samples:
            self._sequence += 1
            self._kept.append(
                AsyncMetricsReport(
                    started_at=self._started_at, sequence=self._sequence, samples=samples
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
