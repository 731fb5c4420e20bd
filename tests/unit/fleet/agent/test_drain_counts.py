"""Connections to a draining copy are counted again, independent of the last count."""

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hostelry.base.concurrency import run_guarded, run_periodically
from hostelry.fleet.agent.agent import DrainCounts

Work = Callable[[], Coroutine[Any, Any, None]]


class Kernel:
    """Reports the open connections, or fails."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self.fault: Exception | None = None
        self.asked: list[set[int]] = []

    def count(self, ports: Collection[int]) -> Mapping[int, int]:
        self.asked.append(set(ports))
        if self.fault is not None:
            raise self.fault
        return {it: self.open.get(it, 0) for it in ports}


async def test_it_is_news_only_where_a_count_or_who_drains_has_changed() -> None:
    kernel = Kernel()
    counts = DrainCounts(kernel.count)
    assert counts.get("c-1") is None
    kernel.open = {8080: 2}
    assert await counts.refresh({"c-1": 8080, "c-2": 9090})
    assert (counts.get("c-1"), counts.get("c-2")) == (2, 0)
    assert not await counts.refresh({"c-1": 8080, "c-2": 9090})
    kernel.open = {}
    assert await counts.refresh({"c-1": 8080, "c-2": 9090})
    assert counts.get("c-1") == 0
    assert await counts.refresh({})
    assert counts.get("c-1") is None
    assert not await counts.refresh({})
    assert kernel.asked == [{8080, 9090}] * 3, "the kernel is not asked for nothing"


async def test_two_copies_that_had_one_port_one_after_the_other_are_both_counted() -> None:
    kernel = Kernel()
    kernel.open = {8080: 3}
    counts = DrainCounts(kernel.count)
    await counts.refresh({"old": 8080, "new": 8080})
    assert (counts.get("old"), counts.get("new")) == (3, 3)


async def test_threads_that_hang_with_the_object_store_do_not_keep_it_from_counting() -> None:
    kernel, store_answers = Kernel(), threading.Event()
    counts = DrainCounts(kernel.count)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    fetching = loop.run_in_executor(None, store_answers.wait)
    try:
        assert await counts.refresh({"c-1": 8080})
    finally:
        store_answers.set()
    await fetching
    assert counts.get("c-1") == 0


FAULTS = [
    pytest.param(OSError(24, "Too many open files"), id="no descriptor is left"),
    pytest.param(RuntimeError("can't start new thread"), id="no thread is left"),
    pytest.param(ValueError("invalid literal for int()"), id="a table that cannot be read"),
]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_count_that_fails_leaves_the_last_one_and_is_made_again(
    fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise a copy would drain until its time limit because of these connections."""
    kernel = Kernel()
    kernel.open = {8080: 1}
    counts = DrainCounts(kernel.count)
    counted: list[int | None] = []

    async def refresh() -> None:
        try:
            await counts.refresh({"c-1": 8080})
        finally:
            counted.append(counts.get("c-1"))
            kernel.fault = fault if len(counted) in (1, 2) else None
            kernel.open = {}
            if len(counted) == 5:
                enough.set()

    enough = asyncio.Event()
    with caplog.at_level(logging.ERROR):
        task = asyncio.create_task(run_periodically("counting", refresh, 0.0))
        await enough.wait()
        task.cancel()
    assert counted == [1, 1, 1, 0, 0]
    assert [it.message for it in caplog.records] == ["counting: failed; will be tried again"]


async def test_a_look_that_is_cancelled_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def refresh() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(run_guarded("waiting", refresh))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert not caplog.records
