"""Requests that wait for a copy: order, rate of release, limits, and the reasons they get."""

import asyncio

from msgspec.structs import replace
from tests.unit.dataplane.routes_sample import COPIES
from tests.unit.gateway.queueing.queue_rig import (
    ASLEEP,
    AWAKE,
    COMING,
    LIMIT_S,
    Rig,
    no_task_is_left,
    settle,
)

from hostelry.routing.no_copy import WINDOW


async def test_a_request_that_wakes_a_component_is_answered_once_there_is_a_copy() -> None:
    rig = Rig(ASLEEP)
    async with no_task_is_left():
        request = rig.start("a")
        await settle()
        assert [(it.key.component_name, it.held) for it in rig.control.wakes] == [("llm", 1)]
        rig.pass_s(0.02)
        rig.show(COMING)
        await settle()
        assert rig.answers == []
        rig.show(AWAKE)
        await request
        assert rig.answers == ["a c-1"]
        assert rig.pending_queue.num_held == 0
    (load,) = rig.loads()
    assert (load.key.component_name, load.arrivals, load.delayed, load.no_capacity) == (
        "llm", 1, 1, 0,
    )  # fmt: skip


async def test_the_wait_for_a_copy_is_noted_however_it_ends() -> None:
    rig = Rig(ASLEEP)
    async with no_task_is_left():
        waiting = [rig.start("a"), rig.start("late", limit_s=2.0)]
        await settle()
        rig.pass_s(3.0)
        await settle()
        rig.pass_s(5.0)
        rig.show(AWAKE)
        await asyncio.gather(*waiting)
    rest = [("attempt", 0.0), ("passing on", 0.0)]
    assert rig.spans("a") == [("arrival", 0.0), ("queue", 8000.0), *rest]
    assert rig.spans("late") == [("arrival", 0.0), ("queue", 3000.0)]


async def test_a_wake_is_repeated_until_control_desires_a_copy() -> None:
    rig = Rig(ASLEEP)
    async with no_task_is_left():
        requests = [rig.start(str(number)) for number in range(5)]
        await settle()
        rig.pass_s(0.2)
        for _ in range(30):  # ten seconds in which control is away
            rig.pass_s(0.5)
            await settle()
        assert len({round(it.at, 3) for it in rig.control.wakes}) == 1  # since when they wait
        notified = [it.held for it in rig.control.wakes]
        assert notified[:2] == [1, 5]
        assert set(notified[2:]) == {5}
        assert 14 <= len(notified) <= 18
        rig.show(COMING)  # control has received it
        rig.pass_s(1.5)
        rig.pass_s(1.5)
        await settle()
        assert len(rig.control.wakes) == len(notified)
        requests.append(rig.start("more"))
        await settle()
        rig.pass_s(1.5)
        await settle()
        assert rig.control.wakes[-1].held == 6
        rig.show(AWAKE)
        await asyncio.gather(*requests)


async def test_they_go_in_the_order_of_their_coming_and_no_more_than_copies_take() -> None:
    rig = Rig(ASLEEP)
    names = [f"{number:03}" for number in range(5 * WINDOW)]
    async with no_task_is_left():
        requests = [rig.start(name) for name in names]
        await settle()
        rig.show(AWAKE)
        await settle()
        assert rig.who == names[: 2 * WINDOW]
        assert [rig.counts.of(it.id) for it in COPIES] == [WINDOW, WINDOW]
        late = rig.start("late")  # does not go before those who wait
        await settle()
        rig.pass_s(0.02)
        await settle()
        assert rig.who == names[: 2 * WINDOW + 2]  # one per copy, as each may have a queue
        for placed in rig.placed:
            placed.close()
        rig.pass_s(0.02)
        await settle()
        assert rig.who == names[: 4 * WINDOW + 2]
        for _ in range(WINDOW):
            rig.pass_s(0.02)
            await settle()
        assert rig.who == [*names, "late"]
        await asyncio.gather(*requests, late)


async def test_a_second_copy_that_comes_a_moment_later_gets_its_share() -> None:
    rig = Rig(ASLEEP)
    async with no_task_is_left():
        requests = [rig.start(f"{number}") for number in range(2 * WINDOW)]
        await settle()
        rig.show(replace(AWAKE, copies=COPIES[:1]))
        await settle()
        rig.show(AWAKE)
        await settle()
        assert [rig.counts.of(it.id) for it in COPIES] == [WINDOW, WINDOW]
        await asyncio.gather(*requests)


async def test_an_expired_request_gets_the_reason() -> None:
    rig = Rig(ASLEEP)
    async with no_task_is_left():
        short, long = rig.start("short"), rig.start("long", limit_s=480.0)
        await settle()
        rig.show(COMING)
        rig.pass_s(LIMIT_S - 0.1)
        await settle()
        assert rig.answers == []
        rig.pass_s(0.2)
        await short
        assert rig.answers == [
            "short 503 The request waited 60.1 s for a copy of inference component llm, of which "
            "2 wanted, none is ready: no instance has room. Try again."
        ]
        rig.show(AWAKE)
        await long
        assert rig.who == ["short", "long"]
    (load,) = [it for it in rig.loads() if it.no_capacity]
    assert load.no_capacity == 1


async def test_the_setting_limits_the_wait_where_it_is_shorter() -> None:
    rig = Rig(COMING, limit_s=5.0)
    async with no_task_is_left():
        request = rig.start("a", limit_s=480.0)
        await settle()
        rig.pass_s(5.0)
        await request
        assert rig.answers[0].startswith("a 503 The request waited 5.0 s")


async def test_a_full_queue_refuses_at_once_and_keeps_the_others() -> None:
    rig = Rig(ASLEEP, max_requests_each=2)
    async with no_task_is_left():
        requests = [rig.start(who) for who in "abc"]
        await settle()
        assert rig.answers == [
            "c 503 No copy of inference component llm can take the request now, and it cannot "
            "wait: 2 requests wait for it already, and no more may."
        ]
        rig.show(AWAKE)
        await asyncio.gather(*requests)
        assert rig.who == ["c", "a", "b"]


async def test_a_client_that_leaves_gives_its_place_up_at_once() -> None:
    rig = Rig(ASLEEP, max_requests_each=2)
    async with no_task_is_left():
        requests = [rig.start(who) for who in "ab"]
        await settle()
        requests[0].cancel()
        await settle()
        assert rig.pending_queue.num_held == 1
        requests.append(rig.start("c"))
        await settle()
        requests[2].cancel()
        rig.show(AWAKE)  # in the same moment
        await asyncio.gather(*requests, return_exceptions=True)
        assert rig.who == ["a", "c", "b"]
        assert rig.pending_queue.num_held == 0
    assert rig.upstream.asked == [COPIES[0].address]
