"""GET /internal/cost-usage: the sums per hour from which costs are computed."""

import asyncio
import math
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from hostelry.base.clock import Clock
from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.json_response import JsonResponse
from hostelry.control.usage_sums import list_sums, list_tags
from hostelry.domain.scope import Scope
from hostelry.metrics.protocol import MetricReader
from hostelry.store.records import State

MAX_INSTANT = 4_000_000_000


class CostRoutes:
    """The usage of the endpoints of `scope`, with their tags for budgets."""

    def __init__(self, scope: Scope, state: State, metrics: MetricReader, clock: Clock) -> None:
        self._scope = scope
        self._state = state
        self._metrics = metrics
        self._clock = clock

    def routes(self) -> tuple[Route, ...]:
        """The route."""
        return (Route("/internal/cost-usage", self.usage, methods=["GET"]),)

    async def usage(self, request: Request) -> Response:
        """`now`, `sums` of the hours that overlap [from, to), and `tags` by endpoint.

        400 if an instant is invalid, or if there are too many sums.
        """
        try:
            since = _parse_instant(request.query_params.get("from"), "from")
            until = _parse_instant(request.query_params.get("to"), "to")
            found = await asyncio.to_thread(self._list_sums, since, until)
        except TerminalError as error:
            return PlainTextResponse(str(error), 400)
        tags = await asyncio.to_thread(list_tags, self._scope, self._state)
        return JsonResponse({"now": self._clock.now(), "sums": found, "tags": tags})

    def _list_sums(self, since: float, until: float) -> list[dict[str, Any]]:
        now = self._clock.now()
        return [
            {
                "metric": metric.name,
                "dimensions": dict(metric.dimensions),
                "hours": [(point.at, point.value) for point in points],
            }
            for metric, points in list_sums(self._scope, self._metrics, (since, until), now)
        ]


def _parse_instant(text: str | None, name: str) -> float:
    try:
        found = float(text or "")
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and 0 <= found <= MAX_INSTANT):
        raise UsageError(
            f"{name} is not an instant in seconds since the epoch, up to {MAX_INSTANT}"
        )
    return found
