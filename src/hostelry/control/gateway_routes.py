"""Internal routes for gateway workers: routes of copies, reports of load, wakes.

``GET /internal/routes?have=VERSION`` answers once the routes differ from the caller's:

| the caller | answer |
| --- | --- |
| has the newest routes for 20 s | 304 |
| has a version that control knows, and sends `delta=1` | the changes (`X-Hostelry-Routes`) |
| has another version, or sends no `delta=1` (before 2026.12) | all routes |
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.base.clock import Clock
from hostelry.base.json import decode
from hostelry.base.json_response import JsonResponse, refuse_invalid
from hostelry.comparison.confidence import get_quantile
from hostelry.domain.load import Distribution, LoadKey, LoadReport, SecondLoad, Wake
from hostelry.domain.route_delta import DELTA, ROUTES_HEADER, encode_routes
from hostelry.domain.routes import RouteSnapshot
from hostelry.domain.scope import Scope
from hostelry.metrics.sagemaker.load_aggregator import HISTORY_S, LoadAggregator, ReportError
from hostelry.reconcile.record import has_desired_copies
from hostelry.reconcile.route_board import RouteBoard
from hostelry.store.records import State

ROUTES_WAIT_S = 20.0
JSON = "application/json"
BUCKET_S = 5  # length of a step in the load history of one name
RATE_S = 10  # rates and requests in flight are means over this time
LATENCY_S = 60  # percentiles cover this time
US_PER_MS = 1000.0
PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
COUNTS = ("arrivals", "errors_4xx", "errors_5xx", "no_capacity", "throttled", "delayed")
Seconds = Sequence[tuple[int, Sequence[SecondLoad]]]


class RouteRoutes:
    """Handler of the gateways' polls for routes. All workers share one encoded delta."""

    def __init__(self, board: RouteBoard) -> None:
        self._board = board
        self._versions: tuple[str, str] | None = None  # before and after the last delta
        self._delta = b""

    def routes(self) -> tuple[Route, ...]:
        """The route."""
        return (Route("/internal/routes", self.get_newer, methods=["GET"]),)

    async def get_newer(self, request: Request) -> Response:
        """Return the routes once they differ from the caller's, or 304 after 20 seconds."""
        have = request.query_params.get("have")
        snapshot = await self._board.newer_than(have, ROUTES_WAIT_S)
        if snapshot is None:
            return Response(status_code=304)
        if have is not None and request.query_params.get("delta") == "1":
            changes = self._encode_changes(have, snapshot)
            if changes:
                return Response(changes, media_type=JSON, headers={ROUTES_HEADER: DELTA})
        return Response(await asyncio.to_thread(encode_routes, snapshot), media_type=JSON)

    def _encode_changes(self, have: str, snapshot: RouteSnapshot) -> bytes:
        """The changes since `have` as JSON, empty if the version is unknown."""
        if self._versions != (have, snapshot.version):
            delta = self._board.delta_since(have)
            self._delta = b"" if delta is None else msgspec.json.encode(delta)
            self._versions = (have, snapshot.version)
        return self._delta


class LoadRoutes:
    """Handlers that pass reports of load to `aggregator`, and show its loads."""

    def __init__(self, aggregator: LoadAggregator, clock: Clock) -> None:
        self._aggregator = aggregator
        self._clock = clock

    async def take(self, request: Request) -> Response:
        """Count a report and answer 204, also if it was counted before. 400 if it is invalid."""
        body = await request.body()
        with refuse_invalid("report", ReportError):
            await asyncio.to_thread(self._take, body)
        return Response(status_code=204)

    async def show_recent(self, request: Request) -> Response:
        """The load of each name in the last minute, or of the names of one `endpoint`.

        With `component` or `variant`, also the last 15 minutes of this name in steps of 5 seconds.
        """
        query = request.query_params
        shown = await asyncio.to_thread(
            self._summarize, query.get("endpoint"), query.get("variant"), query.get("component")
        )
        return JsonResponse(shown)

    def _summarize(
        self, endpoint: str | None, variant: str | None, component: str | None
    ) -> dict[str, Any]:
        through = self._aggregator.closed_through
        wanted = [
            key
            for key in (self._aggregator.keys() if variant or component else ())
            if key.endpoint_name == endpoint
            and key.component_name == component
            and variant in (None, key.variant_name)
        ]
        loads = self._aggregator.recent(wanted[0], through - HISTORY_S) if wanted else []
        return {
            "now": self._clock.now(),
            "through": through,
            "is_reporting": self._aggregator.is_reporting(self._clock.now()),
            "names": summarize_names(self._aggregator.seconds(through - LATENCY_S), endpoint),
            "series": summarize_buckets(loads, BUCKET_S),
        }

    def _take(self, body: bytes) -> None:
        self._aggregator.take(decode(body, LoadReport), self._clock.now())


