"""Control's routes for the loads of recommendations jobs, and the log of a job."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from tests.cases import case, cases
from tests.unit.recommendations.jobs import JOB
from tests.unit.reconcile.recommendation_rig import RecommendationTown, end_of
from tests.unit.reconcile.samples import NOW, SCOPE

from hostelry.base.clock import ManualClock
from hostelry.control.jobs_routes import LoadedJobRoutes, note_job
from hostelry.domain.recommendation_job import BenchmarkEnd, BenchmarkSnapshot, RecommendationStatus
from hostelry.logs.store import BEGIN, END, LogStore

PATH = "/internal/benchmarks"
DONE = msgspec.json.encode(end_of(1))


@pytest.fixture
def place() -> Iterator[RecommendationTown]:
    found = RecommendationTown()
    yield found
    found.town.close()


def ask(
    place: RecommendationTown, scenario: Callable[[httpx.AsyncClient], Awaitable[None]]
) -> None:
    async def main() -> None:
        app = Starlette(routes=LoadedJobRoutes(PATH, place.jobs, BenchmarkEnd, "job").routes())
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://control") as client:
            await scenario(client)

    asyncio.run(main())


def test_loads_are_answered_whole_and_once(place: RecommendationTown) -> None:
    place.add()
    place.turn(20)
    place.jobs.loop.board.publish(place.snapshot)

    async def scenario(client: httpx.AsyncClient) -> None:
        answer = await client.get(PATH, params={"have": "an older version"})
        found = msgspec.json.decode(answer.content, type=BenchmarkSnapshot)
        assert found == place.snapshot, "every field comes over"
        waiting = asyncio.create_task(client.get(PATH, params={"have": found.version}))
        await asyncio.sleep(0)
        place.jobs.loop.board.close()
        assert (await waiting).status_code == 304, "nothing newer, and control ends"

    ask(place, scenario)


def test_the_end_of_a_load_is_taken_again_and_again(place: RecommendationTown) -> None:
    place.add()
    place.turn(20)

    async def scenario(client: httpx.AsyncClient) -> None:
        for _ in range(2):
            assert (await client.post(f"{PATH}/finish", content=DONE)).status_code == 204
        assert place.step(1).status is RecommendationStatus.COMPLETED

    ask(place, scenario)


@cases(
    "body, status",
    case("nothing", b"", 400),
    case("no text", b"\xff", 400),
    case("another number", DONE.replace(b'"number":1', b'"number":"1"'), 400),
    case("an unknown job", DONE.replace(b"sizes", b"other"), 404),
)
def test_an_invalid_report_changes_nothing(
    place: RecommendationTown, body: bytes, status: int
) -> None:
    place.add()
    place.turn(20)
    before = place.job()

    async def scenario(client: httpx.AsyncClient) -> None:
        assert (await client.post(f"{PATH}/finish", content=body)).status_code == status

    ask(place, scenario)
    assert place.job() == before


def test_lines_about_a_job_are_in_the_stream_that_the_sdk_reads(tmp_path: Path) -> None:
    logs, clock = LogStore(tmp_path / "logs.db"), ManualClock(NOW)
    note_job(logs, clock, JOB, ["Job sizes is IN_PROGRESS, with 2 steps."])
    note_job(logs, clock, JOB, [])
    group = logs.group(SCOPE, "/aws/sagemaker/InferenceRecommendationsJobs")
    assert group is not None
    stream = logs.stream(group, "sizes/execution")
    assert stream is not None
    lines = [it.message for it in logs.read_forwards(stream, BEGIN, END, 10)]
    assert lines == ["Job sizes is IN_PROGRESS, with 2 steps."]
    logs.close()
