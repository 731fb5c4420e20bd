import asyncio
import logging

import pytest
from tests.cases import case, cases
from tests.unit.dataplane.routes_sample import HERE, SNAPSHOT

from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.base.logging import TEXT, build_formatter
from hostelry.dataplane.fake import WrittenAnswer
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import HttpRefusedError, Received
from hostelry.dataplane.routes import FixedRoutes
from hostelry.dataplane.tracing.call_ring import CallRing
from hostelry.gateway.dispatcher import Dispatcher
from hostelry.home.home import UpConfig, new_credentials
from hostelry.http1.upstream import UpstreamPool
from hostelry.services.gateway import build_gateway

CREDENTIALS = new_credentials(HERE.account, HERE.region)


class FailingHandler:
    """Fails, before or after its answer has begun."""

    def __init__(self, failure: Exception, begins: bool = False) -> None:
        self._failure = failure
        self._begins = begins

    def admit(self, request: HttpRequest) -> bool:
        raise self._failure

    async def serve(self, exchange: Exchange, request_id: str) -> None:
        if self._begins:
            exchange.start(200, {})
        raise self._failure

    def error_answer(
        self, error: ServiceError, request: HttpRequest, request_id: str
    ) -> HttpResponse:
        return HttpResponse(error.http_status, {}, f"{error.code}: {error.message}".encode())


def ask(room: FailingHandler, path: str = "/endpoints/e/invocations") -> tuple[Exchange, bytes]:
    dispatcher = Dispatcher(
        runtime=room,
        openai=room,
        openai_batches=room,
        control=room,
        async_runtime=room,
        calls=CallRing(lambda: 0.0, lambda: 0),
    )
    sink = WrittenAnswer()
    exchange = Exchange(sink, Received(HttpRequest("POST", path), True, True), b"")
    asyncio.run(dispatcher.handle(exchange))
    return exchange, sink.written


def test_a_modelled_error_is_answered() -> None:
    exchange, written = ask(FailingHandler(ServiceError("ModelError", "it failed", 424)))
    assert written.startswith(b"HTTP/1.1 424 Failed Dependency\r\n")
    assert written.endswith(b"ModelError: it failed")
    assert exchange.finished


@cases(
    "path, method, reason, status",
    case("healthy", "/health", "GET", None, b"200"),
    case("a load balancer is to leave it", "/health", "GET", "draining", b"503"),
    case("by HEAD too", "/health", "HEAD", "draining", b"503"),
    case("it lives on meanwhile", "/ping", "GET", "draining", b"200"),
)
def test_health_for_a_load_balancer(
    path: str, method: str, reason: str | None, status: bytes
) -> None:
    room = FailingHandler(ServiceError("ModelError", "it failed", 424))
    dispatcher = Dispatcher(
        runtime=room,
        openai=room,
        openai_batches=room,
        control=room,
        async_runtime=room,
        calls=CallRing(lambda: 0.0, lambda: 0),
        why_unhealthy=lambda: reason,
    )
    sink = WrittenAnswer()
    received = Received(HttpRequest(method, path), True, True)
    asyncio.run(dispatcher.handle(Exchange(sink, received, b"")))
    assert sink.written.startswith(b"HTTP/1.1 " + status)
    assert (b"draining" in sink.written) is (status == b"503" and method == "GET")


def test_a_defect_is_an_internal_failure_with_its_cause_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, written = ask(FailingHandler(ZeroDivisionError("secret detail")))
    assert written.startswith(b"HTTP/1.1 500 ")
    assert b"InternalFailure" in written
    assert b"secret detail" not in written
    assert "secret detail" in caplog.text


def test_lines_logged_meanwhile_name_the_request() -> None:
    seen: list[str] = []

    class LoggingHandler(FailingHandler):
        async def serve(self, exchange: Exchange, request_id: str) -> None:
            line = logging.makeLogRecord({"msg": "a copy took no connection"})
            seen.extend((request_id, build_formatter("gateway-1", TEXT).format(line)))
            await super().serve(exchange, request_id)

    ask(LoggingHandler(ServiceError("ModelError", "it failed", 424)))
    assert seen[1].endswith(f"a copy took no connection [request {seen[0]}]")


def test_an_answer_that_has_begun_is_left_unfinished() -> None:
    exchange, written = ask(FailingHandler(ZeroDivisionError(), begins=True))
    assert written.count(b"HTTP/1.1 ") == 1
    assert exchange.started
    assert not exchange.finished


@cases(
    "path, header, body",
    case("the runtime API", "/endpoints/e/invocations", ("x-amzn-ErrorType", "ValidationError"),
        b'{"Message":"too large"}'),
    case("the OpenAI routes", "/v1/completions", ("Content-Type", "application/json"),
        b'{"error":{"message":"too large","type":"invalid_request_error",'),
    case("a control call", "/", ("Content-Type", "application/x-amz-json-1.1"),
        b'"__type":"ValidationException"'),
)  # fmt: skip
def test_a_body_that_is_too_large_is_refused_in_the_form_its_client_reads(
    path: str, header: tuple[str, str], body: bytes
) -> None:
    config = UpConfig(control_port=1)
    dispatcher = build_gateway(
        config, CREDENTIALS, FixedRoutes(SNAPSHOT), UpstreamPool()
    ).dispatcher
    answer = dispatcher.refusal_answer(
        HttpRefusedError(413, "too large", HttpRequest("POST", path))
    )
    assert answer.status == 413
    assert answer.headers[header[0]] == header[1]
    assert body in answer.body


def test_bytes_that_are_no_http_get_an_answer_too() -> None:
    config = UpConfig(control_port=1)
    dispatcher = build_gateway(
        config, CREDENTIALS, FixedRoutes(SNAPSHOT), UpstreamPool()
    ).dispatcher
    answer = dispatcher.refusal_answer(HttpRefusedError(400, "Malformed HTTP."))
    assert (answer.status, b"Malformed HTTP." in answer.body) == (400, True)


@cases(
    "insecure, headers, status",
    case("its own address", True, {"host": "127.0.0.1:8787"}, 404),
    case("a rebound name", True, {"host": "evil.example:8787"}, 403),
    case("a foreign page", True, {"host": "localhost", "origin": "http://evil.example"}, 403),
    case("where a key is needed, any name", False, {"host": "gateway.example"}, 401),
)
def test_a_web_page_gets_nothing_from_a_gateway_without_keys(
    insecure: bool, headers: dict[str, str], status: int
) -> None:
    config = UpConfig(gateway_port=1, control_port=2, insecure_no_auth=insecure)
    dispatcher = build_gateway(
        config, CREDENTIALS, FixedRoutes(SNAPSHOT), UpstreamPool()
    ).dispatcher
    request = HttpRequest("GET", "/v1/models/none", headers=headers)
    sink = WrittenAnswer()
    asyncio.run(dispatcher.handle(Exchange(sink, Received(request, True, True), b"")))
    assert sink.written.startswith(b"HTTP/1.1 %d " % status)
