"""Drivers of instances: each applies the desired copies of one, and keeps its last observation.

The only code that calls the fleet and agents. A driver gets all desired copies, never a step.

    observed                                  result
    ---------------------------------------   ----------------------------------------------------
    the instance should end                   any step under way is cancelled, then terminate
    its agent is not connected                launch (finds an agent that runs already)
    desired copies not applied yet            apply, then observe at once
    otherwise                                 observe, for up to POLL_S or until others are desired
    the agent refuses                         TerminalError, shown in `facts`, retried with backoff
    the agent does not answer                 unreachable since then. The next step launches again
    the fleet knows that its machine is gone  likewise, and none of its copies is left
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from hostelry.base.clock import Clock
from hostelry.base.concurrency import run_guarded
from hostelry.base.errors import CapacityError, InstanceLostError, RetryableError, TerminalError
from hostelry.domain.copy import CopySpec, Instance, InstanceState
from hostelry.fleet.protocol import Agent, Fleet, Observation, RunningInstance
from hostelry.reconcile.plan.endpoint_state import GroupKey, InstanceFacts
from hostelry.reconcile.queue import get_backoff_s

LOG = logging.getLogger(__name__)
POLL_S = 5.0
LAUNCH_S = 60.0
TERMINATE_S = 60.0
CALL_S = 12.0  # beyond the time that an agent was asked to wait

Connect = Callable[[str], Agent]


class InstanceDriver:
    """Driver of one instance. Calls `changed` with its id whenever `facts` change."""

    def __init__(
        self,
        instance: Instance,
        fleet: Fleet,
        connect: Connect,
        clock: Clock,
        changed: Callable[[str], None],
    ) -> None:
        self.instance = instance
        self.facts = InstanceFacts()
        self.observed_once = asyncio.Event()  # after the first step, also a failed one
        self._fleet = fleet
        self._connect = connect
        self._clock = clock
        self._changed = changed
        self._desired: tuple[CopySpec, ...] | None = ()
        self._applied: tuple[CopySpec, ...] | None = None
        self._agent: Agent | None = None
        self._failures = 0
        self._desired_changed = asyncio.Event()
        self._step_under_way: asyncio.Task[bool] | None = None

    def set_desired(self, desired: Sequence[CopySpec] | None) -> None:
        """Have the agent run exactly `desired`. None terminates it, cancelling any step."""
        specs = None if desired is None else tuple(desired)
        if self._desired is None or specs == self._desired:
            return
        self._desired = specs
        self._desired_changed.set()
        if specs is None and self._step_under_way is not None:
            self._step_under_way.cancel()

    async def run(self) -> None:
        """Drive the instance until it is terminated, or until cancelled."""
        while not self.facts.gone:
            self._desired_changed.clear()  # the step reads the desired copies after this
            if not await self._try_step():
                await self._pause()

    async def _try_step(self) -> bool:
        """Run one step. False if it failed. True if it was cancelled because the end is desired."""
        name = f"instance {self.instance.id}"
        step = asyncio.ensure_future(run_guarded(name, lambda: self.step(POLL_S)))
        self._step_under_way = step
        try:
            await asyncio.wait({step})
        finally:
            self._step_under_way = None
            await _cancel(step)
        ended_well = step.cancelled() or step.result()
        self._failures = 0 if ended_well else self._failures + 1
        self.observed_once.set()
        return ended_well

    async def _pause(self) -> None:
        """Wait before the next attempt, or until other copies are desired."""
        sleep = asyncio.ensure_future(self._clock.sleep(get_backoff_s(self._failures)))
        woken = asyncio.ensure_future(self._desired_changed.wait())
        try:
            await asyncio.wait({sleep, woken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            woken.cancel()

    async def step(self, wait_s: float) -> None:
        """Bring the instance one step closer to the desired state. Wait up to `wait_s` for news.

        Raises RetryableError or TerminalError. `facts` show the failure, too.
        """
        if self._desired is None:
            await self._terminate()
            return
        agent = self._agent or await self._launch()
        try:
            await self._apply_and_observe(agent, wait_s)
        except TerminalError as error:
            self._set_facts(
                replace(self.facts, problem=f"its agent refuses the desired copies: {error}")
            )
            raise
        except InstanceLostError as error:
            self._agent, self._applied = None, None
            self._set_facts(self._mark_lost(str(error)))
            raise RetryableError(f"instance {self.instance.id} is lost: {error}") from error
        except (RetryableError, TimeoutError) as error:
            self._agent, self._applied = None, None
            self._set_facts(self._mark_unreachable())
            raise RetryableError(f"agent of {self.instance.id} does not answer: {error}") from error

    async def _terminate(self) -> None:
        try:
            async with asyncio.timeout(TERMINATE_S):
                await self._fleet.terminate(self.instance.id)
        except TimeoutError:
            raise RetryableError(f"it did not end within {TERMINATE_S:g} s") from None
        self._set_facts(replace(self.facts, gone=True))

    async def _launch(self) -> Agent:
        try:
            running = await self._launch_in_time()
        except CapacityError as error:
            is_lost = isinstance(error, InstanceLostError)
            facts = self._mark_lost(str(error)) if is_lost else self._mark_unreachable()
            self._set_facts(replace(facts, problem=str(error), terminal=False, no_capacity=True))
            raise
        except (RetryableError, TerminalError) as error:
            self._set_facts(
                replace(
                    self._mark_unreachable(),
                    problem=str(error),
                    terminal=isinstance(error, TerminalError),
                    no_capacity=False,
                    attempts=self.facts.attempts + 1,
                )
            )
            raise RetryableError(f"agent could not be started: {error}") from error
        self._agent, self._applied = self._connect(running.address), None
        self.facts = replace(self.facts, address=running.address)
        return self._agent

    async def _launch_in_time(self) -> RunningInstance:
        try:
            async with asyncio.timeout(LAUNCH_S):
                return await self._fleet.launch(self.instance)
        except TimeoutError:
            raise RetryableError(f"its agent did not start within {LAUNCH_S:g} s") from None

    async def _apply_and_observe(self, agent: Agent, wait_s: float) -> None:
        """Apply the desired copies if they are new, then wait for a report or for other copies."""
        desired = self._desired
        if desired is None:
            return  # the end became desired when the launch could no longer be broken off
        self._desired_changed.clear()
        if desired != self._applied:
            async with asyncio.timeout(CALL_S):
                await agent.apply(desired)
            self._applied = desired
            wait_s = 0.0
        seen = self.facts.observation
        have = None if seen is None else seen.version
        observing = asyncio.ensure_future(agent.observe(have, wait_s))
        woken = asyncio.ensure_future(self._desired_changed.wait())
        # An answer at once is waited for: copies that change all the time would never be seen.
        ends: set[asyncio.Future[Any]] = {observing, woken} if wait_s else {observing}
        try:
            await asyncio.wait(
                ends,
                return_when=asyncio.FIRST_COMPLETED,
                timeout=wait_s + CALL_S,
            )
            if observing.done():
                self._take_observation(await observing, frozenset(it.id for it in desired))
            elif not wait_s or not woken.done():
                raise RetryableError(f"no answer within {wait_s + CALL_S:g} s")
        finally:
            woken.cancel()
            await _cancel(observing)

    def _take_observation(self, observation: Observation, applied: frozenset[str]) -> None:
        after = replace(
            self.facts,
            observation=observation,
            applied=applied,
            problem=None,
            terminal=False,
            no_capacity=False,
            attempts=0,
            unreachable_since=None,
            lost=False,
        )
        self._set_facts(after)

    def _mark_unreachable(self) -> InstanceFacts:
        """The facts, with the time since which the agent does not answer.

        An agent that has never answered, this control process or an earlier one, gets no time.
        """
        never_answered = (
            self.facts.observation is None and self.instance.state is InstanceState.LAUNCHING
        )
        if never_answered or self.facts.unreachable_since is not None:
            return self.facts
        return replace(self.facts, unreachable_since=self._clock.now())

    def _mark_lost(self, problem: str) -> InstanceFacts:
        """The facts, with no copy left of those that are desired."""
        nothing = Observation(instance_id=self.instance.id, version="", copies=())
        return replace(
            self._mark_unreachable(),
            problem=problem,
            lost=True,
            observation=nothing,
            applied=frozenset(it.id for it in self._desired or ()),
        )

    def _set_facts(self, facts: InstanceFacts) -> None:
        has_news = facts != self.facts
        self.facts = facts  # also with nothing new but the use of CPUs, which comparisons ignore
        if has_news:
            self._changed(self.instance.id)


async def _cancel(task: asyncio.Future[Any]) -> None:
    """Cancel `task` and wait for its end."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, RetryableError):
        await task


