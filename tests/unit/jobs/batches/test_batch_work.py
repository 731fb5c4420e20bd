"""Batches of one process over a model that a test answers for."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.dataplane.routes_sample import HERE, SNAPSHOT

from hostelry.base.clock import ManualClock
from hostelry.base.errors import RetryableError
from hostelry.dataplane.routes import FixedRoutes
from hostelry.domain.llm_batch import (
    BatchStatus,
    LlmBatch,
    StatusOrderError,
    StoredFile,
    TokenUsage,
)
from hostelry.domain.routes import CopyRoute
from hostelry.jobs.batches.batch_run import BatchDeps
from hostelry.jobs.batches.batch_work import MAX_RUNNING, BatchOverview, BatchWork
from hostelry.jobs.batches.file_store import FileFolder, FileStore, ResultFile
from hostelry.jobs.batches.line_queue import CopySizes, LineAnswer, LineCalls, SharedPools
from hostelry.jobs.batches.rows import BatchClaims, BatchRows
from hostelry.jobs.batches.shared_files import SharedBatchRows, SharedFiles
from hostelry.jobs.records.batch_lines import build_answer_line, build_result_id
from hostelry.jobs.rules.next_step import Trouble
from hostelry.store.database import Database
from hostelry.store.sqlite import SqliteFile

URL = "/v1/completions"
USED = b'{"usage": {"prompt_tokens": 2, "completion_tokens": 3}}'
OK = LineAnswer(200, USED, None)
FAILED = LineAnswer(500, b'{"error": "no"}', Trouble.MODEL_FAILED)
REFUSED = LineAnswer(400, b'{"error": "no"}', Trouble.MODEL_REFUSED)


class ScriptedCalls(LineCalls):
    """Answers line by line as scripted, then repeats the last answer. "late" waits for `late`."""

    def __init__(self, *answers: LineAnswer) -> None:
        self._answers = list(answers) or [OK]
        self.asked: list[str] = []
        self.late = asyncio.Event()

    async def answer(self, batch: LlmBatch, model: str, body: bytes, id: str) -> LineAnswer:
        prompt = json.loads(body)["prompt"]
        self.asked.append(prompt)
        if prompt == "late":
            await self.late.wait()
        await asyncio.sleep(0)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


class OneEach(CopySizes):
    """Every copy wants one request."""

    def __init__(self) -> None:
        pass

    def get_wanted(self, copy: CopyRoute) -> int:
        return 1


class Rig:
    """The work of one process on the files and rows below `root`, or of `host` on `database`."""

    def __init__(
        self,
        root: Path,
        *answers: LineAnswer,
        host: str | None = None,
        database: Database | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.folder = FileFolder(root / "files")
        self.files: FileStore = self.folder
        self.claims: BatchClaims | None = None
        if host is None or database is None:
            self.rows = BatchRows(SqliteFile(root / "jobs.db"))
        else:
            self.rows = SharedBatchRows(database, host)
            self.files = SharedFiles(database, host, root / host, self.clock)
            self.claims = BatchClaims(database, host)
        self.calls = ScriptedCalls(*answers)
        self.pools = SharedPools()
        self.work = BatchWork(
            BatchDeps(
                rows=self.rows,
                files=self.files,
                routes=FixedRoutes(SNAPSHOT),
                calls=self.calls,
                sizes=OneEach(),
                pools=self.pools,
                clock=self.clock,
                max_line_bytes=10_000,
            ),
            self.claims,
        )

    def stored(
        self,
        *prompts: str,
        id: str = "file-in",
        kept_s: float | None = None,
        model: str = "base",
    ) -> StoredFile:
        """An input file with a request for each prompt, whose custom_id is its number."""
        bodies = [{"model": model, "prompt": it} for it in prompts]
        lines = [
            {"custom_id": str(number), "method": "POST", "url": URL, "body": body}
            for number, body in enumerate(bodies, 1)
        ]
        content = b"".join(json.dumps(it).encode() + b"\n" for it in lines)
        new = self.files.begin_upload(id, HERE.account)
        new.write(content)
        new.complete()
        now = self.clock.now()
        file = StoredFile(
            id=id,
            scope=HERE,
            filename="in.jsonl",
            purpose="batch",
            num_bytes=len(content),
            created_at=now,
            expires_at=None if kept_s is None else now + kept_s,
        )
        self.rows.add_file(file)
        return file

    def batch(self, id: str = "batch_1", file: str = "file-in") -> LlmBatch:
        now = self.clock.now()
        return LlmBatch(
            id=id,
            scope=HERE,
            input_file_id=file,
            endpoint=URL,
            completion_window="24h",
            created_at=now,
            expires_at=now + 86_400,
            output_file_id=f"{id}-out",
            error_file_id=f"{id}-err",
        )

    async def ended(self, id: str = "batch_1") -> LlmBatch:
        return await self.once(id, lambda batch: batch.status.is_final)

    async def once(self, id: str, holds: Callable[[LlmBatch], bool]) -> LlmBatch:
        """The batch once something holds of it."""
        async with asyncio.timeout(10):
            while True:
                kept = self.rows.get_batch(HERE.account, id)
                assert kept is not None
                batch, _ = self.work.present(kept)
                if holds(batch):
                    return batch
                await asyncio.sleep(0.001)

    def num_files(self) -> int:
        return len(list(self.folder.path("").iterdir()))

    def open_results(self, id: str) -> dict[str, Any]:
        stored = self.rows.get_file(HERE.account, id)
        assert stored is not None
        lines = [json.loads(it) for it in b"".join(self.files.read_chunks(stored)).splitlines()]
        assert max(Counter(it["custom_id"] for it in lines).values()) == 1
        return {it["custom_id"]: it for it in lines}


@asynccontextmanager
async def working(rig: Rig) -> AsyncIterator[None]:
    """Let the work run meanwhile. It ends then as at SIGTERM."""
    (work,) = rig.work.tasks().values()
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@cases(
    "answers, asked, status",
    case("answered", [OK], 1, 200),
    case("answered at the second attempt", [FAILED, OK], 2, 200),
    case("failed three times", [FAILED], 3, 500),
    case("refused", [REFUSED], 1, 400),
    case("no copy for a while, which counts as no attempt",
        [LineAnswer(503, b"{}", Trouble.NO_COPY)] * 9 + [OK], 10, 200),
)  # fmt: skip
async def test_a_line_ends_with_its_last_answer(
    tmp_path: Path, answers: list[LineAnswer], asked: int, status: int
) -> None:
    rig = Rig(tmp_path, *answers)
    async with working(rig):
        rig.stored("a")
        await rig.work.submit(rig.batch())
        batch = await rig.ended()
        assert batch.status is BatchStatus.COMPLETED
        assert (batch.has_output, batch.has_errors) == (status == 200, status != 200)
        kept = batch.output_file_id if status == 200 else batch.error_file_id
        assert rig.open_results(kept)["1"]["response"]["status_code"] == status
        assert len(rig.calls.asked) == asked
        await rig.once("batch_1", lambda _: rig.num_files() == 2)  # empty files do not count


async def test_a_batch_that_expires_keeps_its_answers_and_names_the_others(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with working(rig):
        rig.stored("a", "late", "b", "late", "c")
        await rig.work.submit(rig.batch())
        await rig.once("batch_1", lambda it: it.counts.completed == 2)
        rig.clock.advance(86_400)
        rig.work.wake()
        batch = await rig.ended()
        assert batch.status is BatchStatus.EXPIRED
        assert (batch.counts.completed, batch.counts.failed, batch.counts.total) == (2, 3, 5)
        assert set(rig.open_results(batch.output_file_id)) == {"1", "3"}
        errors = rig.open_results(batch.error_file_id)
        assert [errors[it]["error"]["code"] for it in "245"] == ["batch_expired"] * 3


async def test_what_is_shown_names_the_model_that_has_no_copy(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    overview = BatchOverview(rig.rows, rig.work)
    async with working(rig):
        rig.stored(*["late"] * 6, model="asleep")
        await rig.work.submit(rig.batch())
        trouble = "no copy serves model asleep now: 6 of its requests wait"
        shown = list[str | None]()
        async with asyncio.timeout(10):
            while not rig.calls.asked or shown != [trouble]:
                await asyncio.sleep(0.001)
                shown = [it["trouble"] for it in await overview.list_newest("running", 10)]
        assert len(rig.calls.asked) < 6, "a few of them wake it"
        rig.calls.late.set()
        await rig.ended()
        found = await overview.find("batch_1")
        assert found is not None
        assert (found["state"], found["completed"], found["trouble"]) == ("completed", 6, None)
        assert await overview.list_newest("running", 10) == []
        assert await overview.find("batch_2") is None
        with pytest.raises(StatusOrderError):
            await overview.cancel("batch_1")


async def test_a_successor_sends_what_has_no_whole_result(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.stored("a", "b", "c")
    begun = replace(rig.batch().went(BatchStatus.IN_PROGRESS, rig.clock.now()))
    rig.rows.add_batch(begun)
    ids = [build_result_id(begun.id, it) for it in (1, 2)]
    whole, cut = [build_answer_line(id, n, 200, "r", USED) for id, n in zip(ids, "12", strict=True)]
    rig.folder.path(begun.output_file_id).write_bytes(whole + cut[:-7])
    async with working(rig):
        batch = await rig.ended()
        assert batch.status is BatchStatus.COMPLETED
        assert batch.counts.completed == 3
        assert batch.usage == TokenUsage(input=6, output=9)
        assert sorted(rig.calls.asked) == ["b", "c"]
        assert set(rig.open_results(batch.output_file_id)) == {"1", "2", "3"}


async def test_a_batch_that_waits_for_its_turn_is_cancelled_at_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with working(rig):
        rig.stored("late")
        for number in range(MAX_RUNNING + 1):
            await rig.work.submit(rig.batch(f"batch_{number}"))
        last = rig.batch(f"batch_{MAX_RUNNING}")
        assert (await rig.work.cancel(last)).status is BatchStatus.CANCELLING
        assert (await rig.ended(last.id)).status is BatchStatus.CANCELLED
        kept = rig.rows.get_batch(HERE.account, last.id)
        assert kept is not None
        with pytest.raises(StatusOrderError):
            await rig.work.cancel(kept)


def test_a_cancel_that_comes_before_the_batch_is_resumed_is_not_acknowledged(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    rig.rows.add_batch(rig.batch())
    with pytest.raises(RetryableError, match="try again"):
        asyncio.run(rig.work.cancel(rig.batch()))


async def test_files_are_removed_in_time_but_not_under_a_batch(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with working(rig):
        rig.stored("late", kept_s=3600)
        for id, kept_s in (("file-old", 3600.0), ("file-new", 7200.0), ("file-kept", None)):
            rig.stored("a", id=id, kept_s=kept_s)
        await rig.work.submit(rig.batch())
        await rig.once("batch_1", lambda it: it.status is BatchStatus.IN_PROGRESS)
        rig.clock.advance(3600)
        await rig.work.sweep()
        assert rig.rows.list_file_ids() >= {"file-in", "file-new", "file-kept"}
        assert "file-old" not in rig.rows.list_file_ids()
        assert not rig.folder.path("file-old").exists()
        rig.calls.late.set()
        await rig.ended()
        await rig.work.sweep()
        assert not rig.folder.path("file-in").exists()


async def test_a_full_disk_holds_a_batch_up_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, failures = Rig(tmp_path), [OSError(28, "No space left on device")] * 3
    append = ResultFile.append

    async def full(file: ResultFile, line: bytes) -> None:
        if failures:
            raise failures.pop()
        await append(file, line)

    monkeypatch.setattr(ResultFile, "append", full)
    async with working(rig):
        rig.stored("a", "b")
        await rig.work.submit(rig.batch())
        assert (await rig.ended()).counts.completed == 2
        assert not failures
