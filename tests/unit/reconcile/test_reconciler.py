"""The whole reconciler on its own: it watches, drives, publishes, and tidies up."""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.samples import (
    IMAGE,
    SCOPE,
    adapter,
    component,
    deployment,
    endpoint,
    get_shape,
    variant,
)
from tests.unit.reconcile.test_instances import INSTANCE

from hostelry.base.clock import Clock, SystemClock
from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import Instance
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.scope import Scope
from hostelry.fleet.fake import FakeFleet
from hostelry.reconcile.overview import overview
from hostelry.reconcile.reconciler import Reconciler, ReconcilerDeps
from hostelry.reconcile.record import OwnWrites, load_all
from hostelry.store.memory import MemoryStore
from hostelry.store.protocol import Change, Key, Record, RecordWrite
from hostelry.store.records import State, open_state

Scenario = Callable[[State, FakeFleet, Reconciler], Awaitable[None]]


def deps(fleet: FakeFleet, clock: Clock) -> ReconcilerDeps:
    return ReconcilerDeps(
        fleet=fleet,
        connect=fleet.connect,
        clock=clock,
        get_shape=get_shape,
        is_llm=lambda image: image == IMAGE,
    )


class HurriedClock(SystemClock):
    """Waits a fiftieth of a second where others wait longer."""

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(min(delay_s, 0.02))


async def beside(state: State, fleet: FakeFleet, scenario: Scenario) -> None:
    """Run `scenario` while a reconciler runs, which is stopped after it."""
    reconciler = Reconciler(state, deps(fleet, SystemClock()))
    running = asyncio.create_task(reconciler.run())
    try:
        async with asyncio.timeout(30):
            await scenario(state, fleet, reconciler)
    finally:
        running.cancel()
        await asyncio.wait({running})


def play(work: Callable[[State, FakeFleet], Awaitable[None]], **kept: int) -> None:
    """Run `work` with a new store, which is closed before the threads that wait for it end."""

    async def whole() -> None:
        store = MemoryStore(**kept)
        try:
            await work(open_state(store), FakeFleet())
        finally:
            store.close()

    asyncio.run(whole())


async def routes_until(reconciler: Reconciler, holds: Callable[[dict[str, int]], bool]) -> None:
    """Wait until the published routes, as copies by component, are as expected."""
    have: str | None = None
    while True:
        found = await reconciler.routes.newer_than(have, 30)
        assert found is not None
        have = found.version
        shown = {it.name: len(it.copies) for route in found.endpoints for it in route.components}
        if holds(shown):
            return


def test_from_a_written_record_to_published_routes_and_back() -> None:
    async def scenario(state: State, fleet: FakeFleet, reconciler: Reconciler) -> None:
        for record in (component(copies=2), adapter()):
            state.components.put(SCOPE, record.name, record, expect=None)
        state.endpoints.put(SCOPE, "ep", endpoint(deployment(variant())), expect=None)
        await routes_until(reconciler, lambda it: it == {"base": 2, "spanish": 2})
        (shown,) = overview(load_all(state), reconciler.instances.facts)
        assert [it["ready_copies"] for it in shown["components"]] == [2, 0]
        assert [it["base"] for it in shown["components"]] == [None, "base"]
        assert [it["problem"] for it in shown["instances"]] == [None]
        assert [it["phase"] for it in shown["copies"]] == ["ready", "ready"]
        for name in ("spanish", "base"):
            found = state.components.get(SCOPE, name)
            assert found is not None
            gone = replace(found.value, status=ComponentStatus.DELETING)
            with state.writing:
                found = state.components.get(SCOPE, name)
                assert found is not None
                state.components.put(SCOPE, name, gone, expect=found.version)
        await routes_until(reconciler, lambda it: it == {})

    play(lambda state, fleet: beside(state, fleet, scenario))


def test_instances_without_a_record_are_ended_and_the_others_adopted() -> None:
    async def first(state: State, fleet: FakeFleet, reconciler: Reconciler) -> None:
        state.endpoints.put(SCOPE, "ep", endpoint(deployment(variant())), expect=None)
        state.components.put(SCOPE, "base", component(), expect=None)
        await routes_until(reconciler, lambda it: it == {"base": 1})

    async def second(state: State, fleet: FakeFleet, reconciler: Reconciler) -> None:
        await routes_until(reconciler, lambda it: it == {"base": 1})
        while not fleet.terminated:  # noqa: ASYNC110 - bounded by the timeout around
            await asyncio.sleep(0)
        assert fleet.terminated == ["i-orphan"]
        assert fleet.num_copies_started == 1

    async def both(state: State, fleet: FakeFleet) -> None:
        await beside(state, fleet, first)
        await fleet.launch(orphan())
        await beside(state, fleet, second)

    play(both)


