"""Connects and runs the metrics, alarms and scaling of control.

Each task runs separately. A failed task is logged and started again, and does not end control.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable

from starlette.routing import Route

from hostelry.api.application_autoscaling.policy import renew_alarms
from hostelry.api.context import CallContext
from hostelry.api.sagemaker.component_fit import check_room_for_copies
from hostelry.base.clock import Clock, MonotonicClock, until_next_s
from hostelry.base.concurrency import Step, run_again, run_guarded, run_until_done
from hostelry.base.errors import RetryableError, ServiceError, TerminalError
from hostelry.control.cost_tasks import build_cost_tasks
from hostelry.control.data import ControlData
from hostelry.control.events import EventServer, build_schedule_runner
from hostelry.control.exposition import Exposition, OtelExport, is_wanted
from hostelry.control.messages import MessageServer
from hostelry.control.rollout_verdicts import RolloutVerdicts
from hostelry.control.scaling_routes import ScalingRoutes
from hostelry.cost.usage import REQUESTS
from hostelry.domain.endpoint import Deployment, Endpoint
from hostelry.domain.load import Wake
from hostelry.domain.metric import OWN_NAMESPACE
from hostelry.domain.scope import Scope
from hostelry.domain.shape import Shape
from hostelry.home.home import Credentials, Home, UpConfig
from hostelry.metrics.protocol import MetricFilter
from hostelry.metrics.sagemaker.census import Census
from hostelry.metrics.sagemaker.load_aggregator import LoadAggregator
from hostelry.metrics.sagemaker.publisher import Publisher
from hostelry.metrics.sagemaker.usage import PartNames
from hostelry.scaling.loop.alarm_actions import AddressFile, AlarmActionDeps, WebPoster
from hostelry.scaling.loop.alarm_watch import AlarmWatch, AlarmWatchDeps
from hostelry.scaling.loop.environments import EMPTY_S, Environments
from hostelry.scaling.loop.history import History
from hostelry.scaling.loop.responsive_watch import ResponsiveWatch, ResponsiveWatchDeps
from hostelry.scaling.loop.scaler import ScalerDeps, TargetScaler
from hostelry.scaling.loop.schedule_watch import ScheduleWatch, TargetWatch

LOG = logging.getLogger(__name__)
TICK_S = 1.0
WATCH_S = 10.0
RETRY_S = 1.0
PARTS_KNOWN_S = 30 * 86_400.0  # target models and tenants that keep their places in metrics


class Scaling:
    """Metrics, alarms and scaling of one control process. Call `run`, cancel it, then `close`."""

    def __init__(
        self,
        home: Home,
        config: UpConfig,
        credentials: Credentials,
        data: ControlData,
        clock: Clock,
        get_shape: Callable[[str], Shape],
        census: Callable[[], Census],
    ) -> None:
        self._data = data
        state = self._state = data.state
        self._clock = clock
        self.metrics = data.metrics
        self._context_of = self._bind_contexts(credentials, get_shape, config)
        self.aggregator = LoadAggregator(clock.now())
        self.aggregator.restore(data.receipts)
        self.scaler = TargetScaler(
            ScalerDeps(
                state=state,
                aggregator=self.aggregator,
                clock=clock,
                steady=MonotonicClock(),
                refuse_fewer=self._explain_refusal,
                pace=config.pace,
            )
        )
        self.environments = Environments(
            state,
            self.aggregator,
            clock,
            MonotonicClock(),
            idle_s=config.serverless_idle_s / config.pace,
            empty_s=EMPTY_S / config.pace,
        )
        self.history = History(state, self.metrics, self.aggregator, self.scaler.capacities)
        self.verdicts = RolloutVerdicts(self.aggregator, clock)
        self.routes = ScalingRoutes(
            state, self.scaler, self.history, clock, config.pace, self.verdicts.describe
        ).routes()
        self._poster = WebPoster()
        addresses = AddressFile(home.actions)
        self.messages = MessageServer(home, config, data, clock, addresses)
        self._alarms = AlarmWatch(
            AlarmWatchDeps(state=state, metrics=self.metrics, scaler=self.scaler, clock=clock),
            AlarmActionDeps(
                state=state,
                clock=clock,
                addresses_of=addresses.of,
                post=self._poster.post,
                publish=self.messages.publish_alarm,
            ),
        )
        self._part_names = PartNames()
        self._publisher = Publisher(
            self.aggregator, self.metrics, census, clock, data.keep_receipts, self._part_names
        )
        self._costs = build_cost_tasks(home, config, credentials, data, clock)
        self.exposition = Exposition(
            self._publisher.totals, self.aggregator, census, state, clock, self.metrics
        )
        scrape = Route("/internal/metrics", self.exposition.serve, methods=["GET"])
        self._responsive = ResponsiveWatch(
            ResponsiveWatchDeps(
                state=state,
                scaler=self.scaler,
                clock=clock,
                steady=MonotonicClock(),
                metrics=self.metrics,
            )
        )
        self._responsive.listen(self.aggregator)
        self._rescheduled = asyncio.Event()
        self._scheduled_actions = ScheduleWatch(state, clock, self.scaler.record_bounds)
        self._schedules = build_schedule_runner(
            state, clock, self.metrics, self.messages.services, self._context_of
        )
        self.events = EventServer(data, clock, self.messages.services, self._context_of)
        self.routes = (*self.routes, scrape, *self.events.routes())

    async def run(self) -> None:
        """Run every task until cancelled."""
        await run_until_done("taking up acts of scaling", self._recover, RETRY_S, self._clock)
        await run_guarded("renewing the alarms of scaling policies", self._renew)
        await run_guarded("reading the names that have usage", self._know_parts)
        async with asyncio.TaskGroup() as tasks:
            for name, run in self._tasks().items():
                tasks.create_task(run_again(name, run, RETRY_S, self._clock), name=name)

    def wake(self, wake: Wake) -> None:
        """Start the first copy of a component, or environments of a serverless variant.

        If that is impossible now, gateways repeat the wake.
        """
        wake_up = self.scaler.wake if wake.key.component_name else self.environments.wake
        try:
            wake_up(wake)
        except RetryableError as error:
            LOG.warning("no copy is started for %s now: %s", wake.key, error)

    def close(self) -> None:
        """Close control's data apart from the store, and end the waits of its threads."""
        self._responsive.end_wait()
        self._data.close()

    def _tasks(self) -> dict[str, Step]:
        """The tasks by their names in the log."""
        return {
            "following scalable targets": self._follow,
            "following acts of scaling, environments and the history of targets": self._each_second,
            "firing scheduled actions and schedules": self._fire,
            "publishing metrics": self._publisher.run,
            **self._costs,
            **self._exports(),
            "watching alarms": self._watch_alarms,
            "watching for sudden load": self._respond,
            "delivering messages": self.messages.deliver,
            "making calls of events": self.events.run,
            "removing old messages": self.messages.sweep,
        }

    def _exports(self) -> dict[str, Step]:
        """The export of metrics, or nothing if it is not configured or cannot run."""
        if not is_wanted(os.environ):
            return {}
        try:
            export = OtelExport(self.exposition.collect, self._clock, os.environ)
        except TerminalError as error:
            LOG.error("%s", error)  # noqa: TRY400 - the message says all
            return {}
        return {"exporting metrics": export.run}

    async def _recover(self) -> None:
        await asyncio.to_thread(self.scaler.recover)

    async def _renew(self) -> None:
        await asyncio.to_thread(renew_alarms, self._state, self._context_of)

    async def _know_parts(self) -> None:
        since = self._clock.now() - PARTS_KNOWN_S
        chosen = MetricFilter(namespace=OWN_NAMESPACE, name=REQUESTS, since=since)
        for scope in {it.value.scope for it in self._state.endpoints.list()}:
            found = await asyncio.to_thread(self.metrics.find, scope, chosen)
            self._part_names.know(found)

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()

        def reschedule() -> None:
            loop.call_soon_threadsafe(self._rescheduled.set)

        watch = TargetWatch(self._state, self.scaler, reschedule)
        await asyncio.to_thread(self.scaler.settle_all)
        while True:
            await asyncio.to_thread(watch.follow, WATCH_S)

    async def _each_second(self) -> None:
        while True:
            await asyncio.to_thread(self._pass_second)
            await self._clock.sleep(until_next_s(self._clock.now(), TICK_S))

    def _pass_second(self) -> None:
        """Do all work of one second. Then raise the first failure, if there was any."""
        with contextlib.ExitStack() as each:
            # The stack calls in reverse order, so the aggregator comes first.
            each.callback(self.scaler.tick)
            each.callback(self.environments.tick)
            each.callback(self.history.write, self._clock.now())
            each.callback(self.aggregator.tick, self._clock.now())

    async def _respond(self) -> None:
        while True:
            await asyncio.to_thread(self._wait_and_respond)

    def _wait_and_respond(self) -> None:
        self._responsive.wait(WATCH_S)
        self._responsive.tick()

    async def _watch_alarms(self) -> None:
        try:
            await self._alarms.run()
        finally:
            await self._poster.close()

    async def _fire(self) -> None:
        while True:
            self._rescheduled.clear()
            next_at = await asyncio.to_thread(self._fire_due)
            wait_s = max(0.0, next_at - self._clock.now())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._rescheduled.wait()

    def _fire_due(self) -> float:
        """Fire due actions and schedules. Returns the time of the next one."""
        self._scheduled_actions.fire()
        self._schedules.run_due()
        return min(self._scheduled_actions.next_at(), self._schedules.next_at())

    def _explain_refusal(self, endpoint: Endpoint, wanted: Deployment) -> str | None:
        """Why UpdateEndpointWeightsAndCapacities would refuse `wanted`. None if it is allowed."""
        try:
            check_room_for_copies(self._context_of(endpoint.scope), endpoint, wanted)
        except ServiceError as error:
            return error.message
        return None

    def _bind_contexts(
        self, credentials: Credentials, get_shape: Callable[[str], Shape], config: UpConfig
    ) -> Callable[[Scope], CallContext]:
        """Return a function that builds the context for control's own operations in a scope."""
        return lambda scope: CallContext(
            scope=scope,
            state=self._state,
            now=self._clock.now(),
            get_shape=get_shape,
            role_arn=credentials.role_arn,
            role_name=credentials.role_name,
            pace=config.pace,
            metrics=self.metrics,
            checks_roles=not config.any_role,
            messaging=self.messages.services,
            trail=self._data.audit,
        )


@contextlib.asynccontextmanager
async def run_scaling(scaling: Scaling) -> AsyncIterator[Scaling]:
    """Run `scaling` for the block, then close it."""
    task = asyncio.create_task(scaling.run())
    try:
        yield scaling
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        scaling.close()
