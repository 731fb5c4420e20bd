"""Work that one host of several does at a time."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.postgres_rig import postgres_database

from hostelry.base.clock import ManualClock
from hostelry.jobs.queue.work_claims import LEASE_S, SharedWork, WorkClaims
from hostelry.store.database import Database, open_database

NOW = 1_700_000_000.0


@pytest.fixture(params=["a file", "PostgreSQL"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with contextlib.ExitStack() as stack:
        is_file = request.param == "a file"
        where = tmp_path / "jobs.db" if is_file else stack.enter_context(postgres_database())
        yield stack.enter_context(contextlib.closing(open_database(where)))


def test_one_host_has_the_work_until_its_lease_ends_or_it_gives_it_back(database: Database) -> None:
    here, there = WorkClaims(database, "here"), WorkClaims(database, "there")
    assert here.take("job", NOW)
    assert not there.take("job", NOW + LEASE_S - 1)
    assert there.take("other", NOW)
    assert here.renew("job", NOW + 10)
    assert here.take("job", NOW + 20), "as does a successor on this host"
    assert not there.take("job", NOW + LEASE_S)
    assert there.take("job", NOW + 20 + LEASE_S)
    here.give_back("job")  # it is not its any more
    assert not here.renew("job", NOW + 20)
    assert not here.take("job", NOW + 20 + LEASE_S)
    there.give_back("job")
    assert here.take("job", NOW + 21)


def test_work_stops_here_once_another_host_has_it(database: Database) -> None:
    async def scenario() -> list[str]:
        clock, seen = ManualClock(NOW), list[str]()
        claims = WorkClaims(database, "here")

        async def step() -> None:
            seen.append("begun")
            if seen.count("begun") == 1:  # by now it is the other host's, as after a long pause
                WorkClaims(database, "there").take("job", clock.now() + LEASE_S)
                try:
                    await asyncio.Event().wait()
                finally:
                    seen.append("stopped")
            seen.append("done")

        await SharedWork(claims, clock).run("job", step)
        assert not WorkClaims(database, "there").take("job", clock.now()), "others learn of the end"
        return seen

    assert asyncio.run(scenario()) == ["begun", "stopped", "begun", "done"]


async def test_work_that_is_cancelled_is_free_at_once_and_a_failure_is_the_callers(
    database: Database,
) -> None:
    clock = ManualClock(NOW)
    shared, there = SharedWork(WorkClaims(database, "here"), clock), WorkClaims(database, "x")
    begun = asyncio.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(shared.run("job", endless))
    await begun.wait()
    assert not there.take("job", clock.now())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert there.take("job", clock.now())

    async def failing() -> None:
        raise ValueError("a defect")

    with pytest.raises(ValueError, match="a defect"):
        await shared.run("other", failing)
