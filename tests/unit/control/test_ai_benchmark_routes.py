"""Control's routes for AI benchmark jobs."""

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from tests.cases import case, cases
from tests.unit.reconcile.samples import NOW, SCOPE
from tests.unit.reconcile.test_ai_benchmark_jobs import END, ENDPOINT, JOB

from hostelry.base.clock import ManualClock
from hostelry.control.jobs_routes import LoadedJobRoutes
from hostelry.domain.ai_benchmark_job import AiBenchmarkEnd, AiBenchmarkSnapshot, AiBenchmarkStatus
from hostelry.reconcile.ai_benchmark_jobs import AiBenchmarkJobs
from hostelry.store.memory import MemoryStore
from hostelry.store.records import State, open_state

PATH = "/internal/ai-benchmarks"


@pytest.fixture
def state() -> State:
    """A state with a job and its endpoint."""
    found = open_state(MemoryStore())
    found.endpoints.put(SCOPE, "ep", ENDPOINT, expect=None)
    found.ai_benchmark_jobs.put(SCOPE, "chat", JOB, expect=None)
    return found


def ask(jobs: AiBenchmarkJobs, scenario: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    async def main() -> None:
        routes = LoadedJobRoutes(PATH, jobs, AiBenchmarkEnd, "job").routes()
        transport = httpx.ASGITransport(app=Starlette(routes=routes))
        async with httpx.AsyncClient(transport=transport, base_url="http://control") as client:
            await scenario(client)

    asyncio.run(main())


def test_jobs_are_answered_whole_and_once(state: State) -> None:
    jobs = AiBenchmarkJobs(state, ManualClock(NOW))
    jobs.loop.one_pass()
    assert jobs.loop.snapshot is not None
    jobs.loop.board.publish(jobs.loop.snapshot)

    async def scenario(client: httpx.AsyncClient) -> None:
        answer = await client.get(PATH, params={"have": "an older version"})
        found = msgspec.json.decode(answer.content, type=AiBenchmarkSnapshot)
        assert found == jobs.loop.snapshot, "every field comes over"
        waiting = asyncio.create_task(client.get(PATH, params={"have": found.version}))
        await asyncio.sleep(0)
        jobs.loop.board.close()
        assert (await waiting).status_code == 304, "nothing newer, and control ends"

    ask(jobs, scenario)


@cases(
    "body, status, expected",
    case("an end", msgspec.json.encode(END), 204, AiBenchmarkStatus.COMPLETED),
    case("no JSON", b"{", 400, AiBenchmarkStatus.IN_PROGRESS),
    case("no report", b"{}", 400, AiBenchmarkStatus.IN_PROGRESS),
    case(
        "an end of a deleted job",
        msgspec.json.encode(END).replace(b'"chat"', b'"gone"'),
        404,
        AiBenchmarkStatus.IN_PROGRESS,
    ),
)
def test_an_end_is_taken(
    state: State, body: bytes, status: int, expected: AiBenchmarkStatus
) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        for _ in range(2):
            assert (await client.post(f"{PATH}/finish", content=body)).status_code == status

    ask(AiBenchmarkJobs(state, ManualClock(NOW)), scenario)
    found = state.ai_benchmark_jobs.get(SCOPE, "chat")
    assert found is not None
    assert found.value.status is expected
