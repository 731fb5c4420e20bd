"""Requests that may not wait, names that only control knows, and copies that start and end."""

import asyncio

from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.dataplane.routes_sample import COPIES, HERE, component, variant
from tests.unit.gateway.queueing.queue_rig import (
    ASLEEP,
    AWAKE,
    COMING,
    Rig,
    no_task_is_left,
    settle,
)

from hostelry.dataplane.balancing.destination import NO_CAPACITY
from hostelry.domain.at_zero import AtZero, Wakeable
from hostelry.domain.routes import ComponentRoute, EndpointRoute
from hostelry.gateway.queueing.decisions import REFUSED_S, NotServedError
from hostelry.gateway.queueing.pending_queue import SYNC_S
from hostelry.http1.reply import ConnectError


@cases(
    "route, status, text",
    case("compat: AWS's error, although it could be woken", replace(ASLEEP, at_zero=AtZero.COMPAT),
        400, NO_CAPACITY),
    case("compat: copies are coming", replace(COMING, at_zero=AtZero.COMPAT), 503, "try again"),
    case("off on purpose: nothing may raise it", replace(ASLEEP, wakeable=Wakeable.NO_TARGET), 400,
        "no scalable target"),
    case("off by schedule", replace(ASLEEP, wakeable=Wakeable.MAX_ZERO), 400, "MaxCapacity"),
    case("scaling out is suspended", replace(ASLEEP, wakeable=Wakeable.SUSPENDED), 400,
        "DynamicScalingOutSuspended"),
)  # fmt: skip
async def test_requests_that_may_not_wait_fail_at_once(
    route: ComponentRoute, status: int, text: str
) -> None:
    rig = Rig(route)
    async with no_task_is_left():
        await rig.request("a")
        assert rig.answers[0].startswith(f"a {status} ")
        assert text in rig.answers[0]
        assert rig.control.wakes == []
        assert (NO_CAPACITY in rig.answers[0]) is (status == 400)
    (load,) = rig.loads()
    assert (load.arrivals, load.no_capacity, load.delayed) == (1, 1, 0)


async def test_compat_does_not_wait_although_others_of_the_endpoint_do() -> None:
    rig = Rig(ASLEEP, replace(ASLEEP, name="plain", at_zero=AtZero.COMPAT))
    async with no_task_is_left():
        queued = rig.start("held")
        await rig.request("plain", name="plain")
        assert NO_CAPACITY in rig.answers[0]
        rig.show(AWAKE)
        await queued


async def test_compat_wakes_nothing_and_counts_although_a_request_could_wake_it() -> None:
    rig = Rig(replace(ASLEEP, at_zero=AtZero.COMPAT))
    rig.control.wanted = True
    async with no_task_is_left():
        await rig.request("a")
        assert NO_CAPACITY in rig.answers[0]
    (load,) = rig.loads()
    assert (load.arrivals, load.no_capacity, load.delayed) == (1, 1, 0)


async def test_what_control_knows_is_waited_for_until_the_routes_have_it() -> None:
    rig = Rig()
    rig.control.wanted = True
    async with no_task_is_left():
        request = rig.start("a")
        await settle()
        assert [it.component_name for it in rig.control.asked] == ["llm"]
        rig.show(component("another"))  # other news are not those that it waits for
        await settle()
        assert rig.answers == []
        rig.show(COMING)  # known now, and without a copy
        await settle()
        assert rig.answers == []
        rig.show(AWAKE)
        await request
        assert rig.answers == ["a c-1"]
        assert len(rig.control.asked) == 1


async def test_routes_that_never_show_what_control_knows_end_the_wait() -> None:
    rig = Rig()
    rig.control.wanted = True
    async with no_task_is_left():
        request = rig.start("a")
        await settle()
        rig.pass_s(SYNC_S)
        await request
        assert rig.answers == ["a 400 Inference Component llm not found on endpoint llms."]


async def test_a_count_raised_by_hand_is_waited_for_though_the_routes_still_say_zero() -> None:
    rig = Rig(replace(ASLEEP, wakeable=Wakeable.NO_TARGET))
    rig.control.wanted = True
    async with no_task_is_left():
        request = rig.start("a")
        await settle()
        rig.show(replace(COMING, wakeable=Wakeable.NO_TARGET))
        await settle()
        rig.show(AWAKE)
        await request
        assert rig.answers == ["a c-1"]


