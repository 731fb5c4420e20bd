"""One batch, from its validation to its files. The successor of a killed process finishes it.

The answer to a line is appended to the output file, or to the error file, as soon as it comes. A
run sends the lines that have no answer in these files yet.
"""

import asyncio
import contextlib
import functools
import logging
import os
from collections.abc import Awaitable, Callable
from typing import IO, TypeVar

import msgspec
from msgspec.structs import replace

from hostelry.base.clock import Clock
from hostelry.base.concurrency import run_guarded
from hostelry.base.errors import HostelryError
from hostelry.dataplane.routes import RouteSource
from hostelry.domain.llm_batch import (
    BatchStatus,
    LineFault,
    LlmBatch,
    RequestCounts,
    StoredFile,
    TokenUsage,
    kept_over,
)
from hostelry.jobs.batches.file_store import FileStore, ResultLines
from hostelry.jobs.batches.line_queue import (
    CopySizes,
    LineAnswer,
    LineCalls,
    LineQueue,
    SharedPools,
)
from hostelry.jobs.batches.rows import BatchClaim, BatchClaimLostError, BatchRows
from hostelry.jobs.records.batch_lines import (
    BatchLine,
    LineCheck,
    build_answer_line,
    build_error_line,
    build_result_id,
    get_request_body,
    parse_usage,
)
from hostelry.jobs.rules.next_step import End, Trouble, choose_next_step

LOG = logging.getLogger(__name__)
LOOK_S = 0.5
AGAIN_S = 1.0
CANCEL_GRACE_S = 10.0  # for requests that copies compute when a batch is cancelled
MAX_BYTES_IN_FLIGHT = 64 * 1024 * 1024  # of one batch's requests
OUTPUT_PURPOSE = "batch_output"
DEFECT = "An internal error; the log of the jobs process has its cause."
Result = TypeVar("Result")
RESULT_SUFFIXES = {"output": "output.jsonl", "error": "error.jsonl"}


