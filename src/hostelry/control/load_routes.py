"""/internal/load: POST takes reports of gateway workers, GET shows the load of the last minutes."""

import asyncio
import logging
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from hostelry.base.clock import Clock
from hostelry.base.json import decode
from hostelry.base.json_response import JsonResponse
from hostelry.control.recent_load import LATENCY_S, load_by_time, load_of_names
from hostelry.domain.load import LoadReport
from hostelry.metrics.sagemaker.load_aggregator import HISTORY_S, LoadAggregator, ReportError

LOG = logging.getLogger(__name__)
BUCKET_S = 5  # of a name by time


class LoadRoutes:
    """Handlers that pass reports to `board`, and show what it has."""

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

    async def recent(self, request: Request) -> Response:
        """The load of each name in the last minute; of `endpoint` alone, where that is given.

        With `component`, or `variant`, also the last 15 minutes of that one by 5 seconds.
        """
        query = request.query_params
        shown = await asyncio.to_thread(
            self._recent, query.get("endpoint"), query.get("variant"), query.get("component")
        )
        return JsonResponse(shown)

    def _recent(
        self, endpoint: str | None, variant: str | None, component: str | None
    ) -> dict[str, Any]:
        through = self._board.closed_through
        wanted = [
            key
            for key in (self._board.keys() if variant or component else ())
            if key.endpoint_name == endpoint
            and key.component_name == component
            and variant in (None, key.variant_name)
        ]
        loads = self._board.recent(wanted[0], through - HISTORY_S) if wanted else []
        return {
            "now": self._clock.now(),
            "through": through,
            "is_reporting": self._board.is_reporting(self._clock.now()),
            "names": load_of_names(self._board.seconds(through - LATENCY_S), endpoint),
            "series": load_by_time(loads, BUCKET_S),
        }

    def _take(self, body: bytes) -> None:
        self._board.take(decode(body, LoadReport), self._clock.now())
