"""Reconciler of all endpoints: load, plan, write, apply to the instances.

trigger                                         endpoints that are planned
---------------------------------------------   ----------------------------------------------
a record of an endpoint or anything on it       that endpoint, unless its own pass wrote it
the state of an alarm that guards an update     the endpoints whose updates it guards
the verdict on an update, each second           its endpoint, if it is worse or no worse
new facts about an instance                     its endpoint
an instant that a plan asked for                that plan's endpoint
every RESYNC_S, and after a gap in the watch    all: a lost notification only costs time
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from hostelry.base.clock import Clock, thread_cpu_s
from hostelry.base.concurrency import run_again, run_guarded, run_until_done
from hostelry.base.ids import new_copy_id, new_instance_id
from hostelry.comparison.fleet_verdict import StepVerdict, WatchedUpdate
from hostelry.domain.at_zero import AtZero
from hostelry.domain.hidden_endpoint import HiddenKind
from hostelry.domain.shape import Shape
from hostelry.domain.update_history import append_history
from hostelry.fleet.protocol import Fleet
from hostelry.reconcile.ai_benchmark_jobs import AiBenchmarkJobs
from hostelry.reconcile.inference_experiments import InferenceExperiments
from hostelry.reconcile.instances import Connect, Instances
from hostelry.reconcile.job_loop import JobLoop
from hostelry.reconcile.plan.dirty import clear_settled, mark_dirty
from hostelry.reconcile.plan.endpoint_state import (
    MAX_DRAIN_S,
    EndpointState,
    GroupKey,
    InstanceFacts,
    PlanContext,
)
from hostelry.reconcile.plan.guards import find_guarding_alarms, find_watched_update
from hostelry.reconcile.plan.plan import DesiredByInstance, desired_by_instance, next_plan_at, plan
from hostelry.reconcile.queue import WorkQueue
from hostelry.reconcile.recommendation_jobs import Note, RecommendationJobs
from hostelry.reconcile.record import (
    OwnWrites,
    find_changed_keys,
    get_alarm_view_s,
    list_keys,
    list_writes,
    load,
    load_alarms,
    write,
)
from hostelry.reconcile.route_board import RouteBoard
from hostelry.reconcile.route_planner import RoutePlanner
from hostelry.reconcile.transform_jobs import TransformJobs
from hostelry.store.protocol import RevisionTooOld
from hostelry.store.records import State

T = TypeVar("T")

LOG = logging.getLogger(__name__)
NUM_WORKERS = 2  # one plans while another writes: more wait for the lock and the interpreter
PASS_REST = 3.0  # so that an endpoint's passes take a quarter of a core at most
PUBLICATION_REST = 10.0  # so that publications take an eleventh
MAX_REST_S = 1.0
WATCH_S = 10.0
RESYNC_S = 30.0
FIRST_OBSERVATION_S = 15.0


class ReconcilerDeps(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of the reconciler, except for the store."""

    fleet: Fleet
    connect: Connect
    clock: Clock
    get_shape: Callable[[str], Shape]
    is_llm: Callable[[str], bool]
    pace: float = 1.0
    max_drain_s: float = MAX_DRAIN_S
    at_zero: AtZero = AtZero.HOLD
    verdict_of: Callable[[WatchedUpdate], StepVerdict | None] = lambda _: None
    note_job: Note = lambda *_: None


def reconcile_endpoint(
    state: State,
    key: GroupKey,
    facts: Mapping[str, InstanceFacts],
    context: PlanContext,
    verdict_of: Callable[[WatchedUpdate], StepVerdict | None] = lambda _: None,
    own: OwnWrites | None = None,
    last: EndpointState | None = None,
) -> EndpointState:
    """Load, plan and write one endpoint. Return the state that is recorded then.

    `last` is the state that the last pass returned. Without it the result is the same, but all
    families are planned. `verdict_of` compares the fleets of an update under way. `own` notes the
    writes, unless a verdict was followed: the next pass may have a verdict on other fleets.

    Raises Conflict if a record changed meanwhile: the caller retries from the new state.
    """
    loaded = load(state, key, facts)
    before = mark_dirty(loaded.state, last)
    names = find_guarding_alarms(before)
    if names:
        context = replace(
            context,
            alarms=load_alarms(state, key.scope, names),
            alarm_view_s=get_alarm_view_s(state, key.scope, names),
        )
    update = find_watched_update(before.endpoint)
    if update is not None:
        context = replace(context, verdict=verdict_of(update))
    after = plan(before, context)
    verdict = context.verdict
    text = None if verdict is None or verdict.since is None else verdict.text
    updated = append_history(before.endpoint, after.endpoint, context.now, text)
    if updated is not None:
        after = after.replace_endpoint(updated)
    write(state, loaded, list_writes(before, after), own if verdict is None else None)
    return clear_settled(after, context)


