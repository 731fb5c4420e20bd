"""The process for jobs: ``python -m hostelry.services.jobs --home DIR``.

It keeps asynchronous requests, and runs them also while control or the gateway is away. It may be
killed at any moment. Acknowledged requests are in its file, and its successor takes over.
"""

import argparse
import asyncio
import contextlib
import fcntl
import gc
import logging
import os
import shutil
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from hostelry.aws.s3_signing import OwnKey
from hostelry.base import tls
from hostelry.base.clock import SystemClock
from hostelry.base.concurrency import run_periodically, stop_event
from hostelry.base.errors import TerminalError
from hostelry.base.files import write_whole
from hostelry.base.logging import configure_logging
from hostelry.cluster.control_access import control_access
from hostelry.dataplane.http.reader import HttpLimits
from hostelry.dataplane.http.server import HttpServer
from hostelry.dataplane.metering.meter import Meter
from hostelry.dataplane.routes import PublishedRoutes, RouteFile
from hostelry.domain.transform_job import TransformSnapshot
from hostelry.gateway.handlers.openai_batches import UPLOADS
from hostelry.home.heartbeat import answer_heartbeats
from hostelry.home.home import (
    Credentials,
    Home,
    UpConfig,
    load_config,
    load_credentials,
    log_format,
)
from hostelry.home.ports import bind
from hostelry.http1.upstream import Upstream, UpstreamPool
from hostelry.jobs.ai_benchmarks.ai_benchmark_work import (
    build_ai_benchmark_work,
    build_llm_search_work,
)
from hostelry.jobs.ai_benchmarks.aiperf_load import find_aiperf
from hostelry.jobs.batches.batch_work import BatchOverview
from hostelry.jobs.control_client import HttpJobsControl
from hostelry.jobs.data_log import DataLog
from hostelry.jobs.dispatch.async_work import IDLE_S, AsyncWork, WorkPlaces
from hostelry.jobs.http import JobsApi, Submissions
from hostelry.jobs.objects.object_store import ObjectStore
from hostelry.jobs.queue.protocol import QueueCommits
from hostelry.jobs.queue.request_rows import RequestRows
from hostelry.jobs.queue.work_claims import SharedWork, WorkClaims
from hostelry.jobs.recommendations.benchmark_work import build_benchmark_work
from hostelry.jobs.snapshot_work import SnapshotDeps, SnapshotWork
from hostelry.jobs.transform.job_run import RunDeps
from hostelry.jobs.transform.object_rows import ObjectRows
from hostelry.jobs.transform.transform_work import build_transform_work
from hostelry.services.databases import get_host_name, open_queue
from hostelry.services.job_batches import ProcessParts, build_batches
from hostelry.services.job_capture import build_capture
from hostelry.services.worker_parts import raise_file_limit, wait_for_end

LOG = logging.getLogger("hostelry.services.jobs")  # it runs as __main__
HOST = "127.0.0.1"
STOP_GRACE_S = 2.0
DRAIN_S = 2.0  # for running requests. Later ones are queued again.
SWEEP_S = 60.0


async def serve(home: Home) -> None:
    """Serve until SIGTERM or SIGINT."""
    config, credentials = load_config(home), load_credentials(home)
    tls.use(home.tls)
    clock, queue = SystemClock(), open_queue(home, config)
    commits = QueueCommits(queue)
    rows = RequestRows(queue)
    polls, platform = UpstreamPool(), UpstreamPool(IDLE_S)
    to_control = control_access(home, config, credentials, platform)
    routes = PublishedRoutes(
        to_control(polls),
        config.control_url,
        credentials.internal_key,
        RouteFile(home.jobs_routes, write_whole),
        clock,
    )
    places, meter = work_places(home, config, credentials, to_control), Meter(clock.now)
    parts = ProcessParts(
        database=queue.database,
        host=places.host,
        routes=routes,
        copies=UpstreamPool(),
        platform=platform,
        control=to_control(platform),
        meter=meter,
        clock=clock,
    )
    store = object_store(places, parts)
    capture = build_capture(home, config, places.internal_key, store, parts)
    shared = SharedWork(WorkClaims(queue.database, places.host) if places.host else None, clock)
    asynchronous = AsyncWork(commits, routes, places, meter, capture.requests, clock, shared)
    on_instances = run_on_instances(home, config, places, parts, asynchronous.data_log, shared)
    batches = build_batches(home, config, credentials, parts)
    submissions = Submissions(commits, asynchronous.wake)
    api = JobsApi(
        submissions=submissions,
        queue=queue,
        rows=rows,
        openai=batches.api,
        batches=BatchOverview(batches.api.rows, batches.work),
        internal_key=credentials.internal_key,
        clock=clock,
    )
    limits = HttpLimits(max_body_bytes=1024 * 1024, streamed_bodies=UPLOADS)
    server = HttpServer(api.handle, api.refusal_answer, limits, clock, admit=api.admit)
    loop, stopping = asyncio.get_running_loop(), stop_event()
    await server.start(bind(HOST, config.jobs_port))
    gc.collect()
    gc.freeze()  # later collections skip the imported modules
    heartbeats = loop.create_task(answer_heartbeats())

    async def sweep() -> None:
        await asyncio.to_thread(rows.sweep, clock.now())
        if await shared.has_turn("forgetting files and batches", SWEEP_S):
            await batches.sweep()

    work: dict[str, Coroutine[Any, Any, None]] = {
        "forgetting old requests": run_periodically("forgetting old requests", sweep, SWEEP_S),
        "looking at time limits": server.sweep_forever(),
        "following routes": routes.follow(),
        **asynchronous.tasks(),
        **on_instances,
        **batches.tasks(),
        **capture.tasks(),
    }
    tasks = {name: loop.create_task(step) for name, step in work.items()}
    cause = await wait_for_end(tasks, stopping)
    await server.stop(STOP_GRACE_S)
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    await asynchronous.drain(DRAIN_S)
    await capture.finish()
    await commits.finish()
    for pool in (polls, parts.copies, parts.platform):
        pool.close()
    queue.close()
    heartbeats.cancel()
    if cause is not None:
        raise TerminalError(cause)


