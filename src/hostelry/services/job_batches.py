"""Batches of OpenAI's API in the jobs process, wired: their work, and the API in front of it."""

import asyncio
import random
from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec

from hostelry.base.clock import Clock, monotonic_s
from hostelry.dataplane.balancing.load_balancer import LoadBalancer
from hostelry.dataplane.balancing.outstanding import Outstanding
from hostelry.dataplane.control_client import HttpControlClient
from hostelry.dataplane.metering.meter import Meter
from hostelry.dataplane.routes import RouteSource
from hostelry.gateway.handlers.completions import Completions
from hostelry.gateway.queueing.pending_queue import PendingQueue
from hostelry.gateway.queueing.request_queues import QueueLimits
from hostelry.home.home import Credentials, Home, UpConfig
from hostelry.http1.upstream import Upstream, UpstreamPool
from hostelry.jobs.batches.batch_run import BatchDeps
from hostelry.jobs.batches.batch_work import BatchWork
from hostelry.jobs.batches.file_store import FileFolder, FileStore
from hostelry.jobs.batches.line_queue import CopySizes, LineCalls, SharedPools
from hostelry.jobs.batches.openai_api import FileRoom, OpenAiFilesApi
from hostelry.jobs.batches.rows import BatchClaims, BatchRows
from hostelry.jobs.batches.shared_files import SharedBatchRows, SharedFiles
from hostelry.services.gateway_memory import open_own_memory
from hostelry.store.database import Database

# What waits for a copy is bounded by the batches themselves.
WAITING = QueueLimits(max_requests=100_000, max_requests_each=100_000, max_bytes=8 * 1024**3)


class JobBatches(msgspec.Struct, frozen=True, kw_only=True):
    """Batches in this process."""

    work: BatchWork
    api: OpenAiFilesApi
    pending_queue: PendingQueue
    files: FileStore

    async def sweep(self) -> None:
        """Forget the batches of all hosts that are over."""
        await self.work.sweep()
        if isinstance(self.files, SharedFiles):
            await asyncio.to_thread(self.files.sweep)

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """What runs until it is cancelled, by name."""
        return {**self.work.tasks(), "holding lines of batches": self.pending_queue.run()}


class ProcessParts(msgspec.Struct, frozen=True, kw_only=True):
    """The process's own parts, such as its connections to copies and to the platform.

    `database` is the database that all hosts share, of which this is `host`. None if it is not
    shared.
    """

    database: Database
    host: str | None
    routes: RouteSource
    copies: UpstreamPool
    platform: UpstreamPool
    control: Upstream
    meter: Meter
    clock: Clock


def build_batches(
    home: Home, config: UpConfig, credentials: Credentials, parts: ProcessParts
) -> JobBatches:
    """Batches: on this machine, or with their files in the database that hosts share."""
    routes, copies, meter, clock = parts.routes, parts.copies, parts.meter, parts.clock
    outstanding = Outstanding()
    control = HttpControlClient(
        parts.control, config.control_url, credentials.internal_key, monotonic_s
    )
    pending_queue = PendingQueue(routes, control, outstanding, WAITING, clock, monotonic_s, meter)
    places = open_own_memory(clock.now).places
    balancer = LoadBalancer(copies, outstanding, random.Random().random, monotonic_s, places)
    completions = Completions(routes, balancer, pending_queue, config.stream_timeout_s)
    rows, files, claims = open_batches(home, parts)
    work = BatchWork(
        BatchDeps(
            rows=rows,
            files=files,
            routes=routes,
            calls=LineCalls(completions, config.max_body_bytes),
            sizes=CopySizes(copies, lambda: work.wake()),
            pools=SharedPools(),
            clock=clock,
            max_line_bytes=config.max_body_bytes,
        ),
        claims,
    )
    room = FileRoom(rows, config.files_bytes)
    api = OpenAiFilesApi(rows=rows, files=files, room=room, work=work, clock=clock)
    return JobBatches(work=work, api=api, pending_queue=pending_queue, files=files)


def open_batches(
    home: Home, parts: ProcessParts
) -> tuple[BatchRows, FileStore, BatchClaims | None]:
    """Open rows and files, without leftovers of an earlier process, and the claims of batches."""
    if parts.host is None:
        rows, folder = BatchRows(parts.database), FileFolder(home.files)
        folder.retain(rows.list_file_ids())
        return rows, folder, None
    files = SharedFiles(parts.database, parts.host, home.files, parts.clock)
    files.give_up_own()
    claims = BatchClaims(parts.database, parts.host)
    claims.give_back()
    return SharedBatchRows(parts.database, parts.host), files, claims
