"""Shares of service: counters, lifts, and the largest difference of two backlogged tenants."""

import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engine.schedule import Drive, scheduler, weights

from hostelry.engine.scheduler.records import CounterHeap, FairOrder
from hostelry.engine.scheduler.tenants import TenantPolicies


@dataclass(eq=False)
class Item:
    counter: float
    number: int


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["add", "drop", "grow", "look"]))),
)
def test_the_first_of_a_heap_is_the_smallest_while_counters_grow(
    calls: list[tuple[int, str]],
) -> None:
    items = [Item(float(number % 3), number) for number in range(10)]
    heap: CounterHeap[Item] = CounterHeap()
    inside: set[Item] = set()
    for number, call in calls:
        item = items[number]
        if call == "add":
            heap.add(item)
            inside.add(item)
        elif call == "drop":
            heap.discard(item)
            inside.discard(item)
        elif call == "grow":
            item.counter += 1.5
        expected = min(inside, key=lambda it: (it.counter, it.number), default=None)
        first = heap.first()
        assert (first is None) == (expected is None)
        assert first is None or expected is None or first.counter == expected.counter
        assert len(heap) == len(inside)
        assert (item in heap) == (item in inside)


def test_a_heap_that_is_mostly_discarded_items_is_rebuilt() -> None:
    heap: CounterHeap[Item] = CounterHeap()
    stays = Item(0.0, 0)
    heap.add(stays)
    for number in range(1, 10_000):
        item = Item(5.0, number)
        heap.add(item)
        heap.discard(item)
    assert heap.first() is stays
    assert len(heap._entries) < 200


def test_flows_come_by_their_tenants_counter_first() -> None:
    order: FairOrder[Item, Item] = FairOrder()
    poor, rich = Item(1.0, 1), Item(2.0, 2)
    far, near, last = Item(9.0, 3), Item(8.0, 4), Item(0.0, 5)
    order.discard(rich, last)
    order.add(rich, last)
    order.add(poor, far)
    order.add(poor, near)
    taken = []
    for tenant in (poor, poor, rich):
        flow = order.first()
        assert flow is not None
        taken.append(flow)
        order.discard(tenant, flow)
    assert taken == [near, far, last]
    assert order.first() is None


def test_requests_of_one_tenant_start_in_the_order_they_came() -> None:
    drive = Drive(scheduler(num_pages=200))
    rng = random.Random(1)
    for number in range(100):
        drive.submit(f"r{number:03}", rng.randint(1, 30), rng.randint(1, 20))
    drive.finish()
    started = sorted(drive.done, key=lambda it: (drive.done[it].started_step, it))
    assert started == sorted(drive.done)


def flood(drive: Drive, step: int, shapes: dict[str, tuple[int, int]], *, fcfs: bool) -> None:
    """Keep ten requests of each tenant waiting. Without tenants: first come, first served."""
    for tenant, (prompt, output) in shapes.items():
        for copy in range(10 if step == 0 else 1):
            while sum(it.owner == tenant for it in drive.live.values()) < 24:
                drive.submit(
                    f"{tenant}-{step}-{copy}-{len(drive.live)}",
                    prompt,
                    output,
                    tenant="all" if fcfs else tenant,
                    owner=tenant,
                )


def spread(
    shapes: dict[str, tuple[int, int]],
    policies: TenantPolicies,
    *,
    fcfs: bool = False,
    num_pages: int = 400,
    num_steps: int = 1500,
) -> tuple[float, float]:
    """The largest gap in weighted service over any stretch of time, and its bound."""
    subject = scheduler(num_pages, policies, overtake_tokens=0.0, max_wait_s=1e6)
    drive = Drive(subject, check_every=97)
    first, second = shapes
    low = high = most_running = 0.0
    for step in range(num_steps):
        flood(drive, step, shapes, fcfs=fcfs)
        plan = drive.step()
        shares = [drive.service[it] / policies.of(it).weight for it in (first, second)]
        gap = shares[0] - shares[1]
        low, high = min(low, gap), max(high, gap)
        known = drive.done | drive.live
        running = [known[it.request_id].submission.max_tokens for it in plan.chunks]
        most_running = max(most_running, sum(running))
    longest = max(prompt for prompt, _ in shapes.values())
    weight = min(policies.of(it).weight for it in shapes)
    return high - low, 2 * max(longest, 2 * most_running) / weight


SHAPES = [
    pytest.param({"a": (4, 40), "b": (4, 40)}, {}, id="alike"),
    pytest.param({"a": (60, 1), "b": (1, 60)}, {}, id="long prompts against long answers"),
    pytest.param({"a": (1, 1), "b": (40, 40)}, {}, id="tiny requests against large ones"),
    pytest.param({"a": (8, 20), "b": (8, 20)}, {"a": 3.0}, id="three times the weight"),
    pytest.param({"a": (50, 10), "b": (2, 30)}, {"b": 0.25}, id="a quarter of the weight"),
]


@pytest.mark.parametrize(("shapes", "weight"), SHAPES)
@pytest.mark.parametrize("num_pages", [400, 40], ids=["ample pages", "preempting"])
def test_two_backlogged_tenants_stay_within_the_bound(
    shapes: dict[str, tuple[int, int]], weight: dict[str, float], num_pages: int
) -> None:
    gap, bound = spread(shapes, weights(**weight), num_pages=num_pages)
    assert gap <= bound


