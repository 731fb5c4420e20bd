"""The keyed work queue."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest
from tests.cases import case, cases

from hostelry.base.clock import ManualClock, SystemClock
from hostelry.base.errors import RetryableError
from hostelry.reconcile.queue import MAX_BACKOFF_S, WorkQueue, get_backoff_s


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not happen")


async def with_queue(
    queue: WorkQueue[str], workers: int, scenario: Callable[[], Awaitable[None]]
) -> None:
    running = asyncio.create_task(queue.run(workers))
    try:
        await scenario()
    finally:
        running.cancel()
        await asyncio.wait({running})
    assert running.cancelled()


def test_many_adds_before_the_work_are_one() -> None:
    done: list[str] = []

    async def work(key: str) -> None:
        done.append(key)

    queue: WorkQueue[str] = WorkQueue(work, SystemClock())

    async def scenario() -> None:
        for _ in range(5):
            queue.add("a")
        queue.add("b")
        await queue.quiet()
        assert sorted(done) == ["a", "b"]

    asyncio.run(with_queue(queue, 2, scenario))


def test_a_key_has_one_worker_and_is_worked_on_again_when_added_meanwhile() -> None:
    at_work: list[str] = []
    most = [0]
    finished: list[str] = []
    go = asyncio.Event()

    async def work(key: str) -> None:
        at_work.append(key)
        most[0] = max(most[0], at_work.count("a"))
        await go.wait()
        at_work.remove(key)
        finished.append(key)

    queue: WorkQueue[str] = WorkQueue(work, SystemClock())

    async def scenario() -> None:
        queue.add("a")
        await until(lambda: at_work == ["a"])
        queue.add("a")
        queue.add("b")
        await until(lambda: at_work == ["a", "b"])
        go.set()
        await queue.quiet()
        assert sorted(finished) == ["a", "a", "b"]
        assert most == [1]

    asyncio.run(with_queue(queue, 4, scenario))


def test_no_more_keys_than_workers_at_a_time_and_none_is_forgotten() -> None:
    at_work = [0, 0]
    done: list[str] = []

    async def work(key: str) -> None:
        at_work[0] += 1
        at_work[1] = max(at_work)
        await asyncio.sleep(0)
        at_work[0] -= 1
        done.append(key)

    queue: WorkQueue[str] = WorkQueue(work, SystemClock())

    async def scenario() -> None:
        for number in range(50):
            queue.add(str(number))
        await queue.quiet()
        assert len(done) == 50
        assert at_work[1] == 3

    asyncio.run(with_queue(queue, 3, scenario))


@cases(
    "error",
    case("a retryable error", RetryableError("later")),
    case("a defect", ZeroDivisionError("a defect")),
)
def test_an_error_is_retried_with_growing_pauses_and_delays_no_other_key(error: Exception) -> None:
    clock = ManualClock()
    started_at = clock.now()
    attempts: list[float] = []
    others: list[str] = []

    async def work(key: str) -> None:
        if key == "other":
            others.append(key)
            return
        attempts.append(clock.now() - started_at)
        if len(attempts) < 5:
            raise error

    queue: WorkQueue[str] = WorkQueue(work, clock)

    async def scenario() -> None:
        queue.add("bad")
        queue.add("other")
        await until(lambda: len(attempts) == 5)

    asyncio.run(with_queue(queue, 2, scenario))
    assert others == ["other"]
    pauses = [b - a for a, b in itertools.pairwise(attempts)]
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4])


def test_work_may_ask_to_be_called_again_and_the_earliest_alarm_counts() -> None:
    clock = ManualClock()
    started_at = clock.now()
    calls: list[float] = []

    async def work(key: str) -> float | None:
        calls.append(clock.now() - started_at)
        return started_at + 100 if len(calls) < 3 else None

    queue: WorkQueue[str] = WorkQueue(work, clock)

    async def scenario() -> None:
        queue.add("a")
        await until(lambda: len(calls) == 1)
        queue.add_at("a", started_at + 200)
        queue.add_at("a", started_at + 30)
        await until(lambda: len(calls) == 3)

    asyncio.run(with_queue(queue, 1, scenario))
    assert calls == [0, 30, 100]


def test_a_key_rests_where_its_work_asks_for_it_and_other_keys_do_not_wait() -> None:
    clock = ManualClock()
    started_at = clock.now()
    calls: list[tuple[str, float]] = []

    async def work(key: str) -> None:
        calls.append((key, clock.now() - started_at))
        queue.rest(key, 0.3 if key == "large" else 0.0)

    queue: WorkQueue[str] = WorkQueue(work, clock)

    async def scenario() -> None:
        queue.add("large")
        await until(lambda: len(calls) == 1)
        for _ in range(5):
            queue.add("large")
        queue.add("small")
        await queue.quiet()

    asyncio.run(with_queue(queue, 1, scenario))
    assert [key for key, _ in calls] == ["large", "small", "large"]
    assert calls[2][1] == pytest.approx(0.3)


def test_the_backoff_grows_and_is_bounded() -> None:
    pauses = [get_backoff_s(it) for it in range(0, 2000, 10)]
    assert pauses[0] == 0
    assert pauses == sorted(pauses)
    assert pauses[-1] == MAX_BACKOFF_S
