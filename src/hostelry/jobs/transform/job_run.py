"""One transform job: its copies get its objects, until all are done or failed.

end of an attempt at an object                         state of the object
----------------------------------------------------   --------------------------------------------
the output is written                                  done
the copy takes no connection, or the store is down     waiting for another attempt
the copy broke off                                     waiting. After the third time: failed
any other                                              failed. Other objects continue
"""

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from hostelry.base.clock import Clock
from hostelry.base.concurrency import run_guarded
from hostelry.base.errors import HostelryError
from hostelry.dataplane.metering.meter import Meter
from hostelry.dataplane.routes import RouteSource
from hostelry.domain.routes import CopyRoute
from hostelry.domain.transform_job import (
    VARIANT_NAME,
    TransformEnd,
    TransformJob,
    TransformJobStatus,
    TransformProgress,
    TransformProgressReport,
)
from hostelry.http1.upstream import UpstreamPool
from hostelry.jobs.control_client import (
    ControlDownError,
    ControlRefusedError,
    HttpJobsControl,
)
from hostelry.jobs.copy_parameters import (
    PayloadSettings,
    choose_payload_settings,
    get_execution_parameters,
)
from hostelry.jobs.data_log import DataLog
from hostelry.jobs.objects.object_store import ObjectError, ObjectStore, ObjectStoreDownError
from hostelry.jobs.records.processing import RecordProcessing
from hostelry.jobs.records.splitting import RecordError
from hostelry.jobs.transform.copy_calls import CopyBrokeError, CopyCalls, CopyGoneError
from hostelry.jobs.transform.object_rows import (
    AT_ONCE,
    NumberedObject,
    ObjectRows,
    ObjectTotals,
    list_objects,
    row_key,
    write_manifests,
)
from hostelry.jobs.transform.object_work import ObjectDeps, ObjectWork
from hostelry.store.protocol import StoreUnavailable

LOG = logging.getLogger(__name__)
LOOK_S = 0.5
REPORT_S = 1.0
AGAIN_S = 1.0
MAX_BREAKS = 3
MAX_REASON_CHARS = 1024
Found = TypeVar("Found")
DEFECT = "An internal error; the log of the jobs process has its cause."


