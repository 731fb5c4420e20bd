"""Gateways follow control's routes by changes, and notice changes that do not fit."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.unit.dataplane.routes_sample import HERE, changed_between, component

from hostelry.base.clock import SystemClock
from hostelry.base.files import write_whole
from hostelry.control.gateway_routes import RouteRoutes
from hostelry.dataplane.routes import PublishedRoutes, RouteFile, decode_snapshot
from hostelry.domain.route_delta import DELTA, ROUTES_HEADER, build_snapshot, encode_routes
from hostelry.domain.routes import EndpointRoute, RouteSnapshot
from hostelry.reconcile.route_board import RouteBoard

PARTS = tuple(component(f"c{number:02}") for number in range(20))
ADDRESS = ("111122223333", "us-west-2", "e")


def route_of(count: int) -> EndpointRoute:
    return EndpointRoute(scope=HERE, name="e", takes_components=True, components=PARTS[:count])


def publish(board: RouteBoard, count: int) -> RouteSnapshot:
    """Publish routes with `count` components, and return the change."""
    before = board.snapshot
    old = None if before is None else before.endpoints[0]
    parts = changed_between(old, route_of(count))
    snapshot = build_snapshot([route_of(count)])
    since = "" if before is None else before.version
    board.publish_change(since, snapshot, {ADDRESS: parts} if parts else {})
    return snapshot


@dataclass
class Reply:
    status: int
    headers: Mapping[str, str]
    content: bytes

    async def body(self, _: int) -> bytes:
        return self.content

    def close(self) -> None:
        """Nothing to release."""


@dataclass
class Pool:
    """Sends a gateway's polls to an application, and keeps how each was answered."""

    app: Any
    answers: list[str] = field(default_factory=list)

    async def send(self, address: str, request: tuple[bytes, bytes], *_: object) -> Reply:
        await asyncio.sleep(0)  # lets other tasks run, as a network would
        path = request[0].split(b" ")[1].decode()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=self.app)) as client:
            answer = await client.get(f"http://control{path}")
        kind = answer.headers.get(ROUTES_HEADER, "whole")
        self.answers.append(kind if answer.status_code == 200 else str(answer.status_code))
        return Reply(answer.status_code, dict(answer.headers), answer.content)


def follow(
    app: Any, path: Path, scenario: Callable[[PublishedRoutes, Pool], Awaitable[None]]
) -> list[str]:
    """Run `scenario` with a gateway that follows `app`. Returns the answers to its polls."""
    pool = Pool(app)

    async def run() -> None:
        file = RouteFile(path, write_whole)
        routes = PublishedRoutes(pool, "http://control", "key", file, SystemClock())  # type: ignore[arg-type]
        following = asyncio.create_task(routes.follow())
        try:
            async with asyncio.timeout(20):
                await scenario(routes, pool)
        finally:
            following.cancel()
            await asyncio.wait({following})

    asyncio.run(run())
    return pool.answers


async def seen(routes: PublishedRoutes, version: str) -> None:
    """Return once the gateway has the routes of that version."""
    came = asyncio.Event()
    routes.listen(came.set)
    while routes.table.version != version:
        came.clear()
        await came.wait()


def test_a_gateway_gets_everything_once_and_then_what_changes(tmp_path: Path) -> None:
    board, path = RouteBoard(), tmp_path / "routes.json"
    app = Starlette(routes=[*RouteRoutes(board).routes()])

    async def scenario(routes: PublishedRoutes, pool: Pool) -> None:
        for count in (10, 11, 9, 12):
            await seen(routes, publish(board, count).version)
            assert routes.table.snapshot() == board.snapshot
        assert routes.table.component(HERE, "c11") is not None

    assert follow(app, path, scenario)[:4] == ["whole", DELTA, DELTA, DELTA]
    kept = decode_snapshot(path.read_bytes())
    assert kept.endpoints in [(route_of(count),) for count in (10, 11, 9, 12)]


def test_a_gateway_that_starts_again_goes_on_from_its_file(tmp_path: Path) -> None:
    board, path = RouteBoard(), tmp_path / "routes.json"
    app = Starlette(routes=[*RouteRoutes(board).routes()])
    path.write_bytes(encode_routes(publish(board, 10)))

    async def scenario(routes: PublishedRoutes, pool: Pool) -> None:
        assert routes.table.component(HERE, "c09") is not None
        await seen(routes, publish(board, 11).version)

    assert follow(app, path, scenario)[0] == DELTA


def test_a_gateway_whose_routes_differ_asks_for_everything(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    board, path = RouteBoard(), tmp_path / "routes.json"
    app = Starlette(routes=[*RouteRoutes(board).routes()])
    first = publish(board, 10)
    wrong = replace(route_of(10), components=(*PARTS[:9], replace(PARTS[9], desired_copies=9)))
    path.write_bytes(encode_routes(replace(first, endpoints=(wrong,))))

    async def scenario(routes: PublishedRoutes, pool: Pool) -> None:
        with caplog.at_level(logging.WARNING):
            await seen(routes, publish(board, 9).version)
        assert routes.table.snapshot() == board.snapshot
        await seen(routes, publish(board, 10).version)

    assert follow(app, path, scenario)[:3] == [DELTA, "whole", DELTA]
    assert "changed routes do not fit" in caplog.text


def test_an_older_gateway_gets_everything_and_an_older_control_is_followed(tmp_path: Path) -> None:
    """Control and gateways are upgraded one after the other."""
    board = RouteBoard()
    first, second = publish(board, 10), publish(board, 11)

    async def older_gateway() -> bytes:
        app = Starlette(routes=[*RouteRoutes(board).routes()])
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app)) as client:
            asked = {"have": first.version}
            return (await client.get("http://control/internal/routes", params=asked)).content

    assert decode_snapshot(asyncio.run(older_gateway())) == second

    async def older_control(request: Request) -> Response:
        have = request.query_params["have"]
        await board.newer_than("never", 0.01)
        versions = [replace(first, version="v1"), replace(second, version="v2")]
        newer = versions[0] if have == "" else versions[1] if have == "v1" else None
        return Response(status_code=304) if newer is None else Response(encode_routes(newer))

    async def scenario(routes: PublishedRoutes, pool: Pool) -> None:
        await seen(routes, "v2")
        assert routes.table.component(HERE, "c10") is not None

    old = Starlette(routes=[Route("/internal/routes", older_control)])
    assert follow(old, tmp_path / "routes.json", scenario)[:2] == ["whole", "whole"]
