"""Drives one instance to what is wanted of it, and knows what was last seen of it.

The only code that talks to the fleet and to an agent. It gets all desired copies, never a step.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hostelry.base.clock import Clock
from hostelry.base.errors import CapacityError, RetryableError, TerminalError
from hostelry.base.recurring import run_guarded
from hostelry.domain.copy import CopySpec, Instance, InstanceState
from hostelry.fleet.protocol import Agent, Fleet, Observation, RunningInstance
from hostelry.reconcile.plan.endpoint_state import InstanceFacts
from hostelry.reconcile.queue import backoff_s

LOG = logging.getLogger(__name__)
POLL_S = 5.0
LAUNCH_S = 60.0
TERMINATE_S = 60.0
CALL_S = 12.0  # beyond what an agent was asked to wait

Connect = Callable[[str], Agent]


class InstanceDriver:
    """One instance. `changed` is called, with its id, whenever `facts` has moved."""

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
        self.looked = asyncio.Event()  # set once the agent answered, or could not be started
        self._fleet = fleet
        self._connect = connect
        self._clock = clock
        self._changed = changed
        self._desired: tuple[CopySpec, ...] | None = ()
        self._told: tuple[CopySpec, ...] | None = None
        self._agent: Agent | None = None
        self._failures = 0
        self._desired_changed = asyncio.Event()
        self._step_under_way: asyncio.Task[bool] | None = None

    def want(self, desired: Sequence[CopySpec] | None) -> None:
        """Have the agent run exactly `desired`; None: end the instance, whatever is under way."""
        wanted = None if desired is None else tuple(desired)
        if self._desired is None or wanted == self._desired:
            return
        self._desired = wanted
        self._desired_changed.set()
        if wanted is None and self._step_under_way is not None:
            self._step_under_way.cancel()

    async def run(self) -> None:
        """Drive the instance until it has ended, or this is cancelled."""
        while not self.facts.gone:
            self._desired_changed.clear()  # the step reads the desired copies after this
            if not await self._step_survived():
                await self._pause()

    async def _step_survived(self) -> bool:
        """One step; False when it failed. Desiring its end breaks it off."""
        name = f"instance {self.instance.id}"
        step = asyncio.ensure_future(run_guarded(name, lambda: self.step(POLL_S)))
        self._step_under_way = step
        try:
            await asyncio.wait({step})
        finally:
            self._step_under_way = None
            await _ended(step)
        ended_well = step.cancelled() or step.result()
        self._failures = 0 if ended_well else self._failures + 1
        self.looked.set()
        return ended_well

    async def _pause(self) -> None:
        """Wait before the next attempt, or until other copies are desired."""
        sleep = asyncio.ensure_future(self._clock.sleep(backoff_s(self._failures)))
        woken = asyncio.ensure_future(self._desired_changed.wait())
        try:
            await asyncio.wait({sleep, woken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            woken.cancel()

    async def step(self, wait_s: float) -> None:
        """Bring the instance one step nearer to what is desired; wait up to `wait_s` for news.

        Raises RetryableError or TerminalError when that failed; `facts` says so too.
        """
        if self._desired is None:
            await self._terminate()
            return
        agent = self._agent or await self._launch()
        try:
            await self._tell_and_look(agent, wait_s)
        except TerminalError as error:
            self._set(replace(self.facts, problem=f"its agent refuses what it is told: {error}"))
            raise
        except (RetryableError, TimeoutError) as error:
            self._agent, self._told = None, None
            self._set(self._out_of_reach())
            raise RetryableError(f"agent of {self.instance.id} does not answer: {error}") from error

    async def _terminate(self) -> None:
        try:
            async with asyncio.timeout(TERMINATE_S):
                await self._fleet.terminate(self.instance.id)
        except TimeoutError:
            raise RetryableError(f"it did not end within {TERMINATE_S:g} s") from None
        self._set(replace(self.facts, gone=True))

    async def _launch(self) -> Agent:
        try:
            running = await self._launched()
        except CapacityError as error:
            facts = self._out_of_reach()
            self._set(replace(facts, problem=str(error), terminal=False, no_capacity=True))
            raise
        except (RetryableError, TerminalError) as error:
            self._set(
                replace(
                    self._out_of_reach(),
                    problem=str(error),
                    terminal=isinstance(error, TerminalError),
                    no_capacity=False,
                    attempts=self.facts.attempts + 1,
                )
            )
            raise RetryableError(f"agent could not be started: {error}") from error
        self._agent, self._told = self._connect(running.address), None
        self.facts = replace(self.facts, address=running.address)
        return self._agent

    async def _launched(self) -> RunningInstance:
        try:
            async with asyncio.timeout(LAUNCH_S):
                return await self._fleet.launch(self.instance)
        except TimeoutError:
            raise RetryableError(f"its agent did not start within {LAUNCH_S:g} s") from None

    async def _tell_and_look(self, agent: Agent, wait_s: float) -> None:
        """Give the agent the desired copies if they are new, then wait for news or a change."""
        desired = self._desired
        assert desired is not None, "an instance that is to end is not told anything"
        self._desired_changed.clear()
        if desired != self._told:
            async with asyncio.timeout(CALL_S):
                await agent.apply(desired)
            self._told = desired
            wait_s = 0.0
        seen = self.facts.observation
        have = None if seen is None else seen.version
        observing = asyncio.ensure_future(agent.observe(have, wait_s))
        woken = asyncio.ensure_future(self._desired_changed.wait())
        try:
            await asyncio.wait(
                {observing, woken},
                return_when=asyncio.FIRST_COMPLETED,
                timeout=wait_s + CALL_S,
            )
            if observing.done():
                self._see(await observing, frozenset(it.id for it in desired))
            elif not woken.done():
                raise RetryableError(f"no answer within {wait_s + CALL_S:g} s")
        finally:
            woken.cancel()
            await _ended(observing)

    def _see(self, observation: Observation, told: frozenset[str]) -> None:
        after = replace(
            self.facts,
            observation=observation,
            applied=told,
            problem=None,
            terminal=False,
            no_capacity=False,
            attempts=0,
            unreachable_since=None,
        )
        self._set(after)

    def _out_of_reach(self) -> InstanceFacts:
        """What is known, and since when an agent that had answered before does not.

        One that had answered an earlier control process counts too.
        """
        never_answered = (
            self.facts.observation is None and self.instance.state is InstanceState.LAUNCHING
        )
        if never_answered or self.facts.unreachable_since is not None:
            return self.facts
        return replace(self.facts, unreachable_since=self._clock.now())

    def _set(self, facts: InstanceFacts) -> None:
        has_news, self.facts = facts != self.facts, facts
        if has_news:
            self._changed(self.instance.id)


async def _ended(task: asyncio.Future[Any]) -> None:
    """Return once `task` is over, cancelling it if it is not."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, RetryableError):
        await task
