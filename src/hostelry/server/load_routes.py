"""POST /internal/load: reports of gateway workers on their load."""

import asyncio
import logging

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from hostelry.base.clock import Clock
from hostelry.base.json import decode
from hostelry.domain.load import LoadReport
from hostelry.metrics.sagemaker.load_aggregator import LoadAggregator, ReportError

LOG = logging.getLogger(__name__)


class LoadRoutes:
    """Handler that passes reports to `board`."""

    def __init__(self, board: LoadAggregator, clock: Clock) -> None:
        self._board = board
        self._clock = clock

    async def take(self, request: Request) -> Response:
        """204 once the report is counted, also where it was counted before; 400 for no report."""
        body = await request.body()
        try:
            await asyncio.to_thread(self._take, body)
        except (msgspec.MsgspecError, UnicodeDecodeError, ReportError) as error:
            LOG.warning("a load report was refused: %s", error)
            return Response(f"no report: {error}", 400)
        return Response(status_code=204)

    def _take(self, body: bytes) -> None:
        self._board.take(decode(body, LoadReport), self._clock.now())