class RunDeps(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of all jobs."""

    store: ObjectStore
    rows: ObjectRows
    routes: RouteSource
    pool: UpstreamPool
    meter: Meter
    control: HttpJobsControl
    data_log: DataLog
    clock: Clock


class JobRun:
    """Runs one job. `run` returns once control knows its end."""

    def __init__(self, job: TransformJob, deps: RunDeps) -> None:
        self._job = job
        self._key = row_key(job)
        self._deps = replace(deps, store=deps.store.acting_for(job.scope.account))
        self._waiting: deque[NumberedObject] = deque()
        self._last_read = 0
        self._is_read = False
        self._running: dict[asyncio.Task[None], str] = {}  # the copy of each
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._blocked_until: dict[str, float] = {}
        self._breaks: Counter[int] = Counter()
        self._woken = asyncio.Event()
        self._totals: ObjectTotals | None = None
        self._trouble: tuple[str, float] | None = None  # and until when it counts

    async def run(self) -> None:
        """Run the job to its end."""
        async with asyncio.TaskGroup() as group:
            reports = group.create_task(self._report())
            end = await self._do_work()
            reports.cancel()
        await report_end(self._deps, end)

    async def _do_work(self) -> TransformEnd:
        """Do the work, and return how the job ended."""
        try:
            await self._until_up(lambda: list_objects(self._job, self._deps.store, self._deps.rows))
            self._totals = await self._until_up(self._read_totals)
            await self._share_out()
            await self._until_up(
                lambda: write_manifests(self._job, self._deps.store, self._deps.rows)
            )
        except (ObjectError, RecordError) as error:
            return self._end(f"ClientError: {error}")
        totals = self._totals = await self._until_up(self._read_totals)
        if not totals.failed:
            return self._end(None)
        return self._end(
            f"ClientError: {totals.failed} of {totals.objects} objects failed. The first:"
            f" {totals.first_failed}"
        )

    async def _read_totals(self) -> ObjectTotals:
        return await asyncio.to_thread(self._deps.rows.sum_up, self._key)

    async def _until_up(self, step: Callable[[], Awaitable[Found]]) -> Found:
        """Do `step`, and repeat it while the object store is down or the file cannot be written."""
        while True:
            try:
                return await step()
            except (ObjectStoreDownError, StoreUnavailable) as error:
                LOG.warning("transform job %s waits: %s", self._job.name, error)
                await self._pause(error)

    async def _pause(self, error: HostelryError) -> None:
        """Wait before another attempt. Progress reports have the error meanwhile."""
        clock = self._deps.clock
        self._trouble = (str(error)[:MAX_REASON_CHARS], clock.now() + AGAIN_S + 2 * REPORT_S)
        await clock.sleep(AGAIN_S)

    async def _share_out(self) -> None:
        deps = await self._object_deps()
        try:
            while True:
                await self._read_more()
                while self._waiting and (copy := self._choose(deps.settings)) is not None:
                    self._start(deps, copy, self._waiting.popleft())
                    await self._read_more()
                if not self._waiting and not self._running:
                    return
                await self._wait_a_moment()
        finally:
            for task in list(self._running):
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    async def _object_deps(self) -> ObjectDeps:
        """Wait for a copy, and read the settings from it."""
        calls = CopyCalls(self._job, self._deps.pool, self._deps.meter, self._deps.clock)
        while not (copies := self._copies()):
            await self._wait_a_moment()
        answer = await get_execution_parameters(self._deps.pool, copies[0])
        settings = choose_payload_settings(self._job, answer)
        return ObjectDeps(
            job=self._job,
            store=self._deps.store,
            calls=calls,
            settings=settings,
            processing=build_processing(self._job),
        )

    async def _wait_a_moment(self) -> None:
        """Wait until an object ends, or for a moment, because copies may change."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._woken.wait()
        self._woken.clear()

    async def _read_more(self) -> None:
        """Read more objects from the rows, if there are any."""
        if self._waiting or self._is_read:
            return
        found = await self._until_up(
            lambda: asyncio.to_thread(self._deps.rows.list_waiting, self._key, self._last_read)
        )
        self._is_read = len(found) < AT_ONCE
        if found:
            self._last_read = found[-1].number
            self._waiting.extend(found)

    def _copies(self) -> list[CopyRoute]:
        endpoint = self._deps.routes.table.endpoint(self._job.scope, self._job.endpoint_name)
        variants = () if endpoint is None else endpoint.variants
        return [copy for it in variants for copy in it.copies]

    def _choose(self, settings: PayloadSettings) -> CopyRoute | None:
        """Choose the copy with the fewest objects. It gets one more object than it has slots."""
        now, count = self._deps.clock.now(), Counter(self._running.values())
        able = [it for it in self._copies() if self._blocked_until.get(it.id, now) <= now]
        free = [it for it in able if count[it.id] <= settings.max_concurrent]
        return min(free, key=lambda it: (count[it.id], it.id), default=None)

    def _start(self, deps: ObjectDeps, copy: CopyRoute, found: NumberedObject) -> None:
        if copy.id not in self._slots:
            self._slots[copy.id] = asyncio.Semaphore(deps.settings.max_concurrent)
            self._say(deps.settings.text, copy)
        work = ObjectWork(deps, copy, self._slots[copy.id], found)
        task = asyncio.create_task(self._attempt(work, copy, found))
        self._running[task] = copy.id
        task.add_done_callback(self._note_end)

    def _note_end(self, task: "asyncio.Task[None]") -> None:
        self._running.pop(task, None)
        self._woken.set()

    async def _attempt(self, work: ObjectWork, copy: CopyRoute, found: NumberedObject) -> None:
        """Try an object once. A defect fails the object and not the job."""

        async def attempt() -> None:
            await self._try(work, copy, found)

        if not await run_guarded(f"object {found.uri}", attempt):
            await self._note(found, 0, f"{found.uri}: {DEFECT}", copy)

    async def _try(self, work: ObjectWork, copy: CopyRoute, found: NumberedObject) -> None:
        try:
            records = await work.run()
        except CopyGoneError as error:
            LOG.info("copy %s of transform job %s: %s", copy.id, self._job.name, error)
            self._blocked_until[copy.id] = self._deps.clock.now() + AGAIN_S
            self._waiting.appendleft(found)
        except ObjectStoreDownError as error:
            LOG.warning("%s waits: %s", found.uri, error)
            await self._pause(error)
            self._waiting.appendleft(found)
        except (ObjectError, RecordError) as error:
            self._breaks[found.number] += isinstance(error, CopyBrokeError)
            if 0 < self._breaks[found.number] < MAX_BREAKS and isinstance(error, CopyBrokeError):
                self._say(f"{found.uri} is to be done again: {error}", copy)
                self._waiting.append(found)
                return
            await self._note(found, 0, f"{found.uri}: {error}", copy)
        else:
            await self._note(found, records, None, copy)

    def _say(self, text: str, copy: CopyRoute) -> None:
        job = self._job
        self._deps.data_log.note(job.scope, job.endpoint_name, VARIANT_NAME, text, copy.id)

    async def _note(
        self, found: NumberedObject, records: int, reason: str | None, copy: CopyRoute
    ) -> None:
        """Record the end of an object. While the file cannot be written, the object stays open."""
        if reason is not None:
            self._say(reason, copy)
            reason = reason[:MAX_REASON_CHARS]
        while True:
            try:
                await asyncio.to_thread(
                    self._deps.rows.mark_ended, self._key, found.number, records, reason
                )
                break
            except HostelryError as error:
                LOG.warning("the end of %s cannot be kept: %s", found.uri, error)
                await self._pause(error)

    async def _report(self) -> None:
        """Report progress about once a second."""
        while True:
            await self._deps.clock.sleep(REPORT_S)
            if self._totals is None and self._trouble is None:
                continue
            try:
                if self._totals is not None:
                    self._totals = await self._read_totals()
                report = TransformProgressReport(
                    scope=self._job.scope, name=self._job.name, progress=self._build_progress()
                )
                await self._deps.control.report_transform_progress(report)
            except HostelryError as error:
                LOG.info("the progress of %s was not taken: %s", self._job.name, error)

    def _build_progress(self) -> TransformProgress:
        totals, now = self._totals, self._deps.clock.now()
        text, until = self._trouble or (None, now)
        trouble = text if now < until else None
        if totals is None:
            return TransformProgress(trouble=trouble)
        return TransformProgress(
            objects=totals.ended,
            objects_total=totals.objects,
            failed_objects=totals.failed,
            records=totals.records,
            bytes=totals.bytes,
            bytes_total=totals.bytes_total,
            at=now,
            trouble=trouble,
        )

    def _end(self, reason: str | None) -> TransformEnd:
        self._trouble = None
        return TransformEnd(
            scope=self._job.scope,
            name=self._job.name,
            status=TransformJobStatus.COMPLETED if reason is None else TransformJobStatus.FAILED,
            reason=None if reason is None else reason[:MAX_REASON_CHARS],
            progress=self._build_progress(),
        )


def build_processing(job: TransformJob) -> RecordProcessing | None:
    """Build the processing of a job's records. None if records are passed on unchanged."""
    marks = job.capture is not None and job.capture.adds_inference_id
    if not job.processing.changes_records and not marks:
        return None
    content_type = job.input.content_type or job.output.accept or ""
    return RecordProcessing(job.processing, content_type, marks)


async def report_end(deps: RunDeps, end: TransformEnd) -> None:
    """Report to control how a job ended, and repeat until it has taken the report."""
    while True:
        try:
            return await deps.control.report_transform_end(end)
        except (ControlDownError, ControlRefusedError) as error:
            LOG.warning("the end of transform job %s is not taken yet: %s", end.name, error)
            await deps.clock.sleep(AGAIN_S)
