"""Keys of a graph's copy: sent once its server listens, and renewed."""

import asyncio

import httpx
import msgspec
import pytest
from tests.cases import case, cases

from hostelry.base.clock import ManualClock
from hostelry.fleet.agent.model_server import (
    FIRST_RETRY_S,
    RENEW_S,
    ModelServer,
    serve_with_call_keys,
)


def sent(failures: int, until: int) -> list[tuple[float, float]]:
    """When keys were sent, and which, to a server that fails at first."""
    found: list[tuple[float, float]] = []
    clock, done = ManualClock(0.0), asyncio.Event()

    def server(request: httpx.Request) -> httpx.Response:
        assert (request.method, request.url.path) == ("PUT", "/credentials")
        found.append((clock.now(), msgspec.json.decode(request.content)["expires_at"]))
        if len(found) >= until:
            done.set()
        if len(found) > failures:
            return httpx.Response(200)
        raise httpx.ConnectError("nothing listens yet")

    async def scenario() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(server)) as http:
            copy = ModelServer("http://copy", http)
            served = serve_with_call_keys(
                done.wait(), copy, lambda: {"expires_at": clock.now()}, clock
            )
            assert await served

    asyncio.run(scenario())
    return found[:until]


@cases(
    "failures, times",
    case("sent at once, then renewed", 0, [0.0, RENEW_S, 2 * RENEW_S]),
    case("sent again soon to a server that does not listen yet", 1,
        [0.0, 1.2 * FIRST_RETRY_S, 1.2 * FIRST_RETRY_S + RENEW_S]),
)  # fmt: skip
def test_a_server_gets_keys_and_new_ones(failures: int, times: list[float]) -> None:
    found = sent(failures, len(times))
    assert [at for at, _ in found] == pytest.approx(times)
    assert [expires_at for _, expires_at in found] == pytest.approx(times)


def test_a_server_that_calls_no_model_gets_none() -> None:
    async def scenario() -> str:
        async def served() -> str:
            return "its end"

        def answer(_request: httpx.Request) -> httpx.Response:
            raise AssertionError("no request is sent")

        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
            copy = ModelServer("http://copy", http)
            return await serve_with_call_keys(served(), copy, None, ManualClock())

    assert asyncio.run(scenario()) == "its end"
