"""/internal/load: control's answers to valid and invalid reports of load, and to questions."""

import asyncio

import httpx
import msgspec
from starlette.applications import Starlette
from starlette.routing import Route
from tests.cases import case, cases
from tests.unit.metrics.sagemaker.load_sample import CHAT, T0, load, report

from hostelry.base.clock import ManualClock
from hostelry.control.gateway_routes import LoadRoutes
from hostelry.metrics.sagemaker.load_aggregator import LoadAggregator

GOOD = msgspec.json.encode(report("gateway-1", 1, load(T0, arrivals=3)))


def answers(aggregator: LoadAggregator, *bodies: bytes) -> list[int]:
    async def main() -> list[int]:
        routes = LoadRoutes(aggregator, ManualClock(T0 + 1.0))
        app = Starlette(routes=[Route("/internal/load", routes.take, methods=["POST"])])
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://control") as client:
            return [(await client.post("/internal/load", content=it)).status_code for it in bodies]

    return asyncio.run(main())


def test_a_report_is_taken_and_again_taken_for_counted() -> None:
    aggregator = LoadAggregator(T0 - 60.0)
    assert answers(aggregator, GOOD, GOOD) == [204, 204]
    aggregator.tick(T0 + 60)
    assert [it.arrivals for it in aggregator.recent(CHAT, T0)] == [3]


@cases(
    "body",
    case("nothing", b""),
    case("no text", b"\xff\xfe"),
    case("half a report", b'{"worker": "gateway-1"}'),
    case("a negative count", GOOD.replace(b'"arrivals":3', b'"arrivals":-3')),
    case("no number", GOOD.replace(b'"arrivals":3', b'"arrivals":NaN')),
    case("no finite number", GOOD.replace(b'"arrivals":3', b'"arrivals":1e999')),
)
def test_what_is_no_report_is_refused_and_counts_nothing(body: bytes) -> None:
    aggregator = LoadAggregator(T0 - 60.0)
    assert answers(aggregator, body) == [400]
    aggregator.tick(T0 + 60)
    assert aggregator.keys() == []


def test_the_load_of_one_name_is_shown_by_time() -> None:
    aggregator = LoadAggregator(T0 - 60.0)
    for number in range(1, 9):
        aggregator.take(
            report("gateway-1", number, load(T0 + number, arrivals=3)), T0 + number + 1.0
        )
    aggregator.tick(T0 + 60)

    async def main() -> list[httpx.Response]:
        routes = LoadRoutes(aggregator, ManualClock(T0 + 60.0))
        app = Starlette(routes=[Route("/internal/load", routes.show_recent, methods=["GET"])])
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://control") as client:
            own = {"endpoint": CHAT.endpoint_name, "component": CHAT.component_name or ""}
            unknown = {"endpoint": CHAT.endpoint_name, "component": "unknown"}
            return [await client.get("/internal/load", params=it) for it in (own, unknown)]

    own, unknown = (it.json() for it in asyncio.run(main()))
    assert [it["component"] for it in own["names"]] == [CHAT.component_name]
    assert sum(it["arrivals_per_s"] for it in own["series"]) > 0
    assert (len(unknown["names"]), unknown["series"]) == (1, [])
