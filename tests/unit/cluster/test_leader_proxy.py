"""The forwarder to the leader: requests that it sends, repeats, refuses or breaks off."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import httpx
import msgspec
import pytest
from tests.cases import case, cases

from hostelry.base.clock import ManualClock
from hostelry.cluster import leader_proxy
from hostelry.cluster import leader_view as leader_calls
from hostelry.cluster.leader_proxy import LeaderProxy
from hostelry.cluster.leader_view import (
    AskedControls,
    ControlAnswer,
    LeaderAnswer,
    LeaderView,
    get_next_view,
)
from hostelry.dataplane.fake import FakeReplyConnection
from hostelry.http1.reply import BrokenError, ConnectError, Reply
from hostelry.http1.streamed_body import StreamedBody
from hostelry.http1.upstream import Timeouts

OLD, NEW = "http://old", "http://new"
Answering = Callable[[bytes], Awaitable[Reply]]


def reply(status: int = 200, body: bytes = b"ok", headers: dict[str, str] | None = None) -> Reply:
    made = Reply(FakeReplyConnection())
    made.set_head(status, headers or {})
    made.add_chunk(body)
    made.end(reusable=True)
    return made


class Controls:
    """Controls by address. Each answers by a function, or raises its error."""

    def __init__(self, **answering: Answering) -> None:
        self.answering = {f"http://{name}": it for name, it in answering.items()}
        self.asked: list[str] = []
        self.num_pieces = 0

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        self.asked.append(address)
        return await self.answering[address](parts[0] + parts[1])

    async def stream(
        self, address: str, head: bytes, body: StreamedBody, timeouts: Timeouts
    ) -> Reply:
        self.asked.append(address)
        if self.answering[address] is refuses:
            raise ConnectError("refused")
        self.num_pieces = 0
        whole = b""
        async with aclosing(body.chunks) as chunks:
            async for piece in chunks:
                self.num_pieces += bool(piece)
                whole += piece
        assert len(whole) == body.length_bytes
        return await self.answering[address](head + whole)


class Leaders:
    """The leaders that are found, one after the other, each when the one before is suspected."""

    def __init__(self, *leaders: str | None) -> None:
        self.left = list(leaders)
        self.waiting: list[asyncio.Future[None]] = []
        self.suspected: list[str] = []
        self.is_waited_for = asyncio.Event()

    @property
    def view(self) -> LeaderView:
        return LeaderView(leader=self.left[0], cause="all controls are down")

    def get_change(self) -> "asyncio.Future[None]":
        made = asyncio.get_running_loop().create_future()
        self.waiting.append(made)
        self.is_waited_for.set()
        return made

    def suspect(self, leader: str) -> None:
        self.suspected.append(leader)
        self.next()

    def next(self) -> None:
        if len(self.left) > 1:
            del self.left[0]
        for waiter in self.waiting:
            if not waiter.done():
                waiter.set_result(None)


async def answers(_: bytes) -> Reply:
    return reply()


async def refuses(_: bytes) -> Reply:
    raise ConnectError("refused")


async def breaks(_: bytes) -> Reply:
    raise BrokenError("the connection was closed")


async def does_not_lead(_: bytes) -> Reply:
    return reply(503, b"", {leader_calls.NOT_LEADER: "1"})


def ask(
    leaders: Leaders, controls: Controls, method: str = "POST", **given: object
) -> httpx.Response:
    async def main() -> httpx.Response:
        app = LeaderProxy(leaders, controls, max_body_bytes=1000)
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://link") as client:
            return await client.request(method, "/internal/x?y=1", **given)  # type: ignore[arg-type]

    return asyncio.run(main())


@cases(
    "old, method, status, asked",
    case("the leader answers", answers, "POST", 200, [OLD]),
    case("no byte was sent: the next leader", refuses, "POST", 200, [OLD, NEW]),
    case("not executed: the next leader", does_not_lead, "POST", 200, [OLD, NEW]),
    case("a GET is sent again", breaks, "GET", 200, [OLD, NEW]),
    case("what may be executed is not", breaks, "POST", 503, [OLD]),
)
def test_the_leader_that_gets_a_request(
    old: Answering, method: str, status: int, asked: list[str]
) -> None:
    controls = Controls(old=old, new=answers)
    answer = ask(Leaders(OLD, NEW), controls, method)
    assert (answer.status_code, controls.asked) == (status, asked)
    if status == 503:
        assert "may have been executed" in answer.text
        assert answer.headers["retry-after"] == "1"
        assert "may have been executed" in answer.headers["x-hostelry-away"]
        assert leader_calls.NOT_LEADER not in answer.headers, "its sender must not send it again"


def test_without_a_leader_the_answer_is_503_with_the_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leader_proxy, "LEADER_WAIT_S", 0.0)
    answer = ask(Leaders(None), Controls())
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "all controls are down" in answer.text
    assert answer.headers[leader_calls.NOT_LEADER] == "1", "its sender may send it elsewhere"


def test_a_request_waits_for_a_leader_that_is_coming() -> None:
    async def main() -> tuple[int, list[str]]:
        leaders, controls = Leaders(None, NEW), Controls(new=answers)
        app = LeaderProxy(leaders, controls, max_body_bytes=1000)
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://link") as client:
            asking = asyncio.create_task(client.post("/"))
            await leaders.is_waited_for.wait()
            leaders.next()
            return (await asking).status_code, controls.asked

    assert asyncio.run(main()) == (200, [NEW])


@cases(
    "method, status, asked",
    case("a long poll goes to the new leader at once", "GET", 200, [OLD, NEW]),
    case("a call that may be executed is refused", "POST", 503, [OLD]),
)
def test_a_leader_that_hangs_is_left_when_there_is_another(
    method: str, status: int, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_calls, "AFTER_CHANGE_S", 0.0)

    async def main() -> tuple[int, list[str]]:
        async def hangs(_: bytes) -> Reply:
            leaders.next()
            await asyncio.Event().wait()
            raise AssertionError

        leaders, controls = Leaders(OLD, NEW), Controls(new=answers)
        controls.answering[OLD] = hangs
        app = LeaderProxy(leaders, controls, max_body_bytes=1000)
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://link") as client:
            return (await client.request(method, "/")).status_code, controls.asked

    assert asyncio.run(main()) == (status, asked)


def test_what_the_leader_gets_and_the_caller() -> None:
    async def echoes(received: bytes) -> Reply:
        return reply(207, received, {"x-amzn-requestid": "r-1", "connection": "close"})

    leaders, controls = Leaders(OLD), Controls(old=echoes)
    answer = ask(leaders, controls, content=b"body", headers={"X-Hostelry-Key": "k"})
    head, _, body = answer.content.partition(b"\r\n\r\n")
    assert (answer.status_code, answer.headers["x-amzn-requestid"], body) == (207, "r-1", b"body")
    assert head.startswith(b"POST /internal/x?y=1 HTTP/1.1\r\nHost: localhost\r\n")
    assert b"x-hostelry-key: k" in head
    assert b"Content-Length: 4" in head
    assert "connection" not in answer.headers


def test_what_is_not_forwarded() -> None:
    controls = Controls(old=answers)
    again = ask(Leaders(OLD), controls, headers={"X-Hostelry-Forwarded": "1"})
    assert (again.status_code, again.headers[leader_calls.NOT_LEADER]) == (503, "1")
    assert ask(Leaders(OLD), controls, content=b"x" * 1001).status_code == 413
    assert controls.asked == []


@cases(
    "old, status, asked",
    case("in pieces", answers, 200, [OLD]),
    case("no byte was sent: the next leader", refuses, 200, [OLD, NEW]),
    case("what was sent is not there to be sent again", does_not_lead, 503, [OLD]),
    case("what may be executed is not sent again", breaks, 503, [OLD]),
)
def test_a_large_body_is_sent_as_it_comes(
    old: Answering, status: int, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_proxy, "WHOLE_BYTES", 100)

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(9):
            yield b"x" * 100

    controls = Controls(old=old, new=answers)
    answer = ask(Leaders(OLD, NEW), controls, content=pieces(), headers={"Content-Length": "900"})
    assert (answer.status_code, controls.asked) == (status, asked)
    assert controls.num_pieces > 1


def test_another_server_on_the_leaders_host() -> None:
    async def main() -> list[str]:
        controls = Controls(jobs=answers)
        app = LeaderProxy(Leaders(OLD), controls, 1000, lambda leader: "http://jobs")
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://link") as client:
            assert (await client.post("/")).status_code == 200
        return controls.asked

    assert asyncio.run(main()) == ["http://jobs"]


VIEW = LeaderView(leader=OLD, epoch=4, controls=(OLD, NEW), cause="")


def answered(leader: str | None, epoch: int, address: str = NEW) -> ControlAnswer:
    return ControlAnswer(
        address=address, answer=LeaderAnswer(leader=leader, epoch=epoch, controls=[NEW])
    )


@cases(
    "asked, leader, epoch, cause",
    case("it leads on", [answered(OLD, 4)], OLD, 4, ""),
    case("the newest epoch", [answered(OLD, 4), answered(NEW, 5)], NEW, 5, ""),
    case("a control that was cut off", [answered(OLD, 3)], None, 4, "know epoch 3"),
    case("no leader", [answered(None, 5)], None, 5, "no control leads"),
    case("one knows it", [answered(None, 5), answered(NEW, 5)], NEW, 5, ""),
    case("none answers", [ControlAnswer(address=OLD, failure="refused")], None, 4, "refused"),
    case("no control is known", [], None, 4, "none is known"),
)
def test_the_view_after_answers(
    asked: list[ControlAnswer], leader: str | None, epoch: int, cause: str
) -> None:
    found = get_next_view(VIEW, asked)
    assert (found.leader, found.epoch) == (leader, epoch)
    assert cause in found.cause
    assert found.controls


async def test_all_controls_are_asked_where_the_leader_does_not_confirm() -> None:
    async def led_by_new(_: bytes) -> Reply:
        return reply(200, msgspec.json.encode(LeaderAnswer(NEW, 2, [NEW])))

    kept: list[tuple[str, ...]] = []

    async def keep(controls: tuple[str, ...]) -> None:
        kept.append(controls)

    controls = Controls(old=refuses, new=led_by_new)
    found = AskedControls(controls, "key", [OLD, NEW], ManualClock(), keep)
    changed = found.get_change()
    await found.look()
    assert (found.view.leader, found.view.epoch, kept) == (NEW, 2, [(NEW,)])
    assert changed.done()
    controls.asked.clear()
    await found.look()
    assert controls.asked == [NEW], "the leader confirms"
    controls.answering[NEW] = refuses
    await found.look()
    assert found.view.leader is None
    assert set(controls.asked) == {OLD, NEW}, "those that were known first are asked too"
