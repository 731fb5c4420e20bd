"""The calls of the multi-model contract, and the reading of their answers."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import msgspec
import pytest

from hostelry.fleet.agent.model_server import Answer, ModelServer
from hostelry.fleet.agent.models.routes import TARGET_MODEL, HttpModelRoutes
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


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(200, Answer(status=200), id="loaded"),
        pytest.param(409, Answer(status=409), id="loaded already"),
        pytest.param(
            507, Answer(status=507, fault="POST /models answered 507: full"), id="no memory"
        ),
        pytest.param(
            500, Answer(status=500, fault="POST /models answered 500: full"), id="a broken model"
        ),
    ],
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


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        pytest.param(httpx.Response(200, text='{"memoryBytes": 7}'), 7, id="measured"),
        pytest.param(httpx.Response(200, text='{"modelName": "a"}'), None, id="not reported"),
        pytest.param(httpx.Response(200, text='{"memoryBytes": -7}'), None, id="less than zero"),
        pytest.param(httpx.Response(200, text='{"memoryBytes": "7"}'), None, id="no number"),
        pytest.param(httpx.Response(200, text="7"), None, id="no object"),
        pytest.param(httpx.Response(404), None, id="not loaded"),
    ],
)
def test_the_measured_memory_is_read_where_it_is_reported(
    response: httpx.Response, expected: int | None
) -> None:
    found, request = called(response, lambda it: it.memory_bytes(TARGET))
    assert found == expected
    assert (request.method, request.url.path) == ("GET", f"/models/{ID}")
