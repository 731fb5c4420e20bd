"""Turns of starting copies are limited and in order. Slow and ended copies do not keep them."""

import asyncio
from collections.abc import Callable

import pytest

from hostelry.fleet.agent import deps as start_turns
from hostelry.fleet.agent.agent import MAX_GATHER_S, gathering_s
from hostelry.fleet.agent.deps import MIN_TURNS, TURNS_PER_CPU, StartTurns, turn_left_s


class Starting:
    """Copies that ask for turns. `started` has those that got a turn, in order."""

    def __init__(self) -> None:
        self.turns = StartTurns(num_cpus=1)
        self.started: list[int] = []
        self.ends: dict[int, Callable[[], None]] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}

    async def ask(self, count: int) -> None:
        for number in range(count):
            self.tasks[number] = asyncio.ensure_future(self._start(number))
        await settled()

    async def _start(self, number: int) -> None:
        self.ends[number] = await self.turns.take()
        self.started.append(number)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_turns_are_bounded_and_given_in_order() -> None:
    starting = Starting()
    await starting.ask(MIN_TURNS + 3)
    assert starting.started == list(range(MIN_TURNS))
    assert not starting.turns.is_free
    starting.ends[2]()
    starting.ends[2]()  # a second end has no effect
    await settled()
    assert starting.started == list(range(MIN_TURNS + 1))
    for number in (0, 1, 3):
        starting.ends[number]()
    await settled()
    assert starting.started == list(range(MIN_TURNS + 3))
    assert starting.turns.is_free


@pytest.mark.parametrize("is_given", [False, True], ids=["before its turn", "as its turn comes"])
async def test_a_copy_that_is_given_up_keeps_no_turn(is_given: bool) -> None:
    starting = Starting()
    await starting.ask(MIN_TURNS + 2)
    if is_given:
        starting.ends[0]()
    starting.tasks[MIN_TURNS].cancel()
    if not is_given:
        starting.ends[0]()
    await settled()
    assert starting.started == [*range(MIN_TURNS), MIN_TURNS + 1]


async def test_a_slow_start_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_turns, "MAX_TURN_S", 0.0)
    starting = Starting()
    await starting.ask(3 * MIN_TURNS)
    await asyncio.gather(*starting.tasks.values())
    assert starting.started == list(range(3 * MIN_TURNS))


async def test_a_start_that_waits_for_a_cpu_keeps_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_turns, "MAX_TURN_S", 0.0)
    monkeypatch.setattr(start_turns, "MIN_LOOK_S", 0.0)
    turns, num_looks, has_cpu = StartTurns(num_cpus=1), 0, False
    loop = asyncio.get_running_loop()
    began_at = loop.time()

    def starved_s() -> float:
        nonlocal num_looks
        num_looks += 1
        return 0.0 if has_cpu else loop.time() - began_at + 0.001

    for _ in range(MIN_TURNS):
        await turns.take(starved_s)
    waiting = asyncio.ensure_future(turns.take())
    while num_looks < 5 * MIN_TURNS:  # noqa: ASYNC110 - callbacks count
        await asyncio.sleep(0)
    assert not waiting.done()
    has_cpu = True
    await waiting


@pytest.mark.parametrize(
    ("held_s", "starved_s", "left_s"),
    [
        pytest.param(1.0, 0.0, 4.0, id="a start that has a CPU has five seconds"),
        pytest.param(5.0, 0.0, 0.0, id="and no more"),
        pytest.param(25.0, 22.0, 2.0, id="one that had it for a tenth of the time has longer"),
    ],
)
def test_the_time_without_a_cpu_is_no_part_of_a_turn(
    held_s: float, starved_s: float, left_s: float
) -> None:
    assert turn_left_s(held_s, starved_s) == left_s


async def test_a_large_machine_starts_more_at_once() -> None:
    turns = StartTurns(num_cpus=96)
    ends = [await turns.take() for _ in range(TURNS_PER_CPU * 96)]
    assert not turns.is_free
    for end in ends:
        end()


@pytest.mark.parametrize(
    ("num_copies", "at_most_s"), [(0, 0.0), (1, 0.001), (300, 0.2), (100_000, MAX_GATHER_S)]
)
def test_few_copies_are_reported_at_once(num_copies: int, at_most_s: float) -> None:
    assert gathering_s(num_copies) <= at_most_s