def summarize_names(seconds: Seconds, endpoint: str | None) -> list[dict[str, Any]]:
    """The load of each name in the last `LATENCY_S` seconds, or of the names of `endpoint`.

    `seconds` are closed seconds, oldest first. Rates are per second, times in milliseconds.
    """
    if not seconds:
        return []
    newest = seconds[-1][0]
    by_key: dict[LoadKey, list[SecondLoad]] = {}
    for at, loads in seconds:
        for load in loads if at > newest - LATENCY_S else ():
            if endpoint is None or load.key.endpoint_name == endpoint:
                by_key.setdefault(load.key, []).append(load)
    num_s = min(RATE_S, newest - seconds[0][0] + 1)
    return [
        {
            "endpoint": key.endpoint_name,
            "variant": key.variant_name,
            "component": key.component_name,
            **_rates([it for it in loads if it.second > newest - RATE_S], num_s),
            "held": loads[-1].held if loads[-1].second == newest else 0,
            "oldest_held_s": loads[-1].oldest_held_s if loads[-1].second == newest else 0.0,
            "latency_ms": _percentiles(it.model_latency_us for it in loads),
            "first_chunk_ms": _percentiles(it.first_chunk_latency_us for it in loads),
        }
        for key, loads in by_key.items()
    ]


def summarize_buckets(loads: Sequence[SecondLoad], bucket_s: int) -> list[dict[str, Any]]:
    """The rates of one name in each `bucket_s` seconds, oldest first.

    The newest bucket may have fewer seconds, and then its rates are means of these.
    """
    buckets: dict[int, list[SecondLoad]] = {}
    for load in loads:
        buckets.setdefault(load.second - load.second % bucket_s, []).append(load)
    return [
        {"at": at, **_rates(mine, len(mine)), "held": max(it.held_max for it in mine)}
        for at, mine in sorted(buckets.items())
    ]


def _rates(loads: Sequence[SecondLoad], num_s: int) -> dict[str, float]:
    found = {f"{it}_per_s": sum(getattr(load, it) for load in loads) / num_s for it in COUNTS}
    found["in_flight"] = sum(it.in_flight_mean for it in loads) / num_s
    return {name: round(value, 3) for name, value in found.items()}


def _percentiles(given: Iterable[Distribution]) -> dict[str, float] | None:
    """Percentiles in milliseconds, or None without a sample."""
    counts: dict[float, int] = {}
    for distribution in given:
        for value, count in zip(distribution.values, distribution.counts, strict=True):
            counts[value] = counts.get(value, 0) + count
    if not counts:
        return None
    values = sorted(counts)
    seen = Distribution(values=tuple(values), counts=tuple(counts[it] for it in values))
    return {name: round(get_quantile(seen, share) / US_PER_MS, 3) for name, share in PERCENTILES}


class WakeRoutes:
    """Handlers that call `wake` in a thread, and look up desired names in `state`."""

    def __init__(self, state: State, wake: Callable[[Wake], None]) -> None:
        self._state = state
        self._wake = wake

    async def wake(self, request: Request) -> Response:
        """Decide on a wake and answer 204, or 400 if the body is invalid."""
        with refuse_invalid("wake"):
            wake = decode(await request.body(), Wake)
        if max(wake.held, wake.concurrency) < 1 or not math.isfinite(wake.at):
            return Response(f"no wake: {wake.held} requests wait since {wake.at}", 400)
        await asyncio.to_thread(self._wake, wake)
        return Response(status_code=204)

    async def is_wanted(self, request: Request) -> Response:
        """Whether a name is desired. A worker whose routes lack a desired name waits for copies."""
        asked = request.query_params
        key = LoadKey(
            scope=Scope(asked.get("account", ""), asked.get("region", "")),
            endpoint_name=asked.get("endpoint", ""),
            variant_name="",
            component_name=asked.get("component") or None,
        )
        wanted = await asyncio.to_thread(has_desired_copies, self._state, key)
        return JsonResponse({"wanted": wanted})
