"""Load on a local server, and the errors of answers."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from math import inf
from typing import TypeVar

import pytest
from tests.cases import case, cases

from hostelry.loadtest.recording import AnswerRecord, refusal
from hostelry.loadtest.requests import LoadPlan, LoadRequests, message
from hostelry.loadtest.runner import LoadRun, LoadSearch
from hostelry.loadtest.search import SearchCause, SearchLimits, SearchSettings, SearchStep
from hostelry.loadtest.tally import LoadTally

T = TypeVar("T")
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REQUESTS = LoadRequests(lambda _: message("/", {"Host": "x"}, b"hi"), streams_text=False)
STEP_S = 0.5


@dataclass
class LocalServer:
    """An HTTP server that serves a few requests at once, and hangs up after `lifetime` answers."""

    num_places: int
    service_s: float
    lifetime: float = inf
    places: asyncio.Semaphore = field(init=False)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while await reader.readuntil(b"\r\n\r\n") and await reader.readexactly(2):
                self.lifetime -= 1
                if self.lifetime < 0:
                    break
                async with self.places:
                    await asyncio.sleep(self.service_s)
                writer.write(ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def run_on(server: LocalServer, send: Callable[[int], Awaitable[T]]) -> T:
    """Run `send` with the port of the server."""

    async def run() -> T:
        server.places = asyncio.Semaphore(server.num_places)
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        async with listening:
            return await send(listening.sockets[0].getsockname()[1])

    return asyncio.run(run())


def plan_at(port: int, concurrency: int, rate_per_s: float | None = None) -> LoadPlan:
    return LoadPlan(
        host="127.0.0.1", port=port, concurrency=concurrency, duration_s=STEP_S,
        rate_per_s=rate_per_s, timeout_s=5.0,
    )  # fmt: skip


def show_nothing(tally: LoadTally, elapsed_s: float, in_flight: int) -> None:
    del tally, elapsed_s, in_flight


def search_at(
    port: int, latency_ms: float, show_step: Callable[[SearchStep], None] = lambda _: None
) -> LoadSearch:
    settings = SearchSettings(
        limits=SearchLimits(latency_ms=latency_ms), max_concurrency=8, step_s=STEP_S
    )
    return LoadSearch(plan_at(port, 8), REQUESTS, settings, lambda _: show_nothing, show_step)


def test_a_search_ends_at_its_limit() -> None:
    shown: list[int] = []
    steps, outcome = run_on(
        LocalServer(2, 0.06),
        lambda port: search_at(port, 170.0, lambda it: shown.append(it.concurrency)).measure(),
    )
    assert shown == [it.concurrency for it in steps]
    assert outcome.best is not None
    assert outcome.best.concurrency <= 5, "4 on a quiet machine: two of them wait"
    assert outcome.cause in (SearchCause.LIMIT, SearchCause.CLIENT)
    assert all(it.measured.num_ok for it in steps)


def test_a_server_that_dies_during_a_search_ends_it() -> None:
    server = LocalServer(4, 0.005, lifetime=100)
    _, outcome = run_on(server, lambda port: search_at(port, 5000.0).measure())
    assert outcome.cause is SearchCause.NO_ANSWERS
    assert outcome.best is not None


def test_an_interrupted_search_keeps_the_steps_that_ended() -> None:
    async def search(port: int) -> None:
        found = search_at(port, 5000.0, lambda _: found.interrupt())
        steps, outcome = await found.measure()
        assert [it.concurrency for it in steps] == [1]
        assert outcome.cause is SearchCause.INTERRUPTED
        assert outcome.best is steps[0]

    run_on(LocalServer(4, 0.005), search)


@pytest.mark.parametrize("rate_per_s", [None, 100.0], ids=["in turn", "at a rate"])
def test_a_test_that_is_cancelled_leaves_no_task(rate_per_s: float | None) -> None:
    async def cancel(port: int) -> None:
        run = asyncio.create_task(
            LoadRun(plan_at(port, 3, rate_per_s), REQUESTS, show_nothing).measure()
        )
        own = asyncio.all_tasks()
        await asyncio.sleep(0.02)
        assert asyncio.all_tasks() > own
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert [it for it in asyncio.all_tasks() - own if "_worker" in repr(it)] == []

    run_on(LocalServer(4, 0.005), cancel)


@cases(
    "status, kind, body, code, text",
    case("an invocation", 424, b"ModelError:http://x", b'{"Message": "broken"}', "424 ModelError",
        "broken"),
    case("an OpenAI route", 503, b"", b'{"error": {"code": "no_capacity", "message": "none"}}',
        "503 no_capacity", "none"),
    case("no JSON", 502, b"", b"<html>", "502", "<html>"),
    case("cut off", 500, b"", b'{"error": {"code": ', "500", '{"error": {"code": '),
)  # fmt: skip
def test_refusals_have_a_code_and_a_text(
    status: int, kind: bytes, body: bytes, code: str, text: str
) -> None:
    assert refusal(status, kind, body) == (code, text)


class CountedUsers:
    """A source without a network. `most` is the largest number of requests at once."""

    streams_text = False

    def __init__(self) -> None:
        self.most = self._now = 0

    def open_client(self, plan: LoadPlan) -> "CountedUsers":
        del plan
        return self

    def close(self) -> None:
        """Nothing is open."""

    async def send(self, number: int, answer: AnswerRecord) -> None:
        del number
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(0.002)
        self._now -= 1
        answer.take(b"ok")
        answer.end(200, b"")


async def test_users_come_and_go_while_the_load_is_sent() -> None:
    source = CountedUsers()
    run = LoadRun(plan_at(0, 1), source, show_nothing)
    async with run.load():
        for num_users in (1, 3, 2, 4):
            run.set_users(num_users)
            await run.wait_until(lambda _, age_s: age_s >= 0.03)  # surplus users end
            source.most = 0
            run.take_window()
            await run.wait_until(lambda _, age_s: age_s >= 0.05)
            window = run.take_window()
            assert source.most == num_users
            assert window.num_ok > num_users
            assert not window.errors
        run.interrupt()
