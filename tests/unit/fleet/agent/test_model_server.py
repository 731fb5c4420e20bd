"""An agent's reading of a model server's answers about adapters."""

import asyncio
import json
from collections.abc import Callable

import httpx
import pytest
from tests.cases import case, cases

from hostelry.domain.copy import AdapterPlacement
from hostelry.domain.model import ArtifactSource, SourceKind
from hostelry.fleet.agent.model_server import Answer, ModelServer
from hostelry.fleet.rules.images import LMI_RULE, UNKNOWN_PROBE, Probe

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


@cases(
    "get, again",
    case("from the same folder", listed(FOLDER), False),
    case("the same folder in other words", listed(FOLDER + "/"), True),
    case("asked for before, of a server that does not tell", httpx.Response(404), True),
)
def test_a_name_that_is_taken_by_the_same_adapter_is_well(get: httpx.Response, again: bool) -> None:
    answer, calls = registered(409, get, again=again)
    assert (answer.fault, answer.name_taken) == (None, False)
    assert calls == ["POST /adapters", "GET /adapters/es-1"]


@cases(
    "get, again",
    case("by one of the archive", listed("/opt/ml/model/adapters/es-1"), False),
    case("even if asked for before", listed("/opt/ml/model/adapters/es-1"), True),
    case("by one without a source", listed(None), False),
    case("by nobody knows what", httpx.Response(200, text="not JSON"), False),
    case("on a server that does not tell", httpx.Response(404), False),
)
def test_a_name_that_is_taken_by_another_adapter_is_a_failure(
    get: httpx.Response, again: bool
) -> None:
    answer, _ = registered(409, get, again=again)
    assert answer.name_taken
    assert "already has an adapter named es-1" in (answer.fault or "")
    assert not answer.retryable


def test_any_other_refusal_is_reported_as_it_is() -> None:
    answer, calls = registered(507)
    assert answer.fault == "POST /adapters answered 507: the server's words"
    assert calls == ["POST /adapters"]


def proved(status: int, probe: Probe, text: str = "the server's words") -> Answer:
    def server(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/invocations"
        return httpx.Response(status, text=text)

    async def ask() -> Answer:
        async with httpx.AsyncClient(transport=httpx.MockTransport(server)) as http:
            return await ModelServer("http://copy", http).prove(probe, 5.0)

    return asyncio.run(ask())


@pytest.mark.parametrize("status", [200, 201, 204, 400, 401, 403, 413, 415, 422])
def test_where_no_request_is_known_an_answer_below_500_proves_the_route(status: int) -> None:
    assert proved(status, UNKNOWN_PROBE) == Answer(status=status)


@pytest.mark.parametrize("status", [302, 404, 405, 408, 425, 429, 500, 502, 503, 504, 507])
def test_where_no_request_is_known_these_answers_prove_nothing(status: int) -> None:
    answer = proved(status, UNKNOWN_PROBE)
    assert answer.fault is not None
    assert str(status) in answer.fault
    assert answer.refused == (status in (404, 405)), "a route that is missing will not come"


def test_where_no_request_is_known_a_failure_of_the_models_own_code_proves_the_route() -> None:
    text = '{"code": 503, "type": "InternalServerException", "message": "Prediction failed"}'
    assert proved(503, UNKNOWN_PROBE, text) == Answer(status=503)
    assert proved(503, LMI_RULE.probe, text).fault is not None


@pytest.mark.parametrize("status", [201, 204, 400, 500])
def test_where_a_request_is_known_only_200_proves(status: int) -> None:
    assert proved(status, LMI_RULE.probe).fault is not None
