"""GET /internal/cost-usage: the sums per hour from which costs are computed."""

import asyncio
import math
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from hostelry.base.clock import Clock
from hostelry.base.errors import UsageError
from hostelry.base.json_response import JsonResponse
from hostelry.control.usage_routes import HOUR_S, KEPT_S
from hostelry.cost.usage import METRICS
from hostelry.domain.metric import OWN_NAMESPACE, MetricStat
from hostelry.domain.scope import Scope
from hostelry.metrics.protocol import MetricFilter, MetricReader
from hostelry.store.records import State

MAX_SUMS = 1_000_000
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
        """`now`, `sums` of the hours that begin in [from, to), and `tags` by endpoint.

        400 if an instant is invalid, or if there are more than MAX_SUMS sums.
        """
        try:
            since = _parse_instant(request.query_params.get("from"), "from")
            until = _parse_instant(request.query_params.get("to"), "to")
            found = await asyncio.to_thread(self._list_sums, since, until)
        except UsageError as error:
            return PlainTextResponse(str(error), 400)
        tags = await asyncio.to_thread(self._list_tags)
        return JsonResponse({"now": self._clock.now(), "sums": found, "tags": tags})

    def _list_sums(self, since: float, until: float) -> list[dict[str, Any]]:
        start = math.floor(max(since, self._clock.now() - KEPT_S) / HOUR_S) * HOUR_S
        end = math.ceil(until / HOUR_S) * HOUR_S
        found, num = [], 0
        for metric in self._metrics.find(self._scope, MetricFilter(namespace=OWN_NAMESPACE)):
            if metric.name not in METRICS:
                continue
            stat = MetricStat(metric=metric, period_s=HOUR_S, statistic="Sum")
            points = self._metrics.datapoints(self._scope, stat, start, end)
            hours = [(it.at, it.value) for it in points]
            num += len(hours)
            if num > MAX_SUMS:
                raise UsageError(
                    f"the period has more than {MAX_SUMS} sums of usage; ask for a shorter period"
                )
            if hours:
                dimensions = dict(metric.dimensions)
                found.append({"metric": metric.name, "dimensions": dimensions, "hours": hours})
        return found

    def _list_tags(self) -> dict[str, dict[str, str]]:
        tags = {}
        for record in self._state.endpoints.list():
            endpoint = record.value
            if endpoint.scope == self._scope:
                stored = self._state.tags.get(endpoint.scope, endpoint.arn)
                if stored is not None and stored.value.tags:
                    tags[endpoint.name] = dict(stored.value.tags)
        return tags


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