class BatchDeps(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of all batches. `max_line_bytes` is the largest body that a copy takes."""

    rows: BatchRows
    files: FileStore
    routes: RouteSource
    calls: LineCalls
    sizes: CopySizes
    pools: SharedPools
    clock: Clock
    max_line_bytes: int


class BatchRun:
    """Runs one batch, under `claim` if hosts share batches. `run` returns at its end."""

    def __init__(self, batch: LlmBatch, deps: BatchDeps, claim: BatchClaim | None = None) -> None:
        self._batch = batch
        self._deps = deps
        self.claim = claim
        self._is_lost = False
        self._saved: LlmBatch | None = None
        self._changing = asyncio.Lock()
        self._woken = asyncio.Event()
        self._running: dict[asyncio.Task[None], BatchLine] = {}
        self._saving: set[asyncio.Task[None]] = set()  # tasks whose result is being written
        self._bytes_in_flight = 0
        self._completed = self._failed = 0
        self._usage = TokenUsage()
        self._input: IO[bytes] | None = None
        self._output: ResultLines | None = None
        self._errors: ResultLines | None = None
        self._is_expired = False
        self.has_begun = False
        self._trouble: str | None = None
        self._queue: LineQueue | None = None

    @property
    def batch(self) -> LlmBatch:
        """The batch with its current counts."""
        if self._batch.status.is_final:
            return self._batch
        counts = RequestCounts(
            total=self._batch.counts.total, completed=self._completed, failed=self._failed
        )
        return replace(self._batch, counts=counts, usage=self._usage)

    @property
    def trouble(self) -> str | None:
        """The cause that holds the batch up, if any."""
        return self._trouble or (None if self._queue is None else self._queue.trouble)

    def wake(self) -> None:
        """Check at once which lines can be sent."""
        self._woken.set()

    async def cancel(self) -> LlmBatch:
        """Cancel the batch, and return it. Raises StatusOrderError if it has ended."""
        async with self._changing:
            if self._batch.status is not BatchStatus.CANCELLING:
                await self._save(self._batch.went(BatchStatus.CANCELLING, self._deps.clock.now()))
        self.wake()
        return self.batch

    async def follow_cancellation(self, stored: LlmBatch) -> None:
        """Cancel the batch as another host did, whose row is `stored`."""
        async with self._changing:
            if not self._batch.status.is_final:
                self._batch = kept_over(stored, self.batch)
        self.wake()

    async def save_progress(self) -> None:
        """Save the progress of the batch, and its trouble, for other hosts to show."""
        async with self._changing:
            shown = replace(self.batch, trouble=self.trouble)
            if shown != self._saved and not shown.status.is_final:
                await self._save(shown)
                self._saved = shown

    def give_up(self) -> None:
        """Stop without saving anything, because another host runs the batch now."""
        self._is_lost = True
        self.wake()

    async def run(self) -> None:
        """Run the batch to its end. If the task is cancelled, copies and files are released."""
        try:
            lines = await self._check_input()
            if lines is None:
                return
            await self._retry_until_saved(self._open_results)
            await self._send_all(lines)
            while not self._batch.status.is_final:
                await self._retry_until_saved(self._finish)
        except BatchClaimLostError as error:
            LOG.warning("batch %s is given up here: %s", self._batch.id, error)
        finally:
            self._deps.pools.remove(self._batch.id)
            for task in list(self._running):
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)
            for file in (self._input, self._output, self._errors):
                if file is not None:
                    file.close()
            self._input = self._output = self._errors = None

    async def fail(self, code: str, message: str) -> None:
        """End the batch after a defect of the platform."""
        async with self._changing:
            while not (batch := self._batch).status.is_final:
                now = self._deps.clock.now()
                if batch.status is BatchStatus.CANCELLING:
                    await self._save(batch.went(BatchStatus.CANCELLED, now))
                else:
                    faulty = replace(batch, faults=(LineFault(code=code, message=message),))
                    await self._save(faulty.went(BatchStatus.FAILED, now))

    async def _check_input(self) -> list[BatchLine] | None:
        """Read and check the lines of the input. None if it is invalid, which ends the batch."""
        await self._retry_until_saved(self._open_input)
        if self._input is None:
            await self.fail("input_file_missing", "The input file is not there any more.")
            return None
        check = await asyncio.to_thread(self._check, self._input)
        async with self._changing:
            batch, now = self._batch, self._deps.clock.now()
            faults = check.list_faults()
            if batch.status is not BatchStatus.VALIDATING:
                return check.lines
            if faults:
                failed = replace(batch, faults=tuple(faults)).went(BatchStatus.FAILED, now)
                await self._retry_until_saved(lambda: self._save(failed))
                return None if self._batch.status.is_final else check.lines
            counted = replace(batch, counts=RequestCounts(total=len(check.lines)))
            begun = counted.went(BatchStatus.IN_PROGRESS, now)
            await self._retry_until_saved(lambda: self._save(begun))
        return check.lines

    def _check(self, file: IO[bytes]) -> LineCheck:
        check = LineCheck(self._batch.endpoint, self._deps.max_line_bytes)
        most = self._deps.max_line_bytes + 1
        while not check.is_full and (line := file.readline(most)):
            check.add(line, 0 if line.endswith(b"\n") else skip_line(file, most))
        return check

    async def _open_input(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._input = await asyncio.to_thread(self._deps.files.open, self._batch.input_file_id)

    async def _open_results(self) -> None:
        batch, files = self._batch, self._deps.files
        if self._output is None:
            self._output = files.open_results(batch.output_file_id, self.claim, self._note_trouble)
        if self._errors is None:
            self._errors = files.open_results(batch.error_file_id, self.claim, self._note_trouble)

    async def _send_all(self, lines: list[BatchLine]) -> None:
        """Send the lines that have no result, until every line has a result or the batch ends."""
        output, errors = self._get_results()
        done = await self._retry_until_saved(lambda: asyncio.to_thread(output.recover))
        failed = await self._retry_until_saved(lambda: asyncio.to_thread(errors.recover))
        self._completed, self._failed = len(done), len(failed)
        self._usage = functools.reduce(TokenUsage.plus, done.values(), TokenUsage())
        known = {*done, *failed}
        left = [it for it in lines if it.custom_id not in known]
        queue = LineQueue(self._batch.id, self._batch.scope, left, self._deps.pools)
        self._queue = queue
        assert self._input is not None, "opened before"
        while self._batch.status is BatchStatus.IN_PROGRESS:
            if self._is_lost:
                raise BatchClaimLostError("its claim could not be renewed in time")
            if self._deps.clock.now() >= self._batch.expires_at:
                break
            self._start(queue, self._input.fileno())
            if not self._running and queue.is_empty:
                break
            await self._wait_a_moment()
        await self._end_early(queue)

    def _start(self, queue: LineQueue, input_file: int) -> None:
        """Send the lines that the copies have room for."""
        taken = queue.take(self._deps.routes.table, self._deps.sizes)
        for index, line in enumerate(taken):
            if self._running and self._bytes_in_flight + line.length > MAX_BYTES_IN_FLIGHT:
                queue.put_back(taken[index:])
                return
            self._bytes_in_flight += line.length
            task = asyncio.create_task(self._process(line, input_file))
            self._running[task] = line

            def note_end(task: asyncio.Task[None], line: BatchLine = line) -> None:
                self._running.pop(task, None)
                self._saving.discard(task)
                self._bytes_in_flight -= line.length
                queue.note_end(line)
                self._woken.set()

            task.add_done_callback(note_end)

    async def _end_early(self, queue: LineQueue) -> None:
        """End a cancelled or expired batch: stop requests, and save errors for expired lines."""
        is_cancelled = self._batch.status is BatchStatus.CANCELLING
        self._is_expired = not is_cancelled and not (queue.is_empty and not self._running)
        if not is_cancelled and not self._is_expired:
            return
        if self._running:
            await asyncio.wait(self._running, timeout=CANCEL_GRACE_S if is_cancelled else 0.0)
        computed = {task: it for task, it in self._running.items() if task not in self._saving}
        for task in computed:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        if is_cancelled:
            return
        for line in sorted([*computed.values(), *queue.list_waiting()]):
            message = "This request could not be executed before the completion window expired."
            id = build_result_id(self._batch.id, line.number)
            await self._save_result(
                build_error_line(id, line.custom_id, "batch_expired", message), False
            )

    async def _wait_a_moment(self) -> None:
        """Wait until a line ends, or for a moment, because copies may change."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._woken.wait()
        self._woken.clear()

    async def _process(self, line: BatchLine, input_file: int) -> None:
        """Process one line until its result is saved. After a defect the result is an error."""
        batch, id = self._batch, build_result_id(self._batch.id, line.number)

        async def send() -> None:
            body = get_request_body(os.pread(input_file, line.length, line.offset))
            answer = await self._answer(line, body, id)
            result = build_answer_line(id, line.custom_id, answer.status, id, answer.body)
            await self._save_result(result, answer.trouble is None)
            if answer.trouble is None:
                self._usage = self._usage.plus(parse_usage(answer.body))

        with contextlib.suppress(BatchClaimLostError):  # the run ends, too
            if not await run_guarded(f"line {line.number} of batch {batch.id}", send):
                await self._save_result(
                    build_error_line(id, line.custom_id, "server_error", DEFECT), False
                )

    async def _answer(self, line: BatchLine, body: bytes, id: str) -> LineAnswer:
        """Send a line, repeat as `next_step` allows, and return the last answer."""
        attempt = 1
        while True:
            answer = await self._deps.calls.answer(self._batch, line.model, body, id)
            if answer.trouble is None:
                return answer
            step = choose_next_step(answer.trouble, attempt, self._deps.clock.now())
            if isinstance(step, End):
                return answer
            shown = answer.body[:300].decode("utf-8", "replace")
            if answer.trouble is Trouble.NO_COPY:
                self._trouble = f"line {line.number} waits for model {line.model}: {shown}"
            else:
                LOG.info("batch %s, line %d, %d: %s", self._batch.id, line.number, attempt, shown)
            await self._deps.clock.sleep(max(0.0, step.at - self._deps.clock.now()))
            attempt += step.counts

    async def _save_result(self, result: bytes, is_completed: bool) -> None:
        """Append a result to its file, and wait while the disk is full."""
        output, errors = self._get_results()
        file = output if is_completed else errors
        task = asyncio.current_task()
        if task is not None and task in self._running:
            self._saving.add(task)
        try:
            await self._retry_until_saved(lambda: file.append(result))
        except BatchClaimLostError:
            self.give_up()
            raise
        self._completed += is_completed
        self._failed += not is_completed
        self._trouble = None

    async def _finish(self) -> None:
        """Save the batch's files and its final status."""
        output, errors = self._get_results()
        async with self._changing:
            if self._batch.status is BatchStatus.IN_PROGRESS and not self._is_expired:
                await self._save(self.batch.went(BatchStatus.FINALIZING, self._deps.clock.now()))
            await asyncio.to_thread(output.sync)
            await asyncio.to_thread(errors.sync)
            batch, now = self.batch, self._deps.clock.now()
            last = {
                BatchStatus.CANCELLING: BatchStatus.CANCELLED,
                BatchStatus.FINALIZING: BatchStatus.COMPLETED,
            }.get(batch.status, BatchStatus.EXPIRED)
            ended = replace(
                batch, has_output=output.num_bytes > 0, has_errors=errors.num_bytes > 0
            ).went(last, now)
            await self._save(ended, result_files(ended, output.num_bytes, errors.num_bytes, now))
        for id, is_there in (
            (ended.output_file_id, ended.has_output),
            (ended.error_file_id, ended.has_errors),
        ):
            if not is_there:
                await asyncio.to_thread(self._deps.files.delete, id)

    async def _save(self, batch: LlmBatch, files: tuple[StoredFile, ...] = ()) -> None:
        """Make a change durable, and then visible."""
        if batch.status.is_final:
            batch = replace(batch, trouble=None)
        self._batch = await asyncio.to_thread(self._deps.rows.save, batch, files, self.claim)

    async def _retry_until_saved(self, step: Callable[[], Awaitable[Result]]) -> Result:
        """Do `step`, and repeat it while nothing can be written."""
        while True:
            try:
                return await step()
            except BatchClaimLostError:
                raise
            except (OSError, HostelryError) as error:
                self._note_trouble(f"nothing can be written: {error}")
                LOG.warning("batch %s waits: %s", self._batch.id, error)
                await self._deps.clock.sleep(AGAIN_S)

    def _note_trouble(self, cause: str) -> None:
        self._trouble = cause

    def _get_results(self) -> tuple[ResultLines, ResultLines]:
        assert self._output is not None, "opened before"
        assert self._errors is not None, "opened before"
        return self._output, self._errors


def skip_line(file: IO[bytes], at_once: int) -> int:
    """Read to the end of a line, and return the number of bytes."""
    skipped = 0
    while piece := file.readline(at_once):
        skipped += len(piece)
        if piece.endswith(b"\n"):
            break
    return skipped


def result_files(
    batch: LlmBatch, output_bytes: int, error_bytes: int, now: float
) -> tuple[StoredFile, ...]:
    """Build the rows of an ended batch's files. An empty file gets no row."""
    kept_s = batch.output_expires_after_s
    ids = {"output": batch.output_file_id, "error": batch.error_file_id}
    sizes = {"output": output_bytes, "error": error_bytes}
    return tuple(
        StoredFile(
            id=ids[kind],
            scope=batch.scope,
            filename=f"{batch.id}_{suffix}",
            purpose=OUTPUT_PURPOSE,
            num_bytes=sizes[kind],
            created_at=now,
            expires_at=None if kept_s is None else now + kept_s,
        )
        for kind, suffix in RESULT_SUFFIXES.items()
        if sizes[kind]
    )
