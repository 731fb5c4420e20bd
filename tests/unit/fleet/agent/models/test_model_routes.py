"""The calls of the multi-model contract, and the reading of their answers."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import msgspec
import pytest
from tests.cases import case, cases

from hostelry.fleet.agent.model_server import Answer, ModelServer
from hostelry.fleet.agent.models.routes import MAX_UNLOADS, TARGET_MODEL, HttpModelRoutes
from hostelry.fleet.agent.models.values import model_id

TARGET = "a/caf\xe9.tar.gz"
ID = model_id(TARGET)


def called(
    response: httpx.Response, call: Callable[[HttpModelRoutes], Awaitable[object]]
) -> tuple[object, httpx.Request]:
    """The result of a call whose answer is `response`, and its request."""
    requests: list[httpx.Request] = []

    def server(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return response

    async def ask() -> object:
        async with httpx.AsyncClient(transport=httpx.MockTransport(server)) as http:
            return await call(HttpModelRoutes(ModelServer("http://copy", http, key="k")))

    found = asyncio.run(ask())
    (request,) = requests
    return found, request


def named(request: httpx.Request) -> str:
    """The TargetModel that a server reads."""
    given = {name.lower(): value for name, value in request.headers.raw}
    return given[TARGET_MODEL.lower().encode()].decode("latin-1")


@cases(
    "status, expected",
    case("loaded", 200, Answer(status=200)),
    case("loaded already", 409, Answer(status=409)),
    case("no memory", 507, Answer(status=507, fault="POST /models answered 507: full")),
    case("a broken model", 500, Answer(status=500, fault="POST /models answered 500: full")),
)
def test_a_load_names_the_model_and_its_folder(status: int, expected: Answer) -> None:
    found, request = called(
        httpx.Response(status, text="full"), lambda it: it.load(TARGET, Path("/cache/k/files"), 5.0)
    )
    assert found == expected
    assert (request.method, request.url.path) == ("POST", "/models")
    assert named(request) == TARGET
    assert msgspec.json.decode(request.content) == {"model_name": ID, "url": "/cache/k/files"}


@pytest.mark.parametrize(
    ("status", "fault"),
    [(200, None), (404, None), (500, f"DELETE /models/{ID} answered 500: no body")],
)
def test_an_unload_of_what_is_not_there_is_done(status: int, fault: str | None) -> None:
    found, request = called(httpx.Response(status), lambda it: it.unload(TARGET))
    assert found == Answer(status=status, fault=fault)
    assert (request.method, request.url.path) == ("DELETE", f"/models/{ID}")
    assert named(request) == TARGET


@cases(
    "response, expected",
    case("measured", httpx.Response(200, text='{"memoryBytes": 7}'), 7),
    case("not reported", httpx.Response(200, text='{"modelName": "a"}'), None),
    case("less than zero", httpx.Response(200, text='{"memoryBytes": -7}'), None),
    case("no number", httpx.Response(200, text='{"memoryBytes": "7"}'), None),
    case("no object", httpx.Response(200, text="7"), None),
    case("not loaded", httpx.Response(404), None),
)
def test_the_measured_memory_is_read_where_it_is_reported(
    response: httpx.Response, expected: int | None
) -> None:
    found, request = called(response, lambda it: it.memory_bytes(TARGET))
    assert found == expected
    assert (request.method, request.url.path) == ("GET", f"/models/{ID}")


class SlowServer:
    """A server with models of an earlier agent. It answers no unload before all have arrived."""

    def __init__(self, names: list[str], num_silent: int) -> None:
        self.names = names
        self.silent = set(names[:num_silent])
        self.unloading = self.most_unloading = 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        name = request.url.path.removeprefix("/models").strip("/")
        if request.method == "GET":
            return httpx.Response(200, json={"models": [{"modelName": it} for it in self.names]})
        self.unloading += 1
        self.most_unloading = max(self.most_unloading, self.unloading)
        for _ in range(20):
            await asyncio.sleep(0)
        if name in self.silent:
            await asyncio.Event().wait()
        self.unloading -= 1
        self.names = [it for it in self.names if it != name]
        return httpx.Response(200)


@cases(
    "num_silent, named",
    case("all that were recorded are unloaded", 0, True),
    case("all that are listed are unloaded", 0, False),
    case("some hang", 3, True),
    case("all hang", 20, True),
    case("all hang, and none was recorded", 20, False),
)
def test_what_an_earlier_agent_left_is_unloaded_several_at_once_and_not_waited_for_long(
    num_silent: int, named: bool
) -> None:
    targets = [f"m{number}" for number in range(20)]
    server = SlowServer([*map(model_id, targets)], num_silent)

    async def adopt() -> set[str]:
        async with httpx.AsyncClient(transport=httpx.MockTransport(server)) as http:
            idle_s = 1.0 if num_silent else 20.0
            routes = HttpModelRoutes(ModelServer("http://copy", http), idle_s)
            return await routes.unload_left(targets if named else [])

    left = asyncio.run(adopt())
    silent = set(targets[:num_silent])
    assert left >= (silent if named else set())
    assert {it for it in targets if model_id(it) in server.names} >= silent
    assert server.most_unloading <= MAX_UNLOADS
    if num_silent < MAX_UNLOADS:
        assert left == (silent if named else set())
        assert set(server.names) == {model_id(it) for it in silent}
        assert server.most_unloading == MAX_UNLOADS
