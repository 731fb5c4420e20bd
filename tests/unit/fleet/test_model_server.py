"""What an agent makes of a model server's answers about adapters."""

import asyncio
import json
from collections.abc import Callable

import httpx
import pytest

from hostelry.domain.copy import AdapterPlacement
from hostelry.domain.model import ArtifactSource, SourceKind
from hostelry.fleet.model_server import Answer, ModelServer

FOLDER = "/cache/k/files"
ADAPTER = AdapterPlacement(
    id="es-1",
    alias="es",
    source=ArtifactSource(uri="s3://b/es.tar.gz", kind=SourceKind.ARCHIVE),
)


def registered(
    post: int, get: httpx.Response | None = None, *, again: bool = False
) -> tuple[Answer, list[str]]:
    """The answer to a registration, and the calls it took."""
    calls: list[str] = []

    def server(request: httpx.Request) -> httpx.Response:
        calls.append(f"{request.method} {request.url.path}")
        if request.method == "POST":
            return httpx.Response(post, text="the server's words")
        return get or httpx.Response(404)

    async def ask(handler: Callable[[httpx.Request], httpx.Response]) -> Answer:
        async with httpx.AsyncClient(transport=httpx.MockTransport(handler)) as http:
            return await ModelServer("http://copy", http).register(ADAPTER, FOLDER, again=again)

    return asyncio.run(ask(server)), calls


def listed(source: object) -> httpx.Response:
    return httpx.Response(200, text=json.dumps({"name": "es-1", "src": source}))


def test_a_new_adapter_takes_one_call() -> None:
    assert registered(200) == (Answer(status=200), ["POST /adapters"])


@pytest.mark.parametrize(
    ("get", "again"),
    [
        pytest.param(listed(FOLDER), False, id="from the same folder"),
        pytest.param(listed(FOLDER + "/"), True, id="the same folder in other words"),
        pytest.param(
            httpx.Response(404), True, id="asked for before, of a server that does not tell"
        ),
    ],
)
def test_a_name_that_is_taken_by_the_same_adapter_is_well(get: httpx.Response, again: bool) -> None:
    answer, calls = registered(409, get, again=again)
    assert (answer.fault, answer.taken) == (None, False)
    assert calls == ["POST /adapters", "GET /adapters/es-1"]


@pytest.mark.parametrize(
    ("get", "again"),
    [
        pytest.param(listed("/opt/ml/model/adapters/es-1"), False, id="by one of the archive"),
        pytest.param(listed("/opt/ml/model/adapters/es-1"), True, id="even if asked for before"),
        pytest.param(listed(None), False, id="by one without a source"),
        pytest.param(httpx.Response(200, text="not JSON"), False, id="by nobody knows what"),
        pytest.param(httpx.Response(404), False, id="on a server that does not tell"),
    ],
)
def test_a_name_that_is_taken_by_another_adapter_is_a_failure(
    get: httpx.Response, again: bool
) -> None:
    answer, _ = registered(409, get, again=again)
    assert answer.taken
    assert "already has an adapter named es-1" in (answer.fault or "")
    assert not answer.passing


def test_any_other_refusal_is_told_as_it_is() -> None:
    answer, calls = registered(507)
    assert answer.fault == "POST /adapters answered 507: the server's words"
    assert calls == ["POST /adapters"]