async def test_routes_that_arrive_while_control_is_asked_are_looked_at() -> None:
    rig = Rig()
    rig.control.wanted = True
    async with no_task_is_left():
        request = rig.start("a")
        await asyncio.sleep(0)
        rig.show(AWAKE)
        await request
        assert rig.answers == ["a c-1"]


async def test_a_flood_of_names_that_do_not_exist_is_refused_and_leaves_nothing() -> None:
    rig = Rig(ASLEEP)
    async with no_task_is_left():
        names = [f"name-{number}" for number in range(500)]
        await asyncio.gather(*(rig.request(name, name=name) for name in names))
        assert len(rig.answers) == 500
        assert all(" 400 " in it for it in rig.answers)
        assert rig.pending_queue.num_held == 0
    assert rig.loads() == []


async def test_copies_that_refuse_connections_are_tried_again_and_the_request_is_not_lost() -> None:
    rig = Rig(AWAKE)
    rig.upstream.failures = {it.address: ConnectError("refused") for it in COPIES}
    async with no_task_is_left():
        requests = [rig.start(who) for who in "ab"]
        await settle()
        assert rig.answers == []
        requests.append(rig.start("c"))
        await settle()
        asked = len(rig.upstream.asked)
        rig.pass_s(REFUSED_S / 2)
        await settle()
        assert len(rig.upstream.asked) == asked
        rig.upstream.failures = {}
        rig.pass_s(REFUSED_S)
        await asyncio.gather(*requests)
        assert rig.who == ["a", "b", "c"]


async def test_copies_that_go_on_refusing_end_the_wait_with_the_reason() -> None:
    rig = Rig(AWAKE)
    rig.upstream.failures = {it.address: ConnectError("refused") for it in COPIES}
    async with no_task_is_left():
        request = rig.start("a")
        await settle()
        for _ in range(130):
            rig.pass_s(0.5)
            await settle()
        await request
        assert "whose copies take no connections. Try again." in rig.answers[0]


async def test_copies_that_vanish_again_before_the_request_went_leave_it_in_its_place() -> None:
    rig = Rig(COMING)
    async with no_task_is_left():
        requests = [rig.start(who) for who in "abc"]
        await settle()
        rig.show(AWAKE)
        rig.show(COMING)  # before any released request has run
        await settle()
        assert (rig.answers, rig.pending_queue.num_held) == ([], 3)
        rig.show(AWAKE)
        await asyncio.gather(*requests)
        assert rig.who == ["a", "b", "c"]


async def test_what_is_deleted_while_it_is_waited_for_is_not_found() -> None:
    rig = Rig(COMING)
    async with no_task_is_left():
        requests = [rig.start(who) for who in "ab"]
        await settle()
        rig.show()
        rig.pass_s(0.02)
        rig.pass_s(0.02)
        await asyncio.gather(*requests)
        assert all("llm not found on endpoint llms" in it for it in rig.answers)


async def test_a_component_turned_off_while_requests_wait_ends_the_wait() -> None:
    rig = Rig(COMING)
    async with no_task_is_left():
        request = rig.start("a")
        await settle()
        rig.show(replace(ASLEEP, wakeable=Wakeable.MAX_ZERO))
        await request
        assert "MaxCapacity" in rig.answers[0]


async def test_a_model_endpoint_waits_for_whichever_variant_comes_back() -> None:
    rig = Rig()
    down = EndpointRoute(
        scope=HERE,
        name="models",
        takes_components=False,
        variants=(variant("blue", 1.0, ()), variant("green", 3.0, ())),
        at_zero=AtZero.HOLD,
    )
    rig.publish(down)
    async with no_task_is_left():
        request = rig.start("a", name=None, endpoint="models")
        await settle()
        assert (rig.answers, rig.control.wakes) == ([], [])
        rig.publish(replace(down, variants=(variant("blue", 1.0), variant("green", 3.0, ()))))
        await request
        assert rig.answers == ["a c-1"]


async def test_a_request_that_must_not_wait_is_answered_at_once() -> None:
    rig = Rig(COMING)
    async with no_task_is_left():
        await rig.request("a", limit_s=0.0)
        assert rig.answers[0].startswith("a 503 No healthy instance")


def test_an_error_of_a_held_request_is_one_that_clients_try_again() -> None:
    error = NotServedError("no copy")
    assert (error.code, error.http_status) == ("ServiceUnavailable", 503)
