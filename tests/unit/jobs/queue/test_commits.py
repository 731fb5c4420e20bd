"""Writes that share commits, on a durable queue that counts them."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.contract.jobs.test_request_queue import DONE, LEASE_S, NOW, asked, claims, ids, note

from hostelry.jobs.queue.durable_queue import DurableQueue
from hostelry.jobs.queue.protocol import QueueCommits, Write
from hostelry.store.protocol import StoreUnavailable
from hostelry.store.sqlite import SqliteFile


class CountedQueue(DurableQueue):
    """Notes the size of each commit."""

    def __init__(self, path: Path, max_unfinished: int = 100) -> None:
        super().__init__(SqliteFile(path), max_unfinished=max_unfinished)
        self.sizes: list[int] = []

    def write_together(self, writes: Sequence[Write]) -> list[Any]:
        self.sizes.append(len(writes))
        return super().write_together(writes)


def test_writes_at_once_share_a_commit_and_each_has_its_own_result(tmp_path: Path) -> None:
    queue = CountedQueue(tmp_path / "jobs.db")
    queue.submit([asked(it) for it in "abc"])
    a, b, c = claims(queue)
    queue.release_host(None)
    [again] = claims(queue, 1)  # of a, under a new fence

    async def scenario() -> Sequence[Any]:
        commits = QueueCommits(queue)
        return await asyncio.gather(
            commits.write(lambda it: it.complete(a, DONE, NOW, [note("stale")])),
            commits.write(lambda it: it.complete(again, DONE, NOW, [note("ended")])),
            commits.write(lambda it: it.renew([b, c], NOW, LEASE_S)),
            commits.write(lambda it: it.submit([asked("d")])),
            commits.write(lambda it: ids(claims(it, 9))),
        )

    assert tuple(asyncio.run(scenario())) == (False, True, [], None, ["b", "c", "d"])
    assert queue.sizes == [5]
    assert [it.notification.id for it in queue.list_due_notifications(NOW, 9)] == ["ended"]
    queue.close()


async def test_a_request_that_cannot_be_kept_costs_the_others_nothing(tmp_path: Path) -> None:
    queue = CountedQueue(tmp_path / "jobs.db", max_unfinished=4)
    queue.submit([asked("a"), asked("b")])
    [a] = claims(queue, 1)
    commits = QueueCommits(queue)
    kept, same, last, refused, ended = await asyncio.gather(
        commits.write(lambda it: it.submit([asked("c")])),
        commits.write(lambda it: it.submit([asked("b")])),  # its id is taken
        commits.write(lambda it: it.submit([asked("d")])),
        commits.write(lambda it: it.submit([asked("e")])),
        commits.write(lambda it: it.complete(a, DONE, NOW, [])),
        return_exceptions=True,
    )
    assert (kept, last, ended) == (None, None, True)
    assert isinstance(same, StoreUnavailable)
    assert isinstance(refused, StoreUnavailable)
    assert "at most" in str(refused)
    assert ids(claims(queue)) == ["b", "c", "d"]
    queue.submit([asked("f")])  # a has given its room back, and refused ones have none
    with pytest.raises(StoreUnavailable, match="4 asynchronous requests wait"):
        queue.submit([asked("g")])
    queue.close()
