import asyncio
import logging

import pytest
from tests.cases import case, cases

from hostelry.home.home import UpConfig
from hostelry.services.gateway_limits import http_limits
from hostelry.services.worker_parts import wait_for_end


async def for_ever() -> None:
    await asyncio.Event().wait()


async def fails() -> None:
    raise ZeroDivisionError("the cause")


async def ends() -> None:
    """Ends by itself."""


@cases(
    "part, reported",
    case("fails", fails, "keeping time ended: ZeroDivisionError('the cause')"),
    case("ends by itself", ends, "keeping time ended: None"),
)
def test_a_worker_whose_task_ends_reports_it_with_the_cause(
    part: object, reported: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> str | None:
        tasks = {
            "following the routes": asyncio.create_task(for_ever()),
            "keeping time": asyncio.create_task(part()),  # type: ignore[operator]
        }
        try:
            return await wait_for_end(tasks, asyncio.Event())
        finally:
            tasks["following the routes"].cancel()

    with caplog.at_level(logging.ERROR):
        assert asyncio.run(scenario()) == reported
    assert "keeping time ended" in caplog.text


def test_a_worker_that_is_stopped_ends_without_a_cause() -> None:
    async def scenario() -> str | None:
        stopping = asyncio.Event()
        stopping.set()
        task = asyncio.create_task(for_ever())
        try:
            return await wait_for_end({"following": task}, stopping)
        finally:
            task.cancel()

    assert asyncio.run(scenario()) is None


@cases(
    "max_files, most",
    case("what was asked for", 1 << 20, 10_000),
    case("no more than there are files for, with one to a copy each", 1024, 320),
)
def test_a_worker_takes_as_many_connections_as_it_can_serve(max_files: int, most: int) -> None:
    config = UpConfig(control_port=1, max_body_bytes=1 << 30)
    limits = http_limits(config, max_files)
    assert limits.max_connections == most
    assert limits.max_unverified_bytes == 4 << 30  # some of the largest bodies always fit
