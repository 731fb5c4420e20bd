"""Requests without a copy: held, let go, given up; with routes and a clock moved by hand."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.gateway.routes_sample import COPIES, HERE, component, variant

from hostelry.aws.runtime import Invocation
from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.domain.at_zero import AtZero, Wakeable
from hostelry.domain.load import LoadKey, SecondLoad, Wake
from hostelry.domain.routes import ComponentRoute, EndpointRoute, RouteSnapshot
from hostelry.gateway.copies import Copies, Placed
from hostelry.gateway.destination import NO_CAPACITY, find_destination
from hostelry.gateway.fake import FakeUpstream
from hostelry.gateway.holding import REFUSED_S, SYNC_S, Holding, NotServedError
from hostelry.gateway.meter import Measurement, Meter
from hostelry.gateway.outstanding import Outstanding
from hostelry.gateway.reply import ConnectError
from hostelry.gateway.route_table import Destination
from hostelry.gateway.routes import FixedRoutes
from hostelry.gateway.upstream import Timeouts
from hostelry.gateway.waiting import HoldLimits
from hostelry.routing.letting_go import WINDOW

LIMIT_S = 60.0
NOTHING = EndpointRoute(scope=HERE, name="llms", takes_components=True)
ASLEEP = replace(component("llm", ()), at_zero=AtZero.HOLD, wakeable=Wakeable.YES, desired_copies=0)
COMING = replace(ASLEEP, desired_copies=2, waiting_for="no instance has room")
AWAKE = replace(ASLEEP, desired_copies=2, copies=COPIES)


class FakeControlLine:
    """Notes what it is told; knows what it is said to know."""

    def __init__(self) -> None:
        self.wakes: list[Wake] = []
        self.asked: list[LoadKey] = []
        self.wanted = False

    async def wake(self, wake: Wake) -> None:
        self.wakes.append(wake)

    async def is_wanted(self, key: LoadKey) -> bool:
        self.asked.append(key)
        await asyncio.sleep(0)
        return self.wanted


class Rig:
    """A door's holding with routes that a test changes and a clock that it moves."""

    def __init__(self, *components: ComponentRoute, **limits: Any) -> None:
        self.now_s = 100.0
        self.routes = FixedRoutes()
        self.control = FakeControlLine()
        self.counts = Outstanding()
        self.upstream = FakeUpstream()
        self.copies = Copies(self.upstream, self.counts, lambda: 0.0, lambda: self.now_s)
        self.wall = ManualClock()
        self.meter = Meter(self.wall.now, lambda: int(self.now_s * 1e9))
        self.answers: list[str] = []
        self.placed: list[Placed] = []
        self.holding = Holding(
            self.routes,
            self.control,
            self.counts,
            HoldLimits(**limits),
            self.wall,
            lambda: self.now_s,
            self.meter,
        )
        self.show(*components)

    def show(self, *components: ComponentRoute) -> None:
        """Routes with those components come."""
        self.publish(replace(NOTHING, components=components))

    def publish(self, *endpoints: EndpointRoute) -> None:
        self.routes.replace(RouteSnapshot(version="v", endpoints=endpoints))

    async def request(
        self,
        who: str,
        name: str | None = "llm",
        num_bytes: int = 10,
        limit_s: float = LIMIT_S,
        endpoint: str = "llms",
    ) -> None:
        """One request from its arrival to its answer."""  # fmt: skip
        asked = Invocation(endpoint_name=endpoint, stream=False, inference_component_name=name)

        def find() -> Destination:
            return find_destination(self.routes.table, HERE, asked, 0.0)

        async def send(destination: Destination, measured: Measurement) -> Placed:
            return await self.copies.send(
                destination.copies, destination.routing, (b"head", b""), Timeouts(total_s=1)
            )

        try:
            admitted = await self.holding.place(find, send, num_bytes, limit_s)
        except ServiceError as error:
            self.answers.append(f"{who} {error.http_status} {error.message}")
        except asyncio.CancelledError:
            self.answers.append(f"{who} left")
            raise
        else:
            self.answers.append(f"{who} {admitted.placed.copy.id}")
            self.placed.append(admitted.placed)
            admitted.measured.end()

    def start(self, who: str, **changes: Any) -> "asyncio.Task[None]":
        return asyncio.get_running_loop().create_task(self.request(who, **changes))

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        self.wall.advance(seconds)
        self.holding.tick()

    def loads(self) -> list[SecondLoad]:
        return [load for closed in self.meter.close_now() for load in closed.loads]

    @property
    def who(self) -> list[str]:
        return [it.split()[0] for it in self.answers]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


