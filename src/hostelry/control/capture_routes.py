"""POST /internal/capture: reports on data capture, their metrics, and sums for the status."""

import asyncio
import logging
import threading
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.base.json import decode
from hostelry.domain.capture_report import CaptureCounts, CaptureReport
from hostelry.domain.load import LoadKey
from hostelry.domain.scope import Scope
from hostelry.metrics.protocol import MetricWriter
from hostelry.metrics.sagemaker.capture_samples import capture_samples

LOG = logging.getLogger(__name__)
MAX_VARIANTS = 10_000
MAX_REPORTERS = 4096


class CaptureBoard:
    """Sums of data capture by variant, since control started; for threads.

    Args:
        metrics: takes the samples of each report.
    """

    def __init__(self, metrics: MetricWriter) -> None:
        self._metrics = metrics
        self._sums: dict[LoadKey, CaptureCounts] = {}
        self._reported: dict[str, tuple[float, int]] = {}
        self._lock = threading.Lock()

    def take(self, report: CaptureReport) -> None:
        """Count a report, once."""
        with self._lock:
            number = (report.started_at, report.sequence)
            if number <= self._reported.get(report.reporter, (0.0, 0)):
                return
            if len(self._reported) >= MAX_REPORTERS:
                self._reported.clear()
            self._reported[report.reporter] = number
            for variant in report.variants:
                sums = self._sums.pop(variant.key, None) or CaptureCounts()
                sums.add(variant.counts)
                self._sums[variant.key] = sums  # the last one reported is the last one dropped
            for key in list(self._sums)[:-MAX_VARIANTS]:
                del self._sums[key]
        for variant in report.variants:
            samples = list(capture_samples(variant.key, variant.counts, report.at))
            self._metrics.emit(variant.key.scope, samples)

    def of_endpoint(self, scope: Scope, name: str) -> list[Mapping[str, Any]]:
        """The sums of each variant of an endpoint as plain JSON values, by name."""
        with self._lock:
            found = [
                {"variant": key.variant_name, **msgspec.to_builtins(sums)}
                for key, sums in self._sums.items()
                if key.scope == scope and key.endpoint_name == name
            ]
        return sorted(found, key=lambda it: str(it["variant"]))

    def routes(self) -> tuple[Route, ...]:
        """The route."""
        return (Route("/internal/capture", self._post, methods=["POST"]),)

    async def _post(self, request: Request) -> Response:
        """204 once the report is counted, also where it was before; 400 for none."""
        try:
            report = decode(await request.body(), CaptureReport)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            LOG.warning("a report on data capture was refused: %s", error)
            return Response(f"no report on data capture: {error}", 400)
        await asyncio.to_thread(self.take, report)
        return Response(status_code=204)
