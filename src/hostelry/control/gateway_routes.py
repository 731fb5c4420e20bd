"""Internal routes for gateway workers: routes of copies, reports of load, wakes."""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.base.clock import Clock
from hostelry.base.json import decode
from hostelry.base.json_response import JsonResponse
from hostelry.comparison.confidence import quantile_of
from hostelry.domain.load import Distribution, LoadKey, LoadReport, SecondLoad, Wake
from hostelry.domain.route_delta import DELTA, ROUTES_HEADER, encoded
from hostelry.domain.routes import RouteSnapshot
from hostelry.domain.scope import Scope
from hostelry.metrics.sagemaker.load_aggregator import HISTORY_S, LoadAggregator, ReportError
from hostelry.reconcile.record import has_desired_copies
from hostelry.reconcile.route_board import RouteBoard
from hostelry.store.records import State

LOG = logging.getLogger(__name__)
# ``GET /internal/routes``: the routes once they differ from the caller's, whole or what changed.
#
# a caller with version `have`                                   answer
# ------------------------------------------------------------   ----------------------------------
# that is the newest, for 20 s                                   304
# that control knows, asks for `delta=1`                         the changes (`X-Hostelry-Routes`)
# another, or does not ask for changes, as before 2026.12        the whole


ROUTES_WAIT_S = 20.0
JSON = "application/json"


class RouteRoutes:
    """Handler of the gateways' polls for routes. Workers that have the same get the same bytes."""

    def __init__(self, board: RouteBoard) -> None:
        self._board = board
        self._versions: tuple[str, str] | None = None  # of the last delta
        self._delta = b""

    def routes(self) -> tuple[Route, ...]:
        """The route."""
        return (Route("/internal/routes", self.newer, methods=["GET"]),)

    async def newer(self, request: Request) -> Response:
        """The routes once they differ from those that the caller has; 304 after 20 seconds."""
        have = request.query_params.get("have")
        snapshot = await self._board.newer_than(have, ROUTES_WAIT_S)
        if snapshot is None:
            return Response(status_code=304)
        if have is not None and request.query_params.get("delta") == "1":
            changes = self._changes(have, snapshot)
            if changes:
                return Response(changes, media_type=JSON, headers={ROUTES_HEADER: DELTA})
        return Response(await asyncio.to_thread(encoded, snapshot), media_type=JSON)

    def _changes(self, have: str, snapshot: RouteSnapshot) -> bytes:
        """The changes since `have` as JSON; empty where they are not known."""
        if self._versions != (have, snapshot.version):
            delta = self._board.delta_since(have)
            self._delta = b"" if delta is None else msgspec.json.encode(delta)
            self._versions = (have, snapshot.version)
        return self._delta


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


RATE_S = 10  # that rates and requests in flight are the means of
LATENCY_S = 60  # that percentiles are of
US_PER_MS = 1000.0
PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
COUNTS = ("arrivals", "errors_4xx", "errors_5xx", "no_capacity", "throttled", "delayed")
Seconds = Sequence[tuple[int, Sequence[SecondLoad]]]


def load_of_names(seconds: Seconds, endpoint: str | None) -> list[dict[str, Any]]:
    """What each name had in the last `LATENCY_S` seconds; `endpoint`: only the names of that one.

    `seconds` are closed ones, oldest first. Rates are a second's, times in milliseconds.
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


def load_by_time(loads: Sequence[SecondLoad], bucket_s: int) -> list[dict[str, Any]]:
    """The rates of one name in each `bucket_s` seconds, oldest first.

    The newest bucket may be short: its rates are of the seconds that it has.
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
    """Percentiles in milliseconds; None without a sample."""
    counts: dict[float, int] = {}
    for one in given:
        for value, count in zip(one.values, one.counts, strict=True):
            counts[value] = counts.get(value, 0) + count
    if not counts:
        return None
    values = sorted(counts)
    seen = Distribution(values=tuple(values), counts=tuple(counts[it] for it in values))
    return {name: round(quantile_of(seen, share) / US_PER_MS, 3) for name, share in PERCENTILES}


class WakeRoutes:
    """Handlers that pass wakes to `wake`, in a thread, and look desired names up in `state`."""

    def __init__(self, state: State, wake: Callable[[Wake], None]) -> None:
        self._state = state
        self._wake = wake

    async def wake(self, request: Request) -> Response:
        """204 once the wake is decided on; 400 for a body that is no wake."""
        try:
            wake = decode(await request.body(), Wake)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            LOG.warning("a wake was refused: %s", error)
            return Response(f"no wake: {error}", 400)
        if max(wake.held, wake.concurrency) < 1 or not math.isfinite(wake.at):
            return Response(f"no wake: {wake.held} requests wait since {wake.at}", 400)
        await asyncio.to_thread(self._wake, wake)
        return Response(status_code=204)

    async def wanted(self, request: Request) -> Response:
        """Whether a name that a worker's routes lack is desired, so that its copies are coming."""
        asked = request.query_params
        key = LoadKey(
            scope=Scope(asked.get("account", ""), asked.get("region", "")),
            endpoint_name=asked.get("endpoint", ""),
            variant_name="",
            component_name=asked.get("component") or None,
        )
        wanted = await asyncio.to_thread(has_desired_copies, self._state, key)
        return JsonResponse({"wanted": wanted})
