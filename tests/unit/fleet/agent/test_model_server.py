import asyncio
import json
from collections.abc import Callable

import httpx
import msgspec
import pytest
from tests.cases import case, cases

from hostelry.base.clock import ManualClock
from hostelry.domain.copy import AdapterPlacement
from hostelry.domain.model import ArtifactSource, SourceKind
from hostelry.fleet.agent.model_server import (
    FIRST_RETRY_S,
    RENEW_S,
    Answer,
    ModelServer,
    is_model_failure,
    serve_with_call_keys,
)
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


TRANSFORMER = "/usr/lib/python3.10/site-packages/sagemaker_inference/transformer.py"
TRACE = f"""bad operand type for abs(): 'dict'
Traceback (most recent call last):
  File "{TRANSFORMER}", line 142, in transform
    result = self._run_handler_function(
  File "/opt/ml/model/code/inference.py", line 5, in predict_fn
"""
LOADING = f"""[Errno 2] No such file or directory: 'model.joblib'
Traceback (most recent call last):
  File "{TRANSFORMER}", line 123, in transform
    self.validate_and_initialize(model_dir=model_dir, context=context)
  File "{TRANSFORMER}", line 184, in validate_and_initialize
    self._model = self._run_handler_function(self._model_fn, *(model_dir,))
"""


def servers_error(message: str, kind: str = "InternalServerException") -> str:
    return json.dumps({"code": 503, "type": kind, "message": message})


@cases(
    "status, body, expected",
    case("a handler that raises", 503, servers_error("Prediction failed"), True),
    case("no worker yet", 503,
        servers_error("No worker is available", "ServiceUnavailableException"), False),
    case("a worker that died", 503, servers_error("Worker died."), False),
    case("words of another server", 503, "Prediction failed", False),
    case("another form", 503, '["Prediction failed"]', False),
    case("no body", 503, "", False),
    case("the toolkit's trace of a model's function", 500, TRACE, True),
    case("its trace of a model that does not load", 500, LOADING, False),
    case("a broken server", 500, "Internal Server Error", False),
    case("another status", 502, TRACE, False),
    case("no answer", None, "", False),
)  # fmt: skip
def test_the_models_code_failed(status: int | None, body: str, expected: bool) -> None:
    assert is_model_failure(status, body.encode()) is expected


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
