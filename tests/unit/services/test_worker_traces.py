"""Questions between workers, over the socket of one that this process is."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from hostelry.base.http import HttpRequest
from hostelry.dataplane.tracing.call_ring import CallRing
from hostelry.dataplane.tracing.question import TraceQuestion, WorkerCalls
from hostelry.home.heartbeat import (
    CALLS_REQUEST,
    answer_heartbeats,
    ask_line,
    line_path,
)
from hostelry.home.home import SERVICE_VARIABLE, Home
from hostelry.home.run_file import service_path
from hostelry.services.worker_traces import AllWorkers


def ring_with(*ids: str) -> CallRing:
    ring = CallRing(lambda: 1000.0, lambda: 0)
    for id in ids:
        ring.end(ring.begin(id, "111122223333", HttpRequest("POST", "/")), is_whole=True)
    return ring


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    made = Home(tmp_path)
    made.run.mkdir()
    monkeypatch.setenv(SERVICE_VARIABLE, str(service_path(made, "gateway-2")))
    return made


async def listen(home: Home) -> None:
    while not line_path(service_path(home, "gateway-2")).exists():  # noqa: ASYNC110 - no signal
        await asyncio.sleep(0)


def test_a_worker_asks_the_others_and_names_those_that_are_silent(home: Home) -> None:
    async def work() -> tuple[Sequence[WorkerCalls], Sequence[str]]:
        second = AllWorkers(home, 3, 2, ring_with("x" * 5000, "both"))
        answering = asyncio.create_task(answer_heartbeats(None, second.answer_line))
        await listen(home)
        first = AllWorkers(home, 3, 1, ring_with("both"))
        found = await first.ask(TraceQuestion(ids=frozenset({"both", "x" * 5000})))
        answering.cancel()
        return found

    answers, silent = asyncio.run(work())
    found = [(it.worker, [call["request_id"][:4] for call in it.calls]) for it in answers]
    assert found == [("gateway-1", ["both"]), ("gateway-2", ["xxxx", "both"])]
    assert silent == ["gateway-3"]


@pytest.mark.parametrize("question", [b"no JSON", b'{"account": 5}', b'{"more": 1}'])
async def test_a_question_that_is_none_ends_its_line_alone(home: Home, question: bytes) -> None:
    worker = AllWorkers(home, 2, 2, ring_with("a"))
    answering = asyncio.create_task(answer_heartbeats(None, worker.answer_line))
    await listen(home)
    path = line_path(service_path(home, "gateway-2"))
    with pytest.raises(ConnectionError):
        await ask_line(path, CALLS_REQUEST + question, 10)
    assert await ask_line(path, b"7", 10) == b"7\n"
    answering.cancel()
