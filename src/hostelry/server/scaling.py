"""Everything of control that measures and scales, put together, started and kept alive.

Each part runs by itself: one that fails is told of in the log and begins again, and none takes
control down with it.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from starlette.routing import Route

from hostelry.api.application_autoscaling.tracking_alarm import renew_alarms
from hostelry.api.context import Context
from hostelry.api.sagemaker.component_capacity import check_room_for_copies
from hostelry.autoscaler.alarm_actions import AlarmActionDeps, WebPoster
from hostelry.autoscaler.alarm_addresses import AddressFile
from hostelry.autoscaler.alarm_watch import AlarmWatch, AlarmWatchDeps
from hostelry.autoscaler.history import History
from hostelry.autoscaler.responsive_watch import ResponsiveWatch, ResponsiveWatchDeps
from hostelry.autoscaler.scaler import ScalerDeps, TargetScaler
from hostelry.autoscaler.schedule_watch import ScheduleWatch
from hostelry.autoscaler.target_watch import TargetWatch
from hostelry.base.clock import Clock, MonotonicClock
from hostelry.base.errors import RetryableError, ServiceError, TerminalError
from hostelry.base.recurring import run_again, run_guarded, run_until_done
from hostelry.domain.endpoint import Deployment, Endpoint
from hostelry.domain.load import Wake
from hostelry.domain.scope import Scope
from hostelry.domain.shape import Shape
from hostelry.metrics.persistence.durable import DurableMetrics
from hostelry.metrics.sagemaker.census import Census
from hostelry.metrics.sagemaker.load_aggregator import LoadAggregator
from hostelry.metrics.sagemaker.publisher import Publisher
from hostelry.server.exposition import Exposition, ExpositionRoute
from hostelry.server.home import Credentials, Home, UpConfig
from hostelry.server.otel import OtelExport, is_wanted
from hostelry.server.scaling_routes import ScalingRoutes
from hostelry.store.records import State

LOG = logging.getLogger(__name__)
TICK_S = 1.0
WATCH_S = 1.0
AGAIN_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Something that runs until it is cancelled."""

    name: str
    run: Callable[[], Awaitable[None]]