class Reconciler:
    """The reconciler of one control process."""

    def __init__(self, state: State, deps: ReconcilerDeps) -> None:
        self.routes = RouteBoard()
        self._planner = RoutePlanner(state, deps.is_llm, deps.at_zero)
        self.transforms = TransformJobs(state, deps.clock)
        self.queue: WorkQueue[GroupKey] = WorkQueue(self.reconcile, deps.clock)
        self.instances = Instances(
            deps.fleet, deps.connect, deps.clock, lambda key: self.queue.add(key)
        )
        self.experiments = InferenceExperiments(state, deps.clock, lambda: self.instances.facts)
        self.recommendations = RecommendationJobs(
            state, deps.clock, lambda: self.instances.facts, deps.get_shape, deps.note_job
        )
        self.ai_recommendations = RecommendationJobs(
            state,
            deps.clock,
            lambda: self.instances.facts,
            deps.get_shape,
            deps.note_job,
            HiddenKind.AI_RECOMMENDATION,
        )
        self.ai_benchmarks = AiBenchmarkJobs(state, deps.clock)
        self._jobs: tuple[JobLoop[Any, Any], ...] = (
            self.transforms.loop,
            self.recommendations.loop,
            self.ai_recommendations.loop,
            self.ai_benchmarks.loop,
            self.experiments.loop,
        )
        self._state = state
        self._deps = deps
        self._started_at = deps.clock.now()
        self._is_open = False
        self._own = OwnWrites()
        self._last: dict[GroupKey, EndpointState] = {}  # the result of each endpoint's last pass
        self._has_changes = asyncio.Event()
        self._publishing = asyncio.Lock()
        self._followed = state.store.revision()

    async def run(self) -> None:
        """Watch, reconcile and publish until cancelled. Agents and copies keep running then."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.queue.run(NUM_WORKERS))
                tasks.create_task(self._watch())
                tasks.create_task(self._publish_changes())
                tasks.create_task(self._resync())
                for loop in self._jobs:
                    tasks.create_task(loop.run())
                clock = self._deps.clock
                tasks.create_task(run_again("ending orphans", self.end_orphans, RESYNC_S, clock))
        finally:
            await self.instances.close()

    async def reconcile(self, key: GroupKey) -> float | None:
        """Run one pass over an endpoint. Return the instant of the next pass, or None."""
        now = self._deps.clock.now()
        context = PlanContext(
            now=now,
            new_instance_id=new_instance_id,
            new_copy_id=new_copy_id,
            get_shape=self._deps.get_shape,
            pace=self._deps.pace,
            max_drain_s=self._deps.max_drain_s,
            watched_since=self._started_at,
        )
        facts, last = self.instances.facts_on(key), self._last.get(key)
        verdict_of = self._deps.verdict_of

        def run_pass() -> tuple[EndpointState, DesiredByInstance, float | None]:
            after = reconcile_endpoint(
                self._state, key, facts, context, verdict_of, self._own, last
            )
            return after, desired_by_instance(after, now, last), next_plan_at(after, context)

        (after, desired, next_at), cpu_s = await asyncio.to_thread(_measure_cpu_s, run_pass)
        self.queue.rest(key, rest_s(cpu_s, PASS_REST))
        for instance_id, specs in desired.items():
            self.instances.set_desired(after.instances[instance_id], specs)
        for instance_id in self.instances.list_driven(key):
            if instance_id not in after.instances:
                self.instances.forget(instance_id)
        if after.endpoint is None:
            self._last.pop(key, None)
        else:
            self._last[key] = after
        return next_at

    def release(self) -> None:
        """End the long polls of other processes, which would delay an exit."""
        self.routes.close()
        for loop in self._jobs:
            loop.board.close()

    async def publish(self, *, afresh: bool = False) -> float:
        """Publish the recorded routes, once every endpoint has been reconciled.

        `afresh` also looks up the rules of images, which change without a record. Returns the CPU
        seconds that planning took.
        """
        if not self._is_open:
            return 0.0
        async with self._publishing:  # or older routes could replace newer ones
            plan_routes = partial(self._planner.plan, afresh=afresh)
            planned, cpu_s = await asyncio.to_thread(_measure_cpu_s, plan_routes)
            self.routes.publish_change(planned.since, planned.snapshot, planned.changed)
        return cpu_s

    async def end_orphans(self) -> None:
        """Terminate running instances that have no record."""
        running = await self._deps.fleet.list()
        recorded = await asyncio.to_thread(self._state.instances.list)
        known = {it.value.id for it in recorded}
        for orphan in running:
            if orphan.id not in known:
                LOG.warning("instance %s has no record; terminating it", orphan.id)
                await self._deps.fleet.terminate(orphan.id)

    async def open(self) -> None:
        """Reconcile everything once, then begin to publish routes.

        Instances that cannot be reached in time keep their recorded state.
        """
        await self._enqueue_all()
        await self.queue.quiet()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_OBSERVATION_S):
                await self.instances.all_observed()
        await self._enqueue_all()
        await self.queue.quiet()
        self._is_open = True
        await self.publish()

    async def _resync(self) -> None:
        await run_until_done("first look", self.open, 1.0, self._deps.clock)
        while True:
            await self._deps.clock.sleep(RESYNC_S)
            await run_guarded("resync", self._enqueue_all)
            # Image rules change without a record, so no change in the store reports them.
            await run_guarded("publishing routes", self._publish_afresh)

    async def _enqueue_all(self) -> None:
        for key in await asyncio.to_thread(list_keys, self._state):
            self.queue.add(key)

    async def _watch(self) -> None:
        while True:
            if not await run_guarded("watching the store", self._follow):
                await self._deps.clock.sleep(1.0)

    async def _follow(self) -> None:
        """Enqueue the endpoints that changed since the last call, and have the routes published."""
        followed = self._followed
        news = await asyncio.to_thread(self._news)
        if news is None:
            await self._enqueue_all()
        else:
            for key in news:
                self.queue.add(key)
        if self._followed != followed:
            for woken in (self._has_changes, *(it.woken for it in self._jobs)):
                woken.set()

    def _news(self) -> set[GroupKey] | None:
        """The endpoints to plan for the changes since the last call. None: all of them."""
        store, since = self._state.store, self._followed
        if not store.wait(since, WATCH_S):
            return set()
        try:
            changes = store.changes(since)
        except RevisionTooOld:
            self._followed = store.revision()
            return None
        keys = find_changed_keys(self._state, self._own.others(changes))
        self._followed = max([since, *(it.revision for it in changes)])
        return keys

    async def _publish_changes(self) -> None:
        """Publish the routes after changes. Changes during a rest are published together."""
        while True:
            await self._has_changes.wait()
            self._has_changes.clear()
            if not await run_guarded("publishing routes", self._publish_then_rest):
                await self._deps.clock.sleep(1.0)
                self._has_changes.set()

    async def _publish_then_rest(self) -> None:
        await self._deps.clock.sleep(rest_s(await self.publish(), PUBLICATION_REST))

    async def _publish_afresh(self) -> None:
        await self.publish(afresh=True)


def rest_s(cpu_s: float, rest: float) -> float:
    """Seconds to rest after work that used a processor for `cpu_s`: `rest` times as long."""
    return min(MAX_REST_S, rest * cpu_s)


def _measure_cpu_s(work: Callable[[], T]) -> tuple[T, float]:
    """Call `work`, and return its result and the CPU seconds that it used."""
    started = thread_cpu_s()
    found = work()
    return found, thread_cpu_s() - started