Scenario = Callable[[], Coroutine[Any, Any, None]]


def play(scenario: Scenario) -> None:
    async def whole() -> None:
        await scenario()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks were left: {left}"

    asyncio.run(whole())


def test_a_request_that_wakes_a_component_is_answered_once_there_is_a_copy() -> None:
    rig = Rig(ASLEEP)

    async def scenario() -> None:
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
        assert rig.holding.num_held == 0

    play(scenario)
    (load,) = rig.loads()
    assert (load.key.component_name, load.arrivals, load.delayed, load.no_capacity) == (
        "llm", 1, 1, 0,
    )  # fmt: skip


def test_what_waits_is_told_again_until_control_has_raised_it() -> None:
    rig = Rig(ASLEEP)

    async def scenario() -> None:
        requests = [rig.start(str(number)) for number in range(5)]
        await settle()
        rig.pass_s(0.2)
        for _ in range(30):  # ten seconds in which control is away
            rig.pass_s(0.5)
            await settle()
        assert len({round(it.at, 3) for it in rig.control.wakes}) == 1  # since when they wait
        told = [it.held for it in rig.control.wakes]
        assert told[:2] == [1, 5]
        assert set(told[2:]) == {5}
        assert 14 <= len(told) <= 18
        rig.show(COMING)  # it has heard
        rig.pass_s(1.5)
        rig.pass_s(1.5)
        await settle()
        assert len(rig.control.wakes) == len(told)
        requests.append(rig.start("more"))
        await settle()
        rig.pass_s(1.5)
        await settle()
        assert rig.control.wakes[-1].held == 6
        rig.show(AWAKE)
        await asyncio.gather(*requests)

    play(scenario)


def test_they_go_in_the_order_of_their_coming_and_no_more_than_copies_take() -> None:
    rig = Rig(ASLEEP)
    names = [f"{number:03}" for number in range(5 * WINDOW)]

    async def scenario() -> None:
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
        assert rig.who == names[: 2 * WINDOW + 2]  # one a copy: each may have a queue of its own
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

    play(scenario)


def test_a_second_copy_that_comes_a_moment_later_gets_its_share() -> None:
    rig = Rig(ASLEEP)

    async def scenario() -> None:
        requests = [rig.start(f"{number}") for number in range(2 * WINDOW)]
        await settle()
        rig.show(replace(AWAKE, copies=COPIES[:1]))
        await settle()
        rig.show(AWAKE)
        await settle()
        assert [rig.counts.of(it.id) for it in COPIES] == [WINDOW, WINDOW]
        await asyncio.gather(*requests)

    play(scenario)


def test_when_its_time_is_over_it_is_told_what_it_waited_for() -> None:
    rig = Rig(ASLEEP)

    async def scenario() -> None:
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

    play(scenario)
    (load,) = [it for it in rig.loads() if it.no_capacity]
    assert load.no_capacity == 1


def test_the_setting_limits_the_wait_where_it_is_shorter() -> None:
    rig = Rig(COMING, limit_s=5.0)

    async def scenario() -> None:
        request = rig.start("a", limit_s=480.0)
        await settle()
        rig.pass_s(5.0)
        await request
        assert rig.answers[0].startswith("a 503 The request waited 5.0 s")

    play(scenario)