class Scaling:
    """One control process's metrics, alarms and scaling; `run` until cancelled, then `close`."""

    def __init__(
        self,
        home: Home,
        config: UpConfig,
        credentials: Credentials,
        state: State,
        clock: Clock,
        shape_of: Callable[[str], Shape],
        census: Callable[[], Census],
    ) -> None:
        self._state = state
        self._clock = clock
        self.metrics = DurableMetrics(home.metrics, clock, max_bytes=config.metrics_bytes)
        self._context_of = self._contexts(credentials, shape_of, config.pace)
        self.board = LoadAggregator(clock.now())
        self.scaler = TargetScaler(
            ScalerDeps(
                state=state,
                loads=self.board,
                clock=clock,
                steady=MonotonicClock(),
                refuse_fewer=self._refusal,
                pace=config.pace,
            )
        )
        self.history = History(state, self.metrics, self.board, self.scaler.capacities)
        self.routes = ScalingRoutes(state, self.scaler, self.history, clock).routes()
        self._poster = WebPoster()
        self._alarms = AlarmWatch(
            AlarmWatchDeps(state=state, metrics=self.metrics, scaler=self.scaler, clock=clock),
            AlarmActionDeps(
                state=state,
                clock=clock,
                addresses_of=AddressFile(home.actions).of,
                post=self._poster.post,
            ),
        )
        self._publisher = Publisher(self.board, self.metrics, census, clock)
        self.exposition = Exposition(
            self._publisher.totals, self.board, census, state, clock, self.metrics
        )
        scrape = ExpositionRoute(self.exposition).serve
        self.routes = (*self.routes, Route("/internal/metrics", scrape, methods=["GET"]))
        self._responsive = ResponsiveWatch(
            ResponsiveWatchDeps(
                state=state,
                scaler=self.scaler,
                clock=clock,
                steady=MonotonicClock(),
                metrics=self.metrics,
            )
        )
        self._responsive.listen(self.board)
        self._rescheduled = asyncio.Event()
        self._schedules = ScheduleWatch(state, clock, self.scaler.tell_bounds)

    async def run(self) -> None:
        """Run every part until cancelled."""
        await run_until_done("taking up acts of scaling", self._recover, AGAIN_S, self._clock)
        await run_guarded("renewing the alarms of scaling policies", self._renew)
        async with asyncio.TaskGroup() as tasks:
            for part in self._parts():
                kept_up = run_again(part.name, part.run, AGAIN_S, self._clock)
                tasks.create_task(kept_up, name=part.name)

    def wake(self, wake: Wake) -> None:
        """Give a name without a copy its first one; what cannot be now is asked for again."""
        try:
            self.scaler.wake(wake)
        except RetryableError as error:
            LOG.warning("nothing is started for %s now: %s", wake.key, error)

    def close(self) -> None:
        """Give the files back."""
        self.metrics.close()

    def _parts(self) -> list[Part]:
        return [
            Part(name="following scalable targets", run=self._follow),
            Part(name="following acts of scaling", run=self._tick),
            Part(name="firing scheduled actions", run=self._fire),
            Part(name="publishing metrics", run=self._publisher.run),
            *self._exports(),
            Part(name="watching alarms", run=self._watch_alarms),
            Part(name="watching for sudden load", run=self._respond),
            Part(name="keeping the history of targets", run=self._remember),
        ]

    def _exports(self) -> list[Part]:
        """What sends metrics elsewhere; nothing where that is not wanted, or cannot be."""
        if not is_wanted(os.environ):
            return []
        try:
            export = OtelExport(self.exposition.collect, self._clock, os.environ)
        except TerminalError as error:
            LOG.error("%s", error)  # noqa: TRY400 - what is to be done is all in the message
            return []
        return [Part(name="exporting metrics", run=export.run)]

    async def _recover(self) -> None:
        await asyncio.to_thread(self.scaler.recover)

    async def _renew(self) -> None:
        await asyncio.to_thread(renew_alarms, self._state, self._context_of)

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()

        def rescheduled() -> None:
            loop.call_soon_threadsafe(self._rescheduled.set)

        watch = TargetWatch(self._state, self.scaler, rescheduled)
        await asyncio.to_thread(self.scaler.settle_all)
        while True:
            await asyncio.to_thread(watch.follow, WATCH_S)

    async def _tick(self) -> None:
        while True:
            await asyncio.to_thread(self._look)
            await self._clock.sleep(TICK_S)

    def _look(self) -> None:
        self.board.tick(self._clock.now())
        self.scaler.tick()

    async def _remember(self) -> None:
        while True:
            await asyncio.to_thread(lambda: self.history.write(self._clock.now()))
            await self._clock.sleep(TICK_S)

    async def _respond(self) -> None:
        while True:
            await asyncio.to_thread(self._responsive.wait, WATCH_S)
            await asyncio.to_thread(self._responsive.tick)

    async def _watch_alarms(self) -> None:
        try:
            await self._alarms.run()
        finally:
            await self._poster.close()

    async def _fire(self) -> None:
        while True:
            self._rescheduled.clear()
            await asyncio.to_thread(self._schedules.fire)
            wait_s = max(0.0, await asyncio.to_thread(self._schedules.next_at) - self._clock.now())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._rescheduled.wait()

    def _refusal(self, endpoint: Endpoint, wanted: Deployment) -> str | None:
        """Why an endpoint cannot have fewer instances; as UpdateEndpointWeightsAndCapacities."""
        try:
            check_room_for_copies(self._context_of(endpoint.scope), endpoint, wanted)
        except ServiceError as error:
            return error.message
        return None

    def _contexts(
        self, credentials: Credentials, shape_of: Callable[[str], Shape], pace: float
    ) -> Callable[[Scope], Context]:
        """What operations of control itself are given, by the scope that they are in."""
        return lambda scope: Context(
            scope=scope,
            state=self._state,
            now=self._clock.now(),
            shape_of=shape_of,
            role_arn=credentials.role_arn,
            role_name=credentials.role_name,
            pace=pace,
            metrics=self.metrics,
        )


@contextlib.asynccontextmanager
async def running(scaling: Scaling) -> AsyncIterator[Scaling]:
    """Run it for as long as the block lasts, and close it."""
    task = asyncio.create_task(scaling.run())
    try:
        yield scaling
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        scaling.close()
