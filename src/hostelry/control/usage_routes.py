"""GET /internal/usage: what serverless endpoints used, by hour and in all."""

import asyncio
import math
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.base.clock import Clock
from hostelry.base.json_response import JsonResponse
from hostelry.domain.metric import OWN_NAMESPACE, Metric, MetricStat
from hostelry.domain.scope import Scope
from hostelry.metrics.protocol import MetricFilter, MetricReader
from hostelry.metrics.sagemaker.serverless import USAGE

HOUR_S = 3600
KEPT_S = 455 * 86_400  # for so long the metric store keeps an hour's sum


class UsageRoutes:
    """The handler; `scope` owns the endpoints, `metrics` has their usage."""

    def __init__(self, scope: Scope, metrics: MetricReader, clock: Clock) -> None:
        self._scope = scope
        self._metrics = metrics
        self._clock = clock

    def routes(self) -> tuple[Route, ...]:
        """The route."""
        return (Route("/internal/usage", self.usage, methods=["GET"]),)

    async def usage(self, request: Request) -> Response:
        """`endpoints`, each with `total` and `hours`; of the one named by `endpoint`, or all."""
        name = request.query_params.get("endpoint")
        found = await asyncio.to_thread(self._usage, name)
        return JsonResponse({"endpoints": found})

    def _usage(self, name: str | None) -> list[dict[str, Any]]:
        hours: dict[str, dict[float, dict[str, float]]] = {}
        chosen = MetricFilter(namespace=OWN_NAMESPACE)
        for metric in self._metrics.find(self._scope, chosen):
            endpoint = dict(metric.dimensions).get("EndpointName")
            if metric.name in USAGE and endpoint is not None and name in (None, endpoint):
                self._add(metric, hours.setdefault(endpoint, {}))
        return [
            {
                "endpoint": endpoint,
                "total": _sum(list(by_hour.values())),
                "hours": [{"hour": at, **_sum([used])} for at, used in sorted(by_hour.items())],
            }
            for endpoint, by_hour in sorted(hours.items())
        ]

    def _add(self, metric: Metric, hours: dict[float, dict[str, float]]) -> None:
        now = self._clock.now()
        stat = MetricStat(metric=metric, period_s=HOUR_S, statistic="Sum")
        until = (math.floor(now / HOUR_S) + 1) * HOUR_S
        for point in self._metrics.datapoints(self._scope, stat, now - KEPT_S, until):
            used = hours.setdefault(point.at, {})
            what = USAGE[metric.name]
            used[what] = used.get(what, 0.0) + point.value


def _sum(parts: list[dict[str, float]]) -> dict[str, int]:
    return {what: round(sum(it.get(what, 0.0) for it in parts)) for what in USAGE.values()}