def test_a_full_line_is_told_at_once_and_the_others_wait_on() -> None:
    rig = Rig(ASLEEP, max_requests_each=2)

    async def scenario() -> None:
        requests = [rig.start(who) for who in "abc"]
        await settle()
        assert rig.answers == [
            "c 503 No copy of inference component llm can take the request now, and it cannot "
            "wait: 2 requests wait for it already, and no more may."
        ]
        rig.show(AWAKE)
        await asyncio.gather(*requests)
        assert rig.who == ["c", "a", "b"]

    play(scenario)


def test_a_client_that_leaves_gives_its_place_up_at_once() -> None:
    rig = Rig(ASLEEP, max_requests_each=2)

    async def scenario() -> None:
        requests = [rig.start(who) for who in "ab"]
        await settle()
        requests[0].cancel()
        await settle()
        assert rig.holding.num_held == 1
        requests.append(rig.start("c"))
        await settle()
        requests[2].cancel()
        rig.show(AWAKE)  # in the same moment
        await asyncio.gather(*requests, return_exceptions=True)
        assert rig.who == ["a", "c", "b"]
        assert rig.holding.num_held == 0

    play(scenario)
    assert rig.upstream.asked == [COPIES[0].address]


@pytest.mark.parametrize(
    ("route", "status", "says"),
    [
        pytest.param(replace(ASLEEP, at_zero=AtZero.COMPAT), 400, NO_CAPACITY,
                     id="compat: AWS's error, although it could be woken"),
        pytest.param(replace(COMING, at_zero=AtZero.COMPAT), 503, "try again",
                     id="compat: copies are coming"),
        pytest.param(replace(ASLEEP, wakeable=Wakeable.NO_TARGET), 400, "no scalable target",
                     id="off on purpose: nothing may raise it"),
        pytest.param(replace(ASLEEP, wakeable=Wakeable.MAX_ZERO), 400, "MaxCapacity",
                     id="off by schedule"),
        pytest.param(replace(ASLEEP, wakeable=Wakeable.SUSPENDED), 400,
                     "DynamicScalingOutSuspended", id="scaling out is suspended"),
    ],
)  # fmt: skip
def test_who_is_not_held_is_told_at_once(route: ComponentRoute, status: int, says: str) -> None:
    rig = Rig(route)

    async def scenario() -> None:
        await rig.request("a")
        assert rig.answers[0].startswith(f"a {status} ")
        assert says in rig.answers[0]
        assert rig.control.wakes == []
        assert (NO_CAPACITY in rig.answers[0]) is (status == 400)

    play(scenario)
    (load,) = rig.loads()
    assert (load.arrivals, load.no_capacity, load.delayed) == (1, 1, 0)


def test_compat_waits_for_nobody_although_others_of_the_endpoint_are_held() -> None:
    rig = Rig(ASLEEP, replace(ASLEEP, name="plain", at_zero=AtZero.COMPAT))

    async def scenario() -> None:
        held = rig.start("held")
        await rig.request("plain", name="plain")
        assert NO_CAPACITY in rig.answers[0]
        rig.show(AWAKE)
        await held

    play(scenario)


def test_what_control_knows_is_waited_for_until_the_routes_have_it() -> None:
    rig = Rig()
    rig.control.wanted = True

    async def scenario() -> None:
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

    play(scenario)


def test_routes_that_never_show_what_control_knows_end_the_wait() -> None:
    rig = Rig()
    rig.control.wanted = True

    async def scenario() -> None:
        request = rig.start("a")
        await settle()
        rig.pass_s(SYNC_S)
        await request
        assert rig.answers == ["a 400 Inference Component llm not found on endpoint llms."]

    play(scenario)


def test_a_count_raised_by_hand_is_waited_for_though_the_routes_still_say_zero() -> None:
    rig = Rig(replace(ASLEEP, wakeable=Wakeable.NO_TARGET))
    rig.control.wanted = True

    async def scenario() -> None:
        request = rig.start("a")
        await settle()
        rig.show(replace(COMING, wakeable=Wakeable.NO_TARGET))
        await settle()
        rig.show(AWAKE)
        await request
        assert rig.answers == ["a c-1"]

    play(scenario)


