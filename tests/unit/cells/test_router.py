"""The router: forwarded requests, and the effect of a failing cell."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.cases import case, cases

from hostelry.base.http import HttpRequest
from hostelry.cells.assignment import Assignment, Cell, CellAccount
from hostelry.cells.router import CellRouter
from hostelry.dataplane.fake import FakeReplyConnection, WrittenAnswer
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import Received
from hostelry.http1.reply import BrokenError, ConnectError, Reply, UpstreamError
from hostelry.http1.upstream import Timeouts

ASSIGNMENT = Assignment(
    cells={name: Cell(name=name, url=f"http://{name}:1") for name in ("blue", "green")},
    accounts=(
        CellAccount(id="1" * 12, cell="blue", access_key_ids=frozenset({"ONE"})),
        CellAccount(id="2" * 12, cell="green", access_key_ids=frozenset({"TWO"})),
    ),
)


Answer = tuple[Mapping[str, str], list[bytes | UpstreamError]] | UpstreamError
OK: Answer = ({"content-length": "2"}, [b"ok"])


@dataclass
class Cells:
    """Both cells. `answers` are by address, and may be errors. `gate` holds every answer."""

    answers: Mapping[str, Answer]
    sent: list[tuple[str, bytes]] = field(default_factory=list)
    gate: asyncio.Event | None = None

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        self.sent.append((address, b"".join(parts)))
        if self.gate is not None:
            await self.gate.wait()
        answer = self.answers[address]
        if isinstance(answer, UpstreamError):
            raise answer
        headers, chunks = answer
        reply = Reply(FakeReplyConnection())
        reply.set_head(200, dict(headers))
        for chunk in chunks:
            if isinstance(chunk, UpstreamError):
                reply.fail(chunk)
                return reply
            reply.add_chunk(chunk)
        reply.end(True)
        return reply


def signed(key: str) -> dict[str, str]:
    return {"authorization": f"AWS4-HMAC-SHA256 Credential={key}/d/r/s/aws4_request, Signature=0"}


def invocation(key: str) -> HttpRequest:
    headers = {"host": "models.example:80", "content-type": "text/csv", **signed(key)}
    return HttpRequest("POST", "/endpoints/e%20e/invocations", "a=b&c", headers, b"1,2")


async def routed(router: CellRouter, request: HttpRequest) -> tuple[Exchange, bytes]:
    sink = WrittenAnswer()
    exchange = Exchange(sink, Received(request, True, True), b"")
    await router.handle(exchange)
    return exchange, sink.written


def test_a_request_reaches_its_cell_as_it_was_signed() -> None:
    cells = Cells({"http://blue:1": ({"content-length": "2", "server": "x"}, [b"ok"])})
    exchange, answer = asyncio.run(routed(CellRouter(lambda: ASSIGNMENT, cells), invocation("ONE")))
    ((address, sent),) = cells.sent
    assert address == "http://blue:1"
    head, _, body = sent.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /endpoints/e%20e/invocations?a=b&c HTTP/1.1\r\n")
    assert b"host: models.example:80\r\n" in head + b"\r\n"
    assert body == b"1,2"
    assert answer.endswith(b"\r\n\r\nok")
    assert b"server: x" not in answer
    assert exchange.finished


def test_a_stream_is_passed_on_as_it_comes_and_cut_where_its_cell_breaks_off() -> None:
    stream: list[bytes | UpstreamError] = [b"data: 1\n\n", b"data: 2\n\n"]
    cells = Cells(
        {"http://blue:1": ({}, stream), "http://green:1": ({}, [*stream, BrokenError("")])}
    )
    router = CellRouter(lambda: ASSIGNMENT, cells)
    whole, answer = asyncio.run(routed(router, invocation("ONE")))
    assert answer.count(b"data: ") == 2
    assert whole.finished
    cut, answer = asyncio.run(routed(router, invocation("TWO")))
    assert (cut.started, cut.finished) == (True, False)


@cases(
    "failure, text",
    case("dead", ConnectError("refused"), b"its cell cannot be reached"),
    case("killed", BrokenError("killed"), b"may have been executed"),
)
def test_a_cell_that_fails_is_an_error_of_its_own_requests(
    failure: UpstreamError, text: bytes
) -> None:
    answers: dict[str, Answer] = {"http://blue:1": failure, "http://green:1": OK}
    router = CellRouter(lambda: ASSIGNMENT, Cells(answers))
    _, answer = asyncio.run(routed(router, invocation("ONE")))
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"ServiceUnavailable" in answer
    assert text in answer
    _, answer = asyncio.run(routed(router, invocation("TWO")))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert not +router.in_flight


async def test_a_cell_that_hangs_holds_no_more_than_its_own_requests() -> None:
    cells = Cells({"http://blue:1": OK, "http://green:1": OK})
    router = CellRouter(lambda: ASSIGNMENT, cells, max_in_flight=3)
    cells.gate = asyncio.Event()
    hung = [asyncio.ensure_future(routed(router, invocation("ONE"))) for _ in range(3)]
    await asyncio.sleep(0)
    _, refused = await routed(router, invocation("ONE"))
    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b"3 requests to the cell are under way" in refused
    gate, cells.gate = cells.gate, None
    _, served = await routed(router, invocation("TWO"))
    assert served.startswith(b"HTTP/1.1 200 ")
    hung[0].cancel()
    gate.set()
    await asyncio.gather(*hung, return_exceptions=True)
    assert not +router.in_flight


@cases(
    "request_, status, text",
    case("its own health", HttpRequest("GET", "/ping"), 200, b'"ok"'),
    case("an unknown key", invocation("SIX"), 403, b"UnrecognizedClientException"),
    case("in OpenAI's form for its clients",
        HttpRequest("POST", "/v1/chat/completions", headers={"authorization": "Bearer x"}), 403,
        b'"error"'),
)  # fmt: skip
def test_the_router_answers_itself(request_: HttpRequest, status: int, text: bytes) -> None:
    cells = Cells({})
    _, answer = asyncio.run(routed(CellRouter(lambda: ASSIGNMENT, cells), request_))
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert text in answer
    assert cells.sent == []
