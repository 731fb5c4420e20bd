"""Group commit of new requests, on a queue whose commits wait until they are let go."""

import asyncio
import threading
from collections.abc import Sequence

import pytest
from tests.contract.jobs.test_request_queue import HERE, asked

from hostelry.domain.async_request import AsyncRequest
from hostelry.jobs.queue.memory import MemoryQueue
from hostelry.jobs.submissions import Submissions
from hostelry.store.errors import StoreUnavailable


class SlowQueue(MemoryQueue):
    """Each commit waits for `gate`; a batch with a request named "bad" is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Semaphore(0)
        self.batches: list[list[str]] = []

    def submit(self, requests: Sequence[AsyncRequest]) -> None:
        self.gate.acquire()
        self.batches.append([it.id for it in requests])
        if any(it.id == "bad" for it in requests):
            raise StoreUnavailable("the disk is full")
        super().submit(requests)


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_requests_that_come_during_a_commit_share_the_next_one() -> None:
    async def play() -> None:
        queue, seen = SlowQueue(), []
        submissions = Submissions(queue, lambda scope, name: seen.append((scope, name)))
        running = asyncio.create_task(submissions.run())
        first = asyncio.create_task(submissions.submit(asked("a")))
        await settled()
        others = [asyncio.create_task(submissions.submit(asked(name))) for name in "bcd"]
        await settled()
        assert not first.done()
        queue.gate.release()
        await first
        assert not any(it.done() for it in others), "their commit is still to come"
        queue.gate.release()
        await asyncio.gather(*others)
        assert queue.batches == [["a"], ["b", "c", "d"]]
        assert seen == [(HERE, "e")] * 4
        running.cancel()

    asyncio.run(play())


def test_one_that_cannot_be_kept_does_not_refuse_the_others() -> None:
    async def play() -> None:
        queue = SlowQueue()
        queue.gate.release(9)
        submissions = Submissions(queue, lambda *_: None)
        tasks = [asyncio.create_task(submissions.submit(asked(it))) for it in ("a", "bad", "c")]
        await settled()
        running = asyncio.create_task(submissions.run())
        with pytest.raises(StoreUnavailable, match="disk is full"):
            await tasks[1]
        await asyncio.gather(tasks[0], tasks[2])
        assert set(queue.rows) == {"a", "c"}
        running.cancel()

    asyncio.run(play())


def test_a_process_that_ends_refuses_what_was_not_kept() -> None:
    async def play() -> None:
        queue = SlowQueue()
        submissions = Submissions(queue, lambda *_: None)
        running = asyncio.create_task(submissions.run())
        tasks = [asyncio.create_task(submissions.submit(asked("a")))]
        await settled()
        tasks.append(asyncio.create_task(submissions.submit(asked("b"))))
        await settled()
        running.cancel()
        for task in tasks:
            with pytest.raises(StoreUnavailable, match="ending"):
                await task
        queue.gate.release()

    asyncio.run(play())