def test_routes_that_arrive_while_control_is_asked_are_looked_at() -> None:
    rig = Rig()
    rig.control.wanted = True

    async def scenario() -> None:
        request = rig.start("a")
        await asyncio.sleep(0)
        rig.show(AWAKE)
        await request
        assert rig.answers == ["a c-1"]

    play(scenario)


def test_a_flood_of_names_that_do_not_exist_is_refused_and_leaves_nothing() -> None:
    rig = Rig(ASLEEP)

    async def scenario() -> None:
        names = [f"name-{number}" for number in range(500)]
        await asyncio.gather(*(rig.request(name, name=name) for name in names))
        assert len(rig.answers) == 500
        assert all(" 400 " in it for it in rig.answers)
        assert rig.holding.num_held == 0

    play(scenario)
    assert rig.loads() == []


def test_copies_that_refuse_connections_are_tried_again_and_the_request_is_not_lost() -> None:
    rig = Rig(AWAKE)
    rig.upstream.failures = {it.address: ConnectError("refused") for it in COPIES}

    async def scenario() -> None:
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

    play(scenario)


def test_copies_that_go_on_refusing_end_the_wait_with_the_reason() -> None:
    rig = Rig(AWAKE)
    rig.upstream.failures = {it.address: ConnectError("refused") for it in COPIES}

    async def scenario() -> None:
        request = rig.start("a")
        await settle()
        for _ in range(130):
            rig.pass_s(0.5)
            await settle()
        await request
        assert "whose copies take no connections. Try again." in rig.answers[0]

    play(scenario)


def test_copies_that_vanish_again_before_the_request_went_leave_it_in_its_place() -> None:
    rig = Rig(COMING)

    async def scenario() -> None:
        requests = [rig.start(who) for who in "abc"]
        await settle()
        rig.show(AWAKE)
        rig.show(COMING)  # before anyone who was let go has run
        await settle()
        assert (rig.answers, rig.holding.num_held) == ([], 3)
        rig.show(AWAKE)
        await asyncio.gather(*requests)
        assert rig.who == ["a", "b", "c"]

    play(scenario)


def test_what_is_deleted_while_it_is_waited_for_is_not_found() -> None:
    rig = Rig(COMING)

    async def scenario() -> None:
        requests = [rig.start(who) for who in "ab"]
        await settle()
        rig.show()
        rig.pass_s(0.02)
        rig.pass_s(0.02)
        await asyncio.gather(*requests)
        assert all("llm not found on endpoint llms" in it for it in rig.answers)

    play(scenario)


def test_what_is_put_to_sleep_for_good_while_it_is_waited_for_says_so() -> None:
    rig = Rig(COMING)

    async def scenario() -> None:
        request = rig.start("a")
        await settle()
        rig.show(replace(ASLEEP, wakeable=Wakeable.MAX_ZERO))
        await request
        assert "MaxCapacity" in rig.answers[0]

    play(scenario)


def test_a_model_endpoint_waits_for_whichever_variant_comes_back() -> None:
    rig = Rig()
    down = EndpointRoute(
        scope=HERE,
        name="models",
        takes_components=False,
        variants=(variant("blue", 1.0, ()), variant("green", 3.0, ())),
        at_zero=AtZero.HOLD,
    )
    rig.publish(down)

    async def scenario() -> None:
        request = rig.start("a", name=None, endpoint="models")
        await settle()
        assert (rig.answers, rig.control.wakes) == ([], [])
        rig.publish(replace(down, variants=(variant("blue", 1.0), variant("green", 3.0, ()))))
        await request
        assert rig.answers == ["a c-1"]

    play(scenario)


def test_a_request_that_must_not_wait_is_answered_at_once() -> None:
    rig = Rig(COMING)

    async def scenario() -> None:
        await rig.request("a", limit_s=0.0)
        assert rig.answers[0].startswith("a 503 No healthy instance")

    play(scenario)


def test_an_error_of_a_held_request_is_one_that_clients_try_again() -> None:
    error = NotServedError("no copy")
    assert (error.code, error.http_status) == ("ServiceUnavailable", 503)
