"""Driver of one instance: launch, apply, observe, and end it in any state."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Sequence

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.samples import KEY, NOW, SCOPE, SHAPES, container

from hostelry.base.clock import ManualClock
from hostelry.base.errors import CapacityError, InstanceLostError, RetryableError, TerminalError
from hostelry.domain.copy import CopyPhase, CopySpec, Instance, InstanceState
from hostelry.fleet.fake import FakeFleet
from hostelry.fleet.protocol import Agent, Observation, RunningInstance
from hostelry.reconcile.instances import InstanceDriver, Instances
from hostelry.reconcile.plan.endpoint_state import GroupKey, is_lost

INSTANCE = Instance(
    id="i-1",
    scope=SCOPE,
    endpoint_name="ep",
    variant_name="AllTraffic",
    generation=1,
    instance_type="ml.big",
    shape=SHAPES["ml.big"],
    state=InstanceState.LAUNCHING,
    created_at=NOW,
)


def copy_spec(copy_id: str) -> CopySpec:
    return CopySpec(
        id=copy_id,
        owner="component/base",
        container=container(),
        requirements=None,
        download_timeout_s=60,
        startup_timeout_s=60,
    )


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not happen")


def drive(scenario: Callable[[FakeFleet, InstanceDriver], Awaitable[None]]) -> list[str]:
    """Run a driver during `scenario`, and return the ids that it reported as changed."""
    changed: list[str] = []

    async def main() -> None:
        fleet = FakeFleet()
        driver = InstanceDriver(INSTANCE, fleet, fleet.connect, ManualClock(), changed.append)
        running = asyncio.create_task(driver.run())
        try:
            await scenario(fleet, driver)
        finally:
            running.cancel()
            await asyncio.wait({running})

    asyncio.run(main())
    return changed


def phases(driver: InstanceDriver) -> dict[str, CopyPhase]:
    seen = driver.facts.observation
    return {} if seen is None else {it.id: it.phase for it in seen.copies}


def test_it_launches_applies_and_observes() -> None:
    async def scenario(fleet: FakeFleet, driver: InstanceDriver) -> None:
        driver.set_desired([copy_spec("c-1")])
        await until(lambda: phases(driver) == {"c-1": CopyPhase.READY})
        await driver.observed_once.wait()
        assert driver.facts.applied == {"c-1"}
        assert driver.facts.address == fleet.machines["i-1"].address
        applies = fleet.machines["i-1"].num_applies
        driver.set_desired([copy_spec("c-1")])
        driver.set_desired([copy_spec("c-1"), copy_spec("c-2")])
        await until(lambda: set(phases(driver)) == {"c-1", "c-2"})
        assert fleet.machines["i-1"].num_applies == applies + 1, (
            "equal desired copies are not applied twice"
        )

    assert set(drive(scenario)) == {"i-1"}


def test_news_of_a_copy_arrives_without_asking() -> None:
    async def scenario(fleet: FakeFleet, driver: InstanceDriver) -> None:
        driver.set_desired([copy_spec("c-1")])
        await until(lambda: phases(driver) == {"c-1": CopyPhase.READY})
        fleet.crash_copy("c-1", "out of memory")
        await until(lambda: phases(driver) == {"c-1": CopyPhase.FAILED})

    drive(scenario)


async def test_the_use_of_cpus_is_refreshed_without_waking_the_reconciler() -> None:
    class Busy:
        """An agent whose copies use more of the CPU at each look, and change in nothing else."""

        def __init__(self, agent: Agent) -> None:
            self._agent = agent
            self._num_looks = 0

        async def apply(self, copies: Sequence[CopySpec]) -> None:
            await self._agent.apply(copies)

        async def observe(self, have: str | None = None, timeout_s: float = 0.0) -> Observation:
            self._num_looks += 1
            seen = await self._agent.observe(None, timeout_s)
            used = [dataclasses.replace(it, cpu_s=float(self._num_looks)) for it in seen.copies]
            return replace(seen, copies=tuple(used))

        async def log_tail(self, copy_id: str, max_lines: int = 100) -> str:
            return await self._agent.log_tail(copy_id, max_lines)

    fleet, changed = FakeFleet(), list[str]()
    driver = InstanceDriver(
        INSTANCE, fleet, lambda it: Busy(fleet.connect(it)), ManualClock(), changed.append
    )
    driver.set_desired([copy_spec("c-1")])
    while phases(driver) != {"c-1": CopyPhase.READY}:
        await driver.step(5.0)
    before, num_changes = driver.facts.observation, len(changed)
    await driver.step(5.0)
    assert before is not None
    assert driver.facts.observation is not None
    assert driver.facts.observation.copies[0].cpu_s == before.copies[0].cpu_s + 1
    assert len(changed) == num_changes


async def test_copies_that_change_all_the_time_are_observed_after_each_change() -> None:
    class Restless:
        """An agent that other copies are desired of while it answers."""

        def __init__(self, agent: Agent) -> None:
            self._agent = agent

        async def apply(self, copies: Sequence[CopySpec]) -> None:
            await self._agent.apply(copies)
            driver.set_desired([*copies, copy_spec(f"c-{len(copies) + 1}")])

        async def observe(self, have: str | None = None, timeout_s: float = 0.0) -> Observation:
            for _ in range(10):
                await asyncio.sleep(0)
            return await self._agent.observe(have, timeout_s)

        async def log_tail(self, copy_id: str, max_lines: int = 100) -> str:
            return await self._agent.log_tail(copy_id, max_lines)

    fleet, changed = FakeFleet(), list[str]()
    driver = InstanceDriver(
        INSTANCE,
        fleet,
        lambda address: Restless(fleet.connect(address)),
        ManualClock(),
        changed.append,
    )
    driver.set_desired([copy_spec("c-1")])
    for number in range(1, 4):
        await driver.step(5.0)
        assert len(phases(driver)) == number


def test_a_dead_agent_is_noticed_at_once_and_restarted_with_its_desired_copies() -> None:
    async def scenario(fleet: FakeFleet, driver: InstanceDriver) -> None:
        driver.set_desired([copy_spec("c-1")])
        await until(lambda: phases(driver) == {"c-1": CopyPhase.READY})
        address = driver.facts.address
        fleet.kill_agent("i-1")
        await until(lambda: driver.facts.address != address)
        await until(lambda: fleet.machines["i-1"].num_applies == 2)
        assert phases(driver) == {"c-1": CopyPhase.READY}, "what was seen last still holds"

    drive(scenario)


def test_failed_launches_are_counted_shown_and_retried() -> None:
    async def scenario(fleet: FakeFleet, driver: InstanceDriver) -> None:
        fleet.switches.launch_error = TerminalError("no Python")
        await until(lambda: driver.facts.attempts == 2)
        assert driver.facts.problem == "no Python"
        assert driver.facts.terminal
        fleet.switches.launch_error = CapacityError("full")
        await until(lambda: driver.facts.problem == "full")
        assert not driver.facts.terminal
        assert driver.facts.attempts == 2, "a full fleet is no fault of the instance"
        fleet.switches.launch_error = RetryableError("slow")
        await until(lambda: driver.facts.attempts == 3)
        fleet.switches.launch_error = None
        await until(lambda: driver.facts.observation is not None)
        assert driver.facts.problem is None
        assert driver.facts.attempts == 0

    drive(scenario)


def test_a_defect_in_the_fleet_does_not_end_the_driver() -> None:
    async def scenario(fleet: FakeFleet, driver: InstanceDriver) -> None:
        fleet.switches.launch_error = ZeroDivisionError()
        await driver.observed_once.wait()
        fleet.switches.launch_error = None
        await until(lambda: driver.facts.observation is not None)

    drive(scenario)


def test_desired_copies_that_an_agent_refuses_are_applied_again_and_shown() -> None:
    async def scenario(fleet: FakeFleet, driver: InstanceDriver) -> None:
        fleet.switches.apply_error = TerminalError("too large")
        driver.set_desired([copy_spec("c-1")])
        await until(lambda: "too large" in (driver.facts.problem or ""))
        fleet.switches.apply_error = None
        await until(lambda: phases(driver) == {"c-1": CopyPhase.READY})
        assert driver.facts.problem is None

    drive(scenario)


def test_an_end_breaks_off_a_launch_that_hangs() -> None:
    async def scenario(fleet: FakeFleet, driver: InstanceDriver) -> None:
        fleet.switches.hang = True
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        driver.set_desired(None)
        await until(lambda: driver.facts.gone)

    drive(scenario)


async def test_an_end_that_comes_too_late_for_a_launch_applies_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class DeafFleet(FakeFleet):
        async def launch(self, instance: Instance) -> RunningInstance:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return await super().launch(instance)

    fleet = DeafFleet()
    driver = InstanceDriver(INSTANCE, fleet, fleet.connect, ManualClock(), lambda _: None)
    running = asyncio.create_task(driver.run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    driver.set_desired(None)
    await until(lambda: driver.facts.gone)
    await running
    assert fleet.terminated == ["i-1"]
    assert not caplog.records


class FrozenClock(ManualClock):
    """A clock whose sleeps never end."""

    async def sleep(self, delay_s: float) -> None:
        await asyncio.Event().wait()


async def test_an_end_does_not_wait_for_a_backoff() -> None:
    fleet = FakeFleet()
    fleet.switches.launch_error = RetryableError("no answer")
    driver = InstanceDriver(INSTANCE, fleet, fleet.connect, FrozenClock(), lambda _: None)
    running = asyncio.create_task(driver.run())
    for num_turns in range(12):
        for _ in range(num_turns):
            await asyncio.sleep(0)
        driver.set_desired([copy_spec(f"c-{num_turns}")])
    await until(lambda: driver.facts.attempts > 2)
    driver.set_desired(None)
    await until(lambda: driver.facts.gone)
    await running


def test_an_end_is_tried_until_it_is_done_and_cannot_be_taken_back() -> None:
    async def scenario(fleet: FakeFleet, driver: InstanceDriver) -> None:
        await until(lambda: driver.facts.observation is not None)
        fleet.switches.terminate_error = RetryableError("busy")
        driver.set_desired(None)
        driver.set_desired([copy_spec("c-1")])
        for _ in range(20):
            await asyncio.sleep(0)
        assert not driver.facts.gone
        fleet.switches.terminate_error = None
        await until(lambda: driver.facts.gone)
        assert fleet.terminated == ["i-1"]

    drive(scenario)


async def test_closing_leaves_agents_and_copies_alone() -> None:
    keys: list[GroupKey] = []
    fleet = FakeFleet()
    instances = Instances(fleet, fleet.connect, ManualClock(), keys.append)
    instances.set_desired(INSTANCE, [copy_spec("c-1")])
    assert instances.list_driven(KEY) == ["i-1"]
    await instances.all_observed()
    await until(lambda: "i-1" in instances.facts)
    assert set(keys) == {KEY}
    await instances.close()
    assert instances.list_driven(KEY) == []
    assert list(fleet.machines["i-1"].copies) == ["c-1"]


def step_by_step(
    instance: Instance, scenario: Callable[[FakeFleet, InstanceDriver], Awaitable[None]]
) -> None:
    """Run `scenario` with a driver that moves only when stepped."""

    async def main() -> None:
        fleet = FakeFleet()
        driver = InstanceDriver(
            instance, fleet, fleet.connect, ManualClock(NOW), lambda instance_id: None
        )
        await scenario(fleet, driver)

    asyncio.run(main())


async def failed_step(driver: InstanceDriver) -> None:
    with pytest.raises((RetryableError, TerminalError)):
        await driver.step(0.0)


def test_an_agent_that_had_answered_is_out_of_reach_from_the_first_call_that_failed() -> None:
    async def scenario(fleet: FakeFleet, driver: InstanceDriver) -> None:
        await driver.step(0.0)
        assert driver.facts.unreachable_since is None
        fleet.switches.hung_instances.add("i-1")
        await failed_step(driver)
        assert driver.facts.unreachable_since == NOW
        await failed_step(driver)
        assert driver.facts.unreachable_since == NOW
        fleet.switches.hung_instances.clear()
        await driver.step(0.0)
        assert driver.facts.unreachable_since is None

    step_by_step(INSTANCE, scenario)


@cases(
    "state, since",
    case("one that never answered is only late", InstanceState.LAUNCHING, None),
    case("one that an earlier control had reached", InstanceState.RUNNING, NOW),
)
def test_an_agent_that_this_control_never_reached(
    state: InstanceState, since: float | None
) -> None:
    async def scenario(fleet: FakeFleet, driver: InstanceDriver) -> None:
        fleet.switches.launch_error = RetryableError("no answer")
        await failed_step(driver)
        assert driver.facts.unreachable_since == since

    step_by_step(replace(INSTANCE, state=state), scenario)


@cases(
    "error, expected",
    case("no machine to be had", CapacityError("none left"), (True, False, 0)),
    case("a launch that failed", RetryableError("too slow"), (False, False, 1)),
    case("one that cannot work", TerminalError("no Python"), (False, True, 1)),
)
def test_the_problem_of_a_failed_launch(error: Exception, expected: tuple[bool, bool, int]) -> None:
    async def scenario(fleet: FakeFleet, driver: InstanceDriver) -> None:
        fleet.switches.launch_error = error
        await failed_step(driver)
        facts = driver.facts
        assert (facts.no_capacity, facts.terminal, facts.attempts) == expected
        fleet.switches.launch_error = None
        await driver.step(0.0)
        facts = driver.facts
        assert (facts.no_capacity, facts.terminal, facts.attempts) == (False, False, 0)

    step_by_step(INSTANCE, scenario)


def test_a_lost_instance_has_no_copies_until_it_runs_again() -> None:
    """Its place is free at once, because the fleet knows that its machine is lost."""

    async def scenario(fleet: FakeFleet, driver: InstanceDriver) -> None:
        driver.set_desired([copy_spec("c-1")])
        await driver.step(0.0)
        assert phases(driver) == {"c-1": CopyPhase.READY}
        driver.set_desired([copy_spec("c-1"), copy_spec("c-2")])
        fleet.switches.apply_error = InstanceLostError("dead")
        await failed_step(driver)
        assert is_lost(driver.facts, NOW)
        assert phases(driver) == {}
        assert driver.facts.applied == {"c-1", "c-2"}, "so that none counts as READY"
        fleet.kill_agent("i-1")
        fleet.switches.launch_error = InstanceLostError("no room elsewhere")
        await failed_step(driver)
        assert is_lost(driver.facts, NOW)
        assert (driver.facts.no_capacity, driver.facts.problem) == (True, "no room elsewhere")
        fleet.switches.apply_error = fleet.switches.launch_error = None
        await driver.step(0.0)
        assert not is_lost(driver.facts, NOW)
        assert set(phases(driver)) == {"c-1", "c-2"}

    step_by_step(INSTANCE, scenario)
