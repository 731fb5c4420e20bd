"""GET /internal/usage and the table that `hostelry usage` prints."""

import asyncio

import httpx
from starlette.applications import Starlette

from hostelry.base.clock import ManualClock
from hostelry.cli.usage import usage_lines
from hostelry.control.usage_routes import UsageRoutes
from hostelry.domain.load import LoadKey
from hostelry.domain.scope import Scope
from hostelry.metrics.sagemaker.serverless import usage_sample
from hostelry.metrics.series.store import MemoryMetrics

HERE = Scope("111122223333", "us-east-1")


def answer(metrics: MemoryMetrics, clock: ManualClock, query: str = "") -> list[dict[str, object]]:
    async def ask() -> httpx.Response:
        app = Starlette(routes=list(UsageRoutes(HERE, metrics, clock).routes()))
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://control") as client:
            return await client.get(f"/internal/usage{query}")

    found: list[dict[str, object]] = asyncio.run(ask()).json()["endpoints"]
    return found


def test_usage_is_summed_by_hour_and_in_all() -> None:
    clock = ManualClock()
    metrics = MemoryMetrics(clock)
    hour = int(clock.now() // 3600) * 3600
    for name in ("fn", "other"):
        key = LoadKey(scope=HERE, endpoint_name=name, variant_name="main")
        for at in (hour - 1800, hour - 1700, hour):
            metrics.emit(HERE, [usage_sample("ServerlessBilledTime", key, at, 40.0)])
    one, two = answer(metrics, clock)
    assert (one["endpoint"], two["endpoint"]) == ("fn", "other")
    assert one["total"]["billed_ms"] == 120  # type: ignore[index]
    hours = [(it["hour"], it["billed_ms"]) for it in one["hours"]]  # type: ignore[attr-defined]
    assert hours == [(hour - 3600, 80), (hour, 40)]
    assert [it["endpoint"] for it in answer(metrics, clock, "?endpoint=other")] == ["other"]
    assert answer(metrics, clock, "?endpoint=none") == []
    lines = usage_lines(answer(metrics, clock))
    assert lines[1].split()[:2] == ["fn", "total"]
    assert usage_lines([]) == ["No serverless endpoint was used."]