def orphan() -> Instance:
    return replace(INSTANCE, id="i-orphan")


def test_the_first_routes_of_a_restarted_control_are_never_empty() -> None:
    async def first(state: State, fleet: FakeFleet, reconciler: Reconciler) -> None:
        state.endpoints.put(SCOPE, "ep", endpoint(deployment(variant())), expect=None)
        state.components.put(SCOPE, "base", component(copies=3), expect=None)
        await routes_until(reconciler, lambda it: it == {"base": 3})

    async def second(state: State, fleet: FakeFleet, reconciler: Reconciler) -> None:
        found = await reconciler.routes.newer_than(None, 30)
        assert found is not None
        assert len(found.endpoints[0].components[0].copies) == 3

    async def both(state: State, fleet: FakeFleet) -> None:
        await beside(state, fleet, first)
        for instance_id in fleet.machines:
            fleet.kill_agent(instance_id)
        await beside(state, fleet, second)

    play(both)


def test_a_store_that_forgot_old_deletes_is_listed_again() -> None:
    async def scenario(state: State, fleet: FakeFleet, reconciler: Reconciler) -> None:
        await reconciler.routes.newer_than(None, 30)
        with state.writing:
            for number in range(20):
                name = f"ep-{number}"
                active = endpoint(deployment(variant()))
                put = state.endpoints.put(SCOPE, name, replace(active, name=name), expect=None)
                state.endpoints.delete(SCOPE, name, expect=put.version)
            state.endpoints.put(SCOPE, "ep", endpoint(deployment(variant())), expect=None)
        while True:
            found = state.endpoints.get(SCOPE, "ep")
            assert found is not None
            if found.value.status is EndpointStatus.IN_SERVICE:
                return
            await reconciler.queue.quiet()
            await asyncio.to_thread(state.store.wait, state.store.revision(), 0.05)

    play(lambda state, fleet: beside(state, fleet, scenario), tombstones_kept=2)


def test_an_image_rule_that_changes_changes_the_routes_with_no_record_written() -> None:
    async def scenario(state: State, fleet: FakeFleet) -> None:
        llm_images = {"another"}
        state.endpoints.put(SCOPE, "ep", endpoint(deployment(variant())), expect=None)
        state.components.put(SCOPE, "base", component(), expect=None)
        surroundings = deps(fleet, HurriedClock())
        reconciler = Reconciler(state, replace(surroundings, is_llm=llm_images.__contains__))
        running = asyncio.create_task(reconciler.run())
        try:
            async with asyncio.timeout(30):
                await routes_until(reconciler, lambda it: it == {"base": 1})
                before = reconciler.routes.snapshot
                assert before is not None
                llm_images.add(IMAGE)
                after = await reconciler.routes.newer_than(before.version, 30)
        finally:
            running.cancel()
            await asyncio.wait({running})
        assert after is not None
        shown = [it.endpoints[0].components[0].serves_llm for it in (before, after)]
        assert shown == [False, True]

    play(scenario)


KEY = Key(kind="copy", scope=Scope("111122223333", "us-west-2"), name="c-1")


def change(body: bytes | None) -> Change:
    record = None if body is None else Record(key=KEY, version=7, body=body)
    return Change(revision=7, key=KEY, record=record)


@cases(
    "written, seen, is_own",
    case("what a pass wrote", [b"1"], b"1", True),
    case("what it wrote last, of two writes", [b"1", b"2"], b"2", True),
    case("what a pass removed", [None], None, True),
    case("a call changed it afterwards", [b"1"], b"2", False),
    case("it was removed afterwards", [b"1"], None, False),
    case("it was created again", [None], b"1", False),
    case("a call wrote it", [], b"1", False),
)
def test_a_change_is_an_own_one_where_it_has_what_a_pass_wrote(
    written: list[bytes | None], seen: bytes | None, is_own: bool
) -> None:
    own = OwnWrites()
    for body in written:
        own.expect([RecordWrite(key=KEY, body=body, expect=1)])
    assert own.others([change(seen)]) == ([] if is_own else [change(seen)])
    assert own.others([change(seen)]) == [change(seen)], "each is known once"
