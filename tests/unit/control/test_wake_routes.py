"""Control's answers to gateway workers that hold requests: valid wakes and invalid ones."""

import asyncio
from collections.abc import Iterator, Sequence

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from tests.cases import case, cases
from tests.unit.reconcile.samples import SCOPE, Town, component, deployment, endpoint, variant

from hostelry.control.gateway_routes import WakeRoutes
from hostelry.domain.load import LoadKey, Wake
from hostelry.store.memory import MemoryStore
from hostelry.store.records import State, open_state

KEY = LoadKey(scope=SCOPE, endpoint_name="ep", variant_name="v", component_name="base")
WAKE = Wake(key=KEY, held=3, at=5.0)
GOOD = msgspec.json.encode(WAKE)


def answers(
    state: State, *calls: tuple[str, str, bytes]
) -> tuple[Sequence[httpx.Response], list[Wake]]:
    """The answers to (method, target, body), and the wakes that were passed on."""
    woken: list[Wake] = []

    async def main() -> list[httpx.Response]:
        routes = WakeRoutes(state, woken.append)
        app = Starlette(
            routes=[
                Route("/wake", routes.wake, methods=["POST"]),
                Route("/wanted", routes.is_wanted, methods=["GET"]),
            ]
        )
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://control") as client:
            return [await client.request(how, where, content=body) for how, where, body in calls]

    return asyncio.run(main()), woken


def test_a_wake_is_passed_on() -> None:
    (answer,), woken = answers(open_state(MemoryStore()), ("POST", "/wake", GOOD))
    assert answer.status_code == 204
    assert woken == [WAKE]


@cases(
    "body",
    case("nothing", b""),
    case("no text", b"\xff\xfe"),
    case("half a wake", b'{"held": 3}'),
    case("nobody waits", GOOD.replace(b'"held":3', b'"held":0')),
    case("no number", GOOD.replace(b'"held":3', b'"held":"many"')),
    case("no instant", GOOD.replace(b'"at":5.0', b'"at":1e999')),
)
def test_what_is_no_wake_is_refused_and_wakes_nothing(body: bytes) -> None:
    (answer,), woken = answers(open_state(MemoryStore()), ("POST", "/wake", body))
    assert answer.status_code == 400
    assert woken == []


@pytest.fixture
def town() -> Iterator[Town]:
    made = Town()
    yield made
    made.close()


def test_what_is_recorded_is_known_and_nothing_else(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component())
    town.settle()
    whose = f"account={SCOPE.account}&region={SCOPE.region}"
    asked = [
        (f"{whose}&endpoint=ep&component=base", True),
        (f"{whose}&endpoint=ep&component=", True),
        (f"{whose}&endpoint=&component=base", True),
        (f"{whose}&endpoint=ep&component=nobody", False),
        ("endpoint=ep&component=base", False),
        ("", False),
    ]
    found, _ = answers(town.state, *(("GET", f"/wanted?{query}", b"") for query, _ in asked))
    assert [it.json()["wanted"] for it in found] == [expected for _, expected in asked]