class Instances:
    """Desired copies and facts of all driven instances.

    Calls `changed` with an endpoint's key whenever the facts of one of its instances change. Used
    from the event loop only, but any thread may read `facts`.
    """

    def __init__(
        self, fleet: Fleet, connect: Connect, clock: Clock, changed: Callable[[GroupKey], None]
    ) -> None:
        self._fleet = fleet
        self._connect = connect
        self._clock = clock
        self._changed = changed
        self._drivers: dict[str, InstanceDriver] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._seen: set[str] = set()
        self._ids: dict[GroupKey, set[str]] = {}

    @property
    def facts(self) -> Mapping[str, InstanceFacts]:
        """Facts about each observed instance, by id."""
        drivers = tuple(self._drivers.items())
        return {instance_id: it.facts for instance_id, it in drivers if instance_id in self._seen}

    def facts_on(self, key: GroupKey) -> Mapping[str, InstanceFacts]:
        """Facts about each observed instance of an endpoint, by id."""
        return {it: self._drivers[it].facts for it in self.list_driven(key) if it in self._seen}

    def set_desired(self, instance: Instance, desired: Sequence[CopySpec] | None) -> None:
        """Have the instance run exactly `desired`. None terminates it."""
        if instance.id not in self._drivers:
            self._start(instance)
        self._drivers[instance.id].set_desired(desired)

    def forget(self, instance_id: str) -> None:
        """Stop driving an instance whose record is gone."""
        driver = self._drivers.pop(instance_id, None)
        if driver is not None:
            mine = self._ids[_get_key(driver.instance)]
            mine.discard(instance_id)
            if not mine:
                del self._ids[_get_key(driver.instance)]
        self._seen.discard(instance_id)
        task = self._tasks.pop(instance_id, None)
        if task is not None:
            task.cancel()

    def list_driven(self, key: GroupKey) -> list[str]:
        """Ids of one endpoint's driven instances."""
        return list(self._ids.get(key, ()))

    async def all_observed(self) -> None:
        """Wait until every instance driven now was reached, or an attempt failed."""
        for driver in list(self._drivers.values()):
            await driver.observed_once.wait()

    async def close(self) -> None:
        """Stop driving. Agents and copies keep running."""
        tasks = list(self._tasks.values())
        for instance_id in list(self._drivers):
            self.forget(instance_id)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, instance: Instance) -> None:
        driver = InstanceDriver(instance, self._fleet, self._connect, self._clock, self._note_facts)
        self._drivers[instance.id] = driver
        self._ids.setdefault(_get_key(instance), set()).add(instance.id)
        self._tasks[instance.id] = asyncio.get_running_loop().create_task(driver.run())

    def _note_facts(self, instance_id: str) -> None:
        driver = self._drivers.get(instance_id)
        if driver is not None:
            self._seen.add(instance_id)
            self._changed(_get_key(driver.instance))


def _get_key(instance: Instance) -> GroupKey:
    return GroupKey(instance.scope, instance.endpoint_name)
