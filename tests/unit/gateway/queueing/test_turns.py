"""Requests that take turns: only at a busy destination of several tenants, and none is lost."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.dataplane.routes_sample import COPIES, HERE, component

from hostelry.base.errors import ServiceError
from hostelry.dataplane.balancing.outstanding import Outstanding
from hostelry.dataplane.metering.meter import Meter
from hostelry.dataplane.route_table import Destination, RouteTable
from hostelry.dataplane.shared.count_table import CountTable
from hostelry.dataplane.shared.tenant_tags import NO_TAGS, SharedTags, TenantTags
from hostelry.domain.routes import EndpointRoute, RouteSnapshot
from hostelry.gateway.queueing.request_queues import QueueLimits
from hostelry.gateway.queueing.turns import LINGER_S, TurnQueue
from hostelry.quotas.matching import NO_STANDING


def destination() -> Destination:
    route = component("trees", COPIES[:1])
    endpoint = EndpointRoute(scope=HERE, name="e", takes_components=True, components=(route,))
    found = RouteTable(RouteSnapshot(version="v", endpoints=(endpoint,))).component(HERE, "trees")
    assert found is not None
    return found


TREES = destination()


class Rig:
    """A worker's turns at one destination, whose copy has one place (and so two requests)."""

    def __init__(
        self, counts: Outstanding | None = None, tags: TenantTags = NO_TAGS, **limits: Any
    ) -> None:
        self.now_s = 1000.0
        self.counts = counts or Outstanding()
        self.queue = TurnQueue(self.counts, tags, 1, QueueLimits(**limits), lambda: self.now_s)
        self.queue.learn(COPIES[0].id, "1")
        self.meter = Meter(lambda: self.now_s, lambda: int(self.now_s * 1e9))
        self.on_copy: list[str] = []
        self.answered: list[str] = []
        self._answers: dict[str, asyncio.Event] = {}

    async def request(self, who: str, limit_s: float = 60.0, num_bytes: int = 10) -> None:
        """One request of tenant `who[0]`, from its arrival to its answer."""
        turn = self.queue.begin(who[0], NO_STANDING, num_bytes)
        assert turn is not None
        measured = self.meter.begin(TREES.key)
        try:
            await turn.take(TREES, measured, limit_s)
            give_back = self.counts.reserve(COPIES[0].id)
            self.on_copy.append(who)
            self._answers[who] = asyncio.Event()
            try:
                await self._answers[who].wait()
            finally:
                give_back()
                self.on_copy.remove(who)
            self.answered.append(who)
        except ServiceError as error:
            self.answered.append(f"{who} {error.http_status} {error.message}")
        finally:
            turn.end()
            measured.end()

    def start(self, who: str, **more: Any) -> "asyncio.Task[None]":
        return asyncio.get_running_loop().create_task(self.request(who, **more))

    async def answer(self, who: str) -> None:
        self.now_s += 0.1
        self._answers[who].set()
        await settle()

    async def finish(self) -> None:
        """Answer all requests, and check that nothing is left."""
        while self.on_copy:
            await self.answer(self.on_copy[0])
        for busy in self.queue._busy.values():
            assert (busy.turns.num_waiting, busy.turns.num_sent) == (0, 0)
            assert (busy.num_bytes, busy.num_released) == (0, 0)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_one_tenant_gets_everything_at_once() -> None:
    rig = Rig()
    for number in range(20):
        rig.start(f"a{number}")
    await settle()
    assert len(rig.on_copy) == 20
    await rig.finish()


async def test_two_tenants_take_turns() -> None:
    rig = Rig()
    rig.start("b0")
    await settle()
    for number in range(6):
        rig.start(f"a{number}")
    await settle()
    rig.start("b1")
    rig.start("b2")
    await settle()
    assert rig.on_copy == ["b0", "a0"]
    order = []
    while rig.on_copy:
        order.append(rig.on_copy[0])
        await rig.answer(rig.on_copy[0])
    assert order == ["b0", "a0", "a1", "b1", "a2", "b2", "a3", "a4", "a5"]
    await rig.finish()


async def test_a_tenant_alone_takes_no_turns_again_after_a_while() -> None:
    rig = Rig()
    rig.start("b0")
    await settle()
    await rig.answer("b0")
    for number in range(4):
        rig.start(f"a{number}")
    await settle()
    assert len(rig.on_copy) == 2
    rig.now_s += LINGER_S
    rig.start("a9")
    await settle()
    await rig.answer("a0")
    assert len(rig.on_copy) == 4, "all that waited"
    await rig.finish()


