"""Control's routes for transform jobs: answers to the runner, and its reports."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from tests.cases import case, cases
from tests.unit.reconcile.samples import SCOPE
from tests.unit.reconcile.transform_rig import COMPLETED, TransformTown, transform_job

from hostelry.control.jobs_routes import TransformRoutes
from hostelry.domain.transform_job import (
    TransformJobStatus,
    TransformProgress,
    TransformProgressReport,
    TransformSnapshot,
)

PATH = "/internal/transform-jobs"
PROGRESS = TransformProgressReport(
    scope=SCOPE, name="nightly", progress=TransformProgress(objects=2)
)


@pytest.fixture
def place() -> Iterator[TransformTown]:
    found = TransformTown()
    yield found
    found.town.close()


def ask(place: TransformTown, scenario: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    async def main() -> None:
        routes = TransformRoutes(place.jobs)
        app = Starlette(
            routes=[
                Route(PATH, routes.get_newer, methods=["GET"]),
                Route(f"{PATH}/progress", routes.note_progress, methods=["POST"]),
                Route(f"{PATH}/finish", routes.finish, methods=["POST"]),
            ]
        )
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://control") as client:
            await scenario(client)

    asyncio.run(main())


def test_jobs_are_answered_whole_and_once(place: TransformTown) -> None:
    place.add(transform_job(environment={"A": "1"}))
    place.turn(20)
    place.jobs.loop.board.publish(place.snapshot)

    async def scenario(client: httpx.AsyncClient) -> None:
        answer = await client.get(PATH, params={"have": "an older version"})
        found = msgspec.json.decode(answer.content, type=TransformSnapshot)
        assert found.jobs == (place.job(),), "every field comes over"
        waiting = asyncio.create_task(client.get(PATH, params={"have": found.version}))
        await asyncio.sleep(0)
        place.jobs.loop.board.close()
        assert (await waiting).status_code == 304, "nothing newer, and control ends"

    ask(place, scenario)


def test_progress_and_the_end_are_taken_again_and_again(place: TransformTown) -> None:
    place.add()
    place.turn(20)

    async def scenario(client: httpx.AsyncClient) -> None:
        for _ in range(2):
            body = msgspec.json.encode(PROGRESS)
            assert (await client.post(f"{PATH}/progress", content=body)).status_code == 204
        assert place.jobs.get_progress(place.job()).objects == 2
        for _ in range(2):
            body = msgspec.json.encode(COMPLETED)
            assert (await client.post(f"{PATH}/finish", content=body)).status_code == 204
        assert place.job().status is TransformJobStatus.COMPLETED

    ask(place, scenario)


@cases(
    "path, body, status",
    case("no progress", "progress", b"", 400),
    case("no text", "progress", b"\xff", 400),
    case(
        "a number that is none",
        "progress",
        msgspec.json.encode(PROGRESS).replace(b'"objects":2', b'"objects":"2"'),
        400,
    ),
    case("no end", "finish", b"{}", 400),
    case(
        "a status that is none",
        "finish",
        msgspec.json.encode(COMPLETED).replace(b"Completed", b"Gone"),
        400,
    ),
    case(
        "a job that is none",
        "finish",
        msgspec.json.encode(COMPLETED).replace(b"nightly", b"other"),
        404,
    ),
)
def test_what_is_no_report_changes_nothing(
    place: TransformTown, path: str, body: bytes, status: int
) -> None:
    place.add()
    before = place.job()

    async def scenario(client: httpx.AsyncClient) -> None:
        answer = await client.post(f"{PATH}/{path}", content=body)
        assert answer.status_code == status
        assert "transform job" in answer.text

    ask(place, scenario)
    assert place.job() == before
