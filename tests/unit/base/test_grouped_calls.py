"""Calls in groups, of an act that waits until it is let go."""

import asyncio
from collections.abc import Sequence

from tests.cases import case, cases

from hostelry.base.concurrency import GroupedCalls


class Act:
    """Answers with capitals once `gate` opens. "x" has its own error, "!" fails its whole group."""

    def __init__(self) -> None:
        self.gate = asyncio.Semaphore(0)
        self.groups: list[str] = []

    async def __call__(self, items: Sequence[str]) -> list[str | Exception]:
        await self.gate.acquire()
        self.groups.append("".join(items))
        if "!" in items:
            raise OSError("the disk is full")
        return [ValueError(it) if it == "x" else it.upper() for it in items]


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@cases(
    "items, most, groups, ends",
    case("those that come meanwhile share a group", "abcd", 9, ["a", "bcd"], "ABCD"),
    case("a group has a largest size", "abcd", 2, ["a", "bc", "d"], "ABCD"),
    case("an item's own error is its caller's alone", "axb", 9, ["a", "xb"], "AEB"),
    case("no one fails the others", "ab!c", 9, ["a", "b!c", "b", "!", "c"], "ABEC"),
    case("alone it is not tried twice", "!ab", 9, ["!", "ab"], "EAB"),
)
async def test_groups_and_results(items: str, most: int, groups: list[str], ends: str) -> None:
    act = Act()
    calls = GroupedCalls(act, most)
    tasks = [asyncio.create_task(calls.call(items[0]))]
    await settled()
    tasks += [asyncio.create_task(calls.call(it)) for it in items[1:]]
    await settled()
    assert not any(it.done() for it in tasks)
    for _ in items * 3:
        act.gate.release()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert act.groups == groups
    assert "".join("E" if isinstance(it, Exception) else str(it) for it in found) == ends
    await calls.finish()


async def test_a_cancelled_caller_is_left_out_and_disturbs_no_one() -> None:
    act = Act()
    calls = GroupedCalls(act, 9)
    first = asyncio.create_task(calls.call("a"))
    await settled()
    second, third = (asyncio.create_task(calls.call(it)) for it in "bc")
    await settled()
    first.cancel()
    second.cancel()
    await settled()
    act.gate.release()
    act.gate.release()
    assert await third == "C"
    assert act.groups == ["a", "c"]


async def test_calls_go_on_after_a_pause_and_finish_waits_for_them() -> None:
    act = Act()
    calls = GroupedCalls(act, 9)
    act.gate.release()
    assert await calls.call("a") == "A"
    await calls.finish()
    later = asyncio.create_task(calls.call("b"))
    await settled()
    finished = asyncio.create_task(calls.finish())
    await settled()
    assert not finished.done()
    act.gate.release()
    await finished
    await settled()
    assert later.done()


def test_a_loop_that_ends_cancels_what_waits() -> None:
    tasks: list[asyncio.Task[str]] = []

    async def scenario() -> None:
        calls = GroupedCalls(Act(), 1)
        tasks.extend(asyncio.create_task(calls.call(it)) for it in "ab")
        await settled()

    asyncio.run(scenario())
    assert all(it.cancelled() for it in tasks)
