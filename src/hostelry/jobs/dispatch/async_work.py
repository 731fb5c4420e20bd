"""Wires all work on asynchronous requests in one process: its tasks, and its drain."""

import asyncio
import logging
import os
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec

from hostelry.aws.s3_signing import OwnKey
from hostelry.base.clock import Clock, monotonic_s
from hostelry.base.concurrency import run_guarded, run_periodically, run_until_done
from hostelry.dataplane.capture.capture import RequestCapture
from hostelry.dataplane.metering.load_sender import LoadBacklog, LoadSender
from hostelry.dataplane.metering.meter import Meter
from hostelry.dataplane.routes import RouteSource
from hostelry.domain.scope import Scope
from hostelry.http1.upstream import Upstream, UpstreamPool
from hostelry.jobs.control_client import HttpJobsControl
from hostelry.jobs.data_log import SEND_S, DataLog
from hostelry.jobs.dispatch.async_dispatcher import AsyncDispatcher, DispatchDeps
from hostelry.jobs.dispatch.attempt import AttemptDeps, CopyAttempts
from hostelry.jobs.dispatch.endings import RequestEnds
from hostelry.jobs.dispatch.metric_reports import REPORT_S, AsyncMeasurements, MetricReports
from hostelry.jobs.dispatch.outbox import Outbox
from hostelry.jobs.dispatch.queue_watch import QueueWatch
from hostelry.jobs.dispatch.slots import RENEW_S, CopySlots, RunningRequests
from hostelry.jobs.objects.object_output import AnswerWriter
from hostelry.jobs.objects.object_store import ObjectStore
from hostelry.jobs.queue.durable_queue import host_prefix
from hostelry.jobs.queue.protocol import QueueCommits
from hostelry.jobs.queue.work_claims import SharedWork

LOG = logging.getLogger(__name__)
WORKER = "jobs"
TAKE_OVER_S = 1.0
WATCH_S = 1.0
IDLE_S = 20.0  # how long connections to the object store and to control may be idle


class WorkPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses and keys of the object store and of control.

    `host` names this host if jobs processes of several hosts share the queue. `to_control` sends
    requests to control.
    """

    s3_url: str
    s3_key: OwnKey
    control_url: str
    internal_key: str
    host: str | None = None
    to_control: Callable[[Upstream], Upstream] = lambda pool: pool


class AsyncWork:
    """Works on the requests of a queue.

    Args:
        commits: all commits of this process to the queue.
        routes: ready copies.
        places: addresses and keys of the object store and of control.
        meter: measures requests on copies. No other process uses it.
        capture: keeps records of requests that have ended.
        clock: the time.
        shared: assigns work to one of several hosts.
    """

    def __init__(
        self,
        commits: QueueCommits,
        routes: RouteSource,
        places: WorkPlaces,
        meter: Meter,
        capture: RequestCapture,
        clock: Clock,
        shared: SharedWork,
    ) -> None:
        self._commits, self._clock, self._host = commits, clock, places.host
        worker = f"{host_prefix(places.host)}{WORKER}" if places.host else WORKER
        self._has_taken_over = asyncio.Event()
        self._copies, self._platform = UpstreamPool(), UpstreamPool(IDLE_S)
        to_control = places.to_control(self._platform)
        control = HttpJobsControl(to_control, places.control_url, places.internal_key)
        store = ObjectStore(places.s3_url, places.s3_key, self._platform, clock.now)
        measurements = AsyncMeasurements()
        self.data_log = DataLog(control.keep_lines, clock)
        self._outbox = Outbox(commits, control, routes, measurements, clock)
        slots = CopySlots(random.Random().random, monotonic_s)
        attempts = AttemptDeps(
            store=store,
            writer=AnswerWriter(store),
            pool=self._copies,
            slots=slots,
            meter=meter,
            measurements=measurements,
            now_s=monotonic_s,
        )
        self._running = RunningRequests(commits, clock)
        ends = RequestEnds(commits, store, measurements, clock, self._outbox.wake)
        self._dispatcher = AsyncDispatcher(
            DispatchDeps(
                commits=commits,
                routes=routes,
                slots=slots,
                running=self._running,
                attempts=CopyAttempts(attempts),
                ends=ends,
                measurements=measurements,
                data_log=self.data_log,
                capture=capture,
                clock=clock,
                owner=f"{worker}-{os.getpid()}",
            )
        )
        self._watch = QueueWatch(
            commits, routes, control, ends, measurements, clock, self._dispatcher.wake
        )
        self._reports = MetricReports(measurements, control, clock, shared, places.host or "")
        self._load = LoadSender(
            meter,
            LoadBacklog(worker, clock.now()),
            to_control,
            places.control_url,
            places.internal_key,
            clock,
        )

    def wake(self, scope: Scope, endpoint_name: str) -> None:
        """Begin requests of this endpoint that are in the queue, if a slot is free."""
        self._dispatcher.wake(scope, endpoint_name)

    @property
    def num_running(self) -> int:
        """Number of running requests."""
        return self._running.num_running

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """The tasks by name. Each runs until it is cancelled."""
        return {
            "handing out requests": self._hand_out(),
            "renewing leases": run_periodically("renewing leases", self._running.renew, RENEW_S),
            "watching queues": self._watch_queues(),
            "sending notifications": self._notify(),
            "reporting metrics": run_periodically("metrics", self._reports.send, REPORT_S),
            "writing data logs": run_periodically("data logs", self.data_log.flush, SEND_S),
            "reporting load": self._load.run(),
        }

    async def drain(self, grace_s: float) -> None:
        """Finish requests within `grace_s`, and queue the rest again. The tasks must have ended."""
        await self._running.drain(grace_s)
        await run_guarded("the last notifications", self._outbox.send_due)
        await run_guarded("the last metrics", self._reports.finish)
        await run_guarded("the last lines of data logs", self.data_log.flush)
        await self._load.finish()
        self._copies.close()
        self._platform.close()

    async def _hand_out(self) -> None:
        """Take over the requests of an earlier process of this host, and then begin others."""
        await run_until_done("taking over requests", self._take_over, TAKE_OVER_S, self._clock)
        self._has_taken_over.set()
        await self._dispatcher.run()

    async def _watch_queues(self) -> None:
        await self._has_taken_over.wait()
        await run_periodically("watching queues", self._watch.look, WATCH_S)

    async def _take_over(self) -> None:
        released = await self._commits.write(lambda queue: queue.release_host(self._host))
        if released:
            LOG.info("%d requests that ran in an earlier process are queued again", released)

    async def _notify(self) -> None:
        failing = False
        while True:
            await self._outbox.wait()
            failing = not await run_guarded(
                "sending notifications", self._outbox.send_due, quiet=failing
            )