async def test_copies_that_report_no_places_get_each_request_at_once() -> None:
    rig = Rig()
    rig.queue = TurnQueue(rig.counts, NO_TAGS, 1, QueueLimits(), lambda: rig.now_s)
    assert rig.queue.begin("a", NO_STANDING, 1) is None
    for text in ("", "many", "-1", "99999", "1.5"):
        rig.queue.learn(COPIES[0].id, text)
    assert rig.queue.begin("a", NO_STANDING, 1) is None
    rig.queue.learn("another", "4")
    assert not rig.queue.is_fair(TREES)
    assert not rig.queue.is_fair(replace(TREES, copies=()))


async def test_a_client_that_leaves_loses_its_turn_to_the_next() -> None:
    rig = Rig()
    rig.start("b0")
    await settle()
    tasks = [rig.start(f"a{number}") for number in range(4)]
    await settle()
    tasks[1].cancel()  # it waits
    await settle()
    answering = rig.answer("b0")
    rig._answers["b0"].set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    tasks[2].cancel()  # it may have got its turn a moment ago
    await answering
    assert rig.on_copy == ["a0", "a3"]
    await rig.finish()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_request_waits_no_longer_than_its_time_limit() -> None:
    rig = Rig()
    rig.start("b0")
    await settle()
    rig.start("a0")
    late = rig.start("a1", limit_s=0.0)
    await late
    assert rig.answered == [
        "a1 503 The request waited 0 s for its turn at inference component trees, which is busy. "
        "Try again."
    ]
    await rig.finish()


@cases(
    "limits, num_bytes",
    case("requests", {"max_requests_each": 4}, 10),
    case("bytes", {"max_bytes": 400}, 100),
)
async def test_a_flood_cannot_fill_the_queue_for_others(
    limits: dict[str, Any], num_bytes: int
) -> None:
    rig = Rig(**limits)
    rig.start("b0")
    await settle()
    for number in range(7):
        rig.start(f"a{number}", num_bytes=num_bytes)
    await settle()
    refused = [it.split(" ")[0] for it in rig.answered]
    assert refused == ["a5", "a6"], "the newest of the tenant with the most"
    assert "429" in rig.answered[0]
    assert "4 requests wait for it, most of them of this caller" in rig.answered[0]
    for number in (1, 2):
        rig.start(f"b{number}", num_bytes=num_bytes)
    await settle()
    assert [it.split(" ")[0] for it in rig.answered[2:]] == ["a4", "a3"]
    await rig.finish()
    assert set(rig.answered) >= {"b0", "b1", "b2", "a0", "a1", "a2"}


async def test_tenants_of_other_workers_count(tmp_path: Any) -> None:
    counts = Outstanding()
    tables = [CountTable(tmp_path / "tenants", 2, 8) for _ in range(2)]
    clock = 5000.0
    one, two = (
        Rig(counts, SharedTags(table, number, lambda: clock)) for number, table in enumerate(tables)
    )
    for rig in (one, two):
        rig.queue._num_workers = 2
    for number in range(8):
        one.start(f"a{number}")
    await settle()
    assert len(one.on_copy) == 8, "no other tenant is known yet"
    two.start("b0")
    await settle()
    assert two.on_copy == ["b0"], "each worker has a part"
    one.start("a8")
    await settle()
    assert len(one.on_copy) == 8
    for _ in range(8):
        await one.answer(one.on_copy[0])
    assert one.on_copy == ["a8"]
    await one.finish()
    await two.finish()
    clock += LINGER_S + 1
    for number in range(3):
        two.start(f"c{number}")
    await settle()
    two.now_s += 2 * LINGER_S
    two.start("c9")
    await settle()
    await two.finish()


def test_a_tenant_is_seen_by_other_workers_for_a_while(tmp_path: Any) -> None:
    now_s = 100.0
    table = CountTable(tmp_path / "tenants", 2, 1)
    one, two = (SharedTags(table, number, lambda: now_s) for number in range(2))
    key = TREES.key
    one.note(key, 7)
    assert [two.has_other(key, tag, 60.0) for tag in (7, 8)] == [False, True]
    assert not one.has_other(key, 8, 60.0), "its own column does not count"
    now_s = 200.0
    assert not two.has_other(key, 8, 60.0)
    other = replace(key, endpoint_name="without a row")
    two.note(other, 7)
    assert not one.has_other(other, 8, 60.0)


@pytest.mark.parametrize("text", ["4", "0016"])
def test_places_are_learned_once(text: str) -> None:
    rig = Rig()
    rig.queue.learn("c-2", text)
    rig.queue.learn("c-2", "9")
    assert rig.queue._places["c-2"] == int(text)
