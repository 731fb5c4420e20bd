"""Internal routes on usage: serverless endpoints by hour, and the artifacts that records name.

An artifact counts as used if any text in any record names it, because running copies, an update
under way or a rollback may need it.
"""

import asyncio
import math
from collections.abc import Iterable, Iterator, Set
from dataclasses import fields
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.base.clock import Clock
from hostelry.base.json_response import JsonResponse
from hostelry.domain.async_request import from_web_address
from hostelry.domain.metric import OWN_NAMESPACE, Metric, MetricStat
from hostelry.domain.scope import Scope
from hostelry.metrics.protocol import MetricFilter, MetricReader
from hostelry.metrics.sagemaker.serverless import USAGE
from hostelry.store.protocol import Record
from hostelry.store.records import Records, State

HOUR_S = 3600
KEPT_S = 455 * 86_400  # how long the metric store keeps hourly sums
S3 = "s3://"
WEB = "https://"
ENDS = frozenset(" \t\r\n\"'`,;|<>\\{}[]()")


class UsageRoutes:
    """GET /internal/usage: the usage of the serverless endpoints of `scope`."""

    def __init__(self, scope: Scope, metrics: MetricReader, clock: Clock) -> None:
        self._scope = scope
        self._metrics = metrics
        self._clock = clock

    def routes(self) -> tuple[Route, ...]:
        """The route."""
        return (Route("/internal/usage", self.usage, methods=["GET"]),)

    async def usage(self, request: Request) -> Response:
        """`endpoints`, each with `total` and `hours`: the named `endpoint`, or all."""
        name = request.query_params.get("endpoint")
        found = await asyncio.to_thread(self._sum_usage, name)
        return JsonResponse({"endpoints": found})

    def _sum_usage(self, name: str | None) -> list[dict[str, Any]]:
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


class ArtifactUseRoutes:
    """GET /internal/artifact-uses: the objects and models that the records in `state` name."""

    def __init__(self, state: State) -> None:
        self._state = state

    def routes(self) -> tuple[Route, ...]:
        """The route."""
        return (Route("/internal/artifact-uses", self.uses, methods=["GET"]),)

    async def uses(self, request: Request) -> Response:
        """`addresses` and `models`: each with the records that name it, as "KIND NAME"."""
        return JsonResponse(await asyncio.to_thread(self._find_uses))

    def _find_uses(self) -> dict[str, dict[str, list[str]]]:
        kinds = [getattr(self._state, it.name) for it in fields(self._state)]
        records = [
            record
            for kind in kinds
            if isinstance(kind, Records)
            for record in self._state.store.list(kind.kind)
        ]
        models = {it.value.name for it in self._state.models.list()}
        addresses = find_address_uses(records)
        return {"addresses": addresses, "models": find_model_uses(records, models)}


def find_address_uses(records: Iterable[Record]) -> dict[str, list[str]]:
    """The addresses that records name, each with the names of these records."""
    return _group_uses(
        (uri, record)
        for record in records
        if S3.encode() in record.body or WEB.encode() in record.body
        for text in _texts(record)
        for uri in find_addresses(text)
    )


def find_model_uses(records: Iterable[Record], models: Set[str]) -> dict[str, list[str]]:
    """The models that other records name, each with the names of these records."""
    return _group_uses(
        (name, record)
        for record in records
        if record.key.kind != "model"
        for text in _texts(record)
        for part in text.split('"')  # a schedule has its JSON input as one text
        if (name := part.rstrip("\\")) in models
    )


def _group_uses(found: Iterable[tuple[str, Record]]) -> dict[str, list[str]]:
    uses: dict[str, dict[str, None]] = {}
    for what, record in found:
        uses.setdefault(what, {})[f"{record.key.kind} {record.key.name}"] = None
    return {what: list(names) for what, names in sorted(uses.items())}


def find_addresses(text: str) -> Iterator[str]:
    """The addresses s3://BUCKET/KEY in a text."""
    for start in (S3, WEB):
        at = text.find(start)
        while at >= 0:
            end = at + len(start)
            while end < len(text) and text[end] not in ENDS:
                end += 1
            address = text[at:end]
            uri = address if start == S3 else from_web_address(address)
            if uri not in (None, S3):
                yield str(uri)
            at = text.find(start, end)


def _texts(record: Record) -> Iterator[str]:
    waiting: list[Any] = [msgspec.json.decode(record.body)]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, str):
            yield inner
        elif isinstance(inner, dict):
            waiting += [*inner, *inner.values()]
        elif isinstance(inner, list):
            waiting += inner