def run_on_instances(
    home: Home,
    config: UpConfig,
    places: WorkPlaces,
    parts: ProcessParts,
    data_log: DataLog,
    shared: SharedWork,
) -> Mapping[str, Coroutine[Any, Any, None]]:
    """The tasks of jobs that have their own instances."""
    shutil.rmtree(home.aiperf, ignore_errors=True)  # of a predecessor that was killed
    aiperf = partial(find_aiperf, os.environ, home.aiperf)
    transforms = build_transforms(config, places, parts, data_log, shared)
    deps = SnapshotDeps(
        store=object_store(places, parts),
        routes=parts.routes,
        pool=parts.copies,
        meter=parts.meter,
        control=HttpJobsControl(parts.control, config.control_url, places.internal_key),
        data_log=data_log,
        clock=parts.clock,
    )
    return {
        **transforms.tasks(),
        **build_benchmark_work(deps, shared).tasks(),
        **build_ai_benchmark_work(deps, shared, aiperf).tasks(),
        **build_llm_search_work(deps, shared).tasks(),
    }


def build_transforms(
    config: UpConfig,
    places: WorkPlaces,
    parts: ProcessParts,
    data_log: DataLog,
    shared: SharedWork,
) -> SnapshotWork[TransformSnapshot]:
    """The transform jobs of this process."""
    return build_transform_work(
        RunDeps(
            store=object_store(places, parts),
            rows=ObjectRows(parts.database),
            routes=parts.routes,
            pool=parts.copies,
            meter=parts.meter,
            control=HttpJobsControl(parts.control, config.control_url, places.internal_key),
            data_log=data_log,
            clock=parts.clock,
        ),
        shared,
    )


def object_store(places: WorkPlaces, parts: ProcessParts) -> ObjectStore:
    """A client of the object store."""
    return ObjectStore(places.s3_url, places.s3_key, parts.platform, parts.clock.now)


def work_places(
    home: Home,
    config: UpConfig,
    credentials: Credentials,
    to_control: Callable[[Upstream], Upstream],
) -> WorkPlaces:
    """The addresses and keys of the object store and of control."""
    return WorkPlaces(
        s3_url=config.s3_url,
        s3_key=OwnKey(
            access_key_id=credentials.access_key_id,
            secret_access_key=credentials.secret_access_key,
            region=credentials.region,
        ),
        control_url=config.control_url,
        internal_key=credentials.internal_key,
        host=get_host_name(home, config),
        to_control=to_control,
    )


@contextlib.contextmanager
def hold_lock(lock: Path) -> Iterator[None]:
    """Hold `lock` for the block. Raises TerminalError if another process has it."""
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TerminalError(f"another process for jobs holds {lock}") from None
        yield


def main() -> None:
    """Parse the arguments and run. On an error, print a line and exit with code 1."""
    parser = argparse.ArgumentParser(prog="python -m hostelry.services.jobs", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the home folder")
    home = Home(parser.parse_args().home)
    configure_logging("jobs", log_format=log_format(home))
    raise_file_limit()
    try:
        with hold_lock(home.jobs_lock):
            uvloop.run(serve(home))
    except (TerminalError, OSError) as error:
        sys.exit(f"the process for jobs cannot run: {error}")


if __name__ == "__main__":
    main()