def test_first_come_first_served_breaks_the_bound_that_counters_keep() -> None:
    shapes = {"a": (1, 2), "b": (40, 40)}
    fair_gap, fair_bound = spread(shapes, TenantPolicies())
    fcfs_gap, fcfs_bound = spread(shapes, TenantPolicies(), fcfs=True)
    assert fair_gap <= fair_bound
    assert fcfs_gap > 5 * fcfs_bound


def test_a_flood_does_not_delay_a_steady_tenant() -> None:
    waits = {}
    for fcfs in (False, True):
        drive = Drive(scheduler(num_pages=400), check_every=50)
        for number in range(300):
            drive.submit(f"flood{number}", 8, 20, tenant="flood")
        for step in range(400):
            if step % 20 == 0:
                tenant = "flood" if fcfs else "steady"
                drive.submit(f"steady{step}", 8, 8, tenant=tenant)
            drive.step()
        started = [
            (drive.num_steps if it.started_step is None else it.started_step) - it.submitted_step
            for name, it in {**drive.live, **drive.done}.items()
            if name.startswith("steady")
        ]
        waits[fcfs] = max(started)
    assert waits[False] <= 20  # at most one running request of the flood has to end
    assert waits[True] > 300


def test_inside_a_tenant_adapters_share_equally() -> None:
    drive = Drive(scheduler(num_pages=400, overtake_tokens=0.0), check_every=50)
    for number in range(200):
        drive.submit(f"hot{number}", 8, 20, adapter="hot")
    drive.steps(20)
    drive.submit("rare", 8, 20, adapter="rare")
    drive.steps(30)
    assert drive.done.get("rare", drive.live.get("rare")) is not None
    rare = drive.done.get("rare") or drive.live["rare"]
    assert rare.started_step is not None
    assert rare.started_step - rare.submitted_step <= 25


def test_idle_time_is_not_saved_up() -> None:
    drive = Drive(scheduler(num_pages=400, overtake_tokens=0.0), check_every=50)
    drive.submit("early", 4, 4, tenant="sleeper")
    for number in range(400):
        drive.submit(f"busy{number}", 4, 20, tenant="busy")
    drive.steps(300)
    before = dict(drive.service)
    for number in range(200):
        drive.submit(f"late{number}", 4, 20, tenant="sleeper")
    drive.steps(100)
    got = {name: drive.service[name] - before[name] for name in before}
    assert got["sleeper"] < 1.5 * got["busy"]
    assert got["busy"] < 1.5 * got["sleeper"]


def test_a_newcomer_to_an_empty_queue_starts_level_with_the_last_one_served() -> None:
    drive = Drive(scheduler())
    for number in range(20):
        drive.submit(f"r{number}", 4, 4, tenant="old")
    drive.finish()
    drive.submit("new", 4, 4, tenant="new")
    assert drive.scheduler.counter("new") == drive.scheduler.counter("old") > 0
    assert drive.scheduler.counter("nobody") == 0


def test_a_preempted_request_is_not_charged_twice() -> None:
    drive = Drive(scheduler(num_pages=12))
    for number in range(6):
        drive.submit(f"r{number}", 8, 20)
    drive.finish()
    assert drive.counts["preempted"] > 0
    assert drive.scheduler.counter("t") == 6 * (8 + 2 * 20)


def test_a_cached_prefix_is_not_charged() -> None:
    drive = Drive(scheduler())
    keys = tuple(f"page{number}".encode() for number in range(5))
    drive.submit("first", 21, 1, keys=keys)
    drive.finish()
    before = drive.scheduler.counter("t")
    drive.submit("second", 21, 1, keys=keys)
    drive.finish()
    assert drive.scheduler.counter("t") - before == 1 + 2


def test_the_load_of_an_adapter_may_be_charged() -> None:
    drive = Drive(scheduler(load_charge_tokens=10.0))
    drive.submit("r", 4, 1, adapter="a", adapter_pages=3)
    drive.finish()
    assert drive.scheduler.counter("t") == 4 + 2 + 3 * 10


def test_thousands_of_tenants_and_adapters_that_came_and_went_are_forgotten() -> None:
    subject = scheduler()
    drive = Drive(subject, check_every=1000)
    for number in range(3000):
        drive.submit(f"r{number}", 1, 1, tenant=f"t{number}")
        drive.step()
    for number in range(300):
        drive.submit(f"s{number}", 1, 1, adapter=f"a{number}", adapter_pages=1)
        drive.finish()
    drive.check_conserved()
    queue = subject._fair_queue
    assert len(queue._tenants) < 2100
    assert len(queue.tenant("t", drive.now).flows) < 130


SHAPE = st.tuples(st.integers(1, 60), st.integers(1, 40))


@settings(deadline=None, max_examples=25)
@given(
    one=SHAPE, two=SHAPE, weight=st.sampled_from([0.25, 1.0, 4.0]), num_pages=st.integers(26, 200)
)
def test_the_bound_holds_for_any_two_shapes_of_requests(
    one: tuple[int, int], two: tuple[int, int], weight: float, num_pages: int
) -> None:
    shapes = {"a": one, "b": two}
    gap, bound = spread(shapes, weights(a=weight), num_pages=num_pages, num_steps=200)
    assert gap <= bound
