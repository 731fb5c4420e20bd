"""Files and batches of OpenAI's API: of one machine, and of hosts that share a database."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import pytest
import sqlalchemy as sa
from tests.postgres_rig import postgres_database, postgres_server
from tests.unit.dataplane.routes_sample import HERE, OTHER_ACCOUNT
from tests.unit.jobs.batches.test_batch_work import OK, USED, Rig

from hostelry.base.errors import ServiceError
from hostelry.domain.llm_batch import BatchStatus, LlmBatch, StatusOrderError, StoredFile
from hostelry.jobs.batches.openai_api import FileRoom
from hostelry.jobs.batches.rows import (
    CHUNKS,
    CLAIMS,
    LEASE_S,
    UNLISTED,
    BatchClaim,
    BatchClaimLostError,
)
from hostelry.jobs.batches.shared_files import (
    CHUNK_BYTES,
    COMMIT_BYTES,
    UPLOAD_S,
    SharedFiles,
    split_lines,
)
from hostelry.jobs.records.batch_lines import build_answer_line, build_result_id
from hostelry.store.database import Database, open_database
from hostelry.store.protocol import StoreUnavailable

CONTENT = os.urandom(2 * COMMIT_BYTES + CHUNK_BYTES + 1)
WAIT_S = 60


@pytest.fixture(params=["a file", "PostgreSQL"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with contextlib.ExitStack() as stack:
        is_file = request.param == "a file"
        where = tmp_path / "shared.db" if is_file else stack.enter_context(postgres_database())
        yield stack.enter_context(contextlib.closing(open_database(where)))


@pytest.fixture(params=["one machine", "a file", "PostgreSQL"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """One machine, or one of several hosts."""
    if request.param == "one machine":
        yield Rig(tmp_path)
        return
    with contextlib.ExitStack() as stack:
        is_file = request.param == "a file"
        where = tmp_path / "shared.db" if is_file else stack.enter_context(postgres_database())
        database = stack.enter_context(contextlib.closing(open_database(where)))
        yield Rig(tmp_path, host="here", database=database)


@pytest.fixture
def two(tmp_path: Path, database: Database) -> tuple[Rig, Rig]:
    """Two hosts, whose clocks stand still."""
    return (
        Rig(tmp_path, host="here", database=database),
        Rig(tmp_path, host="there", database=database),
    )


def count(database: Database, table: sa.Table) -> int:
    return int(database.query(sa.select(sa.func.count()).select_from(table))[0][0])


def a_file(id: str, num_bytes: int) -> StoredFile:
    return StoredFile(
        id=id, scope=HERE, filename="in.jsonl", purpose="batch",
        num_bytes=num_bytes, created_at=1.0,
    )  # fmt: skip


def uploaded(rig: Rig, id: str, content: bytes = CONTENT) -> StoredFile:
    """A file that came in pieces with other sizes than chunks."""
    new = rig.files.begin_upload(id, HERE.account)
    for at in range(0, len(content), 300_001):
        new.write(content[at : at + 300_001])
    new.complete()
    stored = a_file(id, len(content))
    assert rig.rows.add_file(stored)
    return stored


def claimed(rig: Rig, id: str = "batch_1") -> BatchClaim | None:
    """This host's claim of a batch. None on a single machine, which needs no claim."""
    if rig.claims is None:
        return None
    ((batch, claim),) = rig.claims.take((), 1, rig.clock.now(), only=id)
    assert batch.id == id
    return claim


def build_results(rig: Rig, *numbers: int, batch: str = "batch_1") -> list[bytes]:
    ids = {number: build_result_id(batch, number) for number in numbers}
    return [build_answer_line(id, str(it), 200, "r", USED) for it, id in ids.items()]


def run_on(rigs: tuple[Rig, ...], steps: Callable[[], Awaitable[None]]) -> None:
    """Carry out `steps` while the work of every host runs."""

    async def all_of_them() -> None:
        tasks = [asyncio.create_task(*rig.work.tasks().values()) for rig in rigs]
        try:
            async with asyncio.timeout(WAIT_S):
                await steps()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(all_of_them())


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(100 * WAIT_S):
        if holds():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it does not come true")


def test_a_file_is_read_whole_and_from_any_byte(rig: Rig) -> None:
    stored, empty = uploaded(rig, "file-1"), uploaded(rig, "file-2", b"")
    assert b"".join(rig.files.read_chunks(stored)) == CONTENT
    assert b"".join(rig.files.read_chunks(empty)) == b""
    with rig.files.open("file-1") as file, rig.files.open("file-2") as nothing:
        assert os.pread(file.fileno(), 10, COMMIT_BYTES - 5) == CONTENT[COMMIT_BYTES - 5 :][:10]
        assert file.read() == CONTENT
        assert nothing.read() == b""
    with pytest.raises(FileNotFoundError):
        rig.files.open("file-none")


def test_an_upload_that_is_dropped_leaves_nothing(rig: Rig) -> None:
    new = rig.files.begin_upload("file-1", HERE.account)
    new.write(CONTENT)
    new.drop()
    assert not list(rig.folder.path("").iterdir())
    with pytest.raises(FileNotFoundError):
        rig.files.open("file-1")
    uploaded(rig, "file-1")


def test_a_file_that_a_batch_reads_is_not_deleted_and_no_batch_begins_without(rig: Rig) -> None:
    stored = uploaded(rig, "file-in")
    assert rig.rows.add_batch(rig.batch())
    assert rig.rows.delete_file(HERE.account, "file-in") == "batch_1"
    ended = rig.batch().went(BatchStatus.FAILED, rig.clock.now())
    assert rig.rows.save(ended, (), claimed(rig)) == ended
    assert rig.rows.delete_file(OTHER_ACCOUNT.account, "file-in") is None
    assert rig.rows.get_file(HERE.account, "file-in") == stored, "another account's delete"
    assert rig.rows.delete_file(HERE.account, "file-in") is None
    rig.files.delete("file-in")
    assert rig.rows.get_file(HERE.account, "file-in") is None
    with pytest.raises(FileNotFoundError):
        next(rig.files.read_chunks(stored))
    assert not rig.rows.add_batch(rig.batch("batch_2"))


def test_lines_that_were_appended_are_found_again(rig: Rig) -> None:
    rig.stored("a", "b", "c")
    rig.rows.add_batch(rig.batch())
    lines = build_results(rig, 1, 2, 3)

    async def append(claim: BatchClaim | None, *lines: bytes) -> None:
        output = rig.files.open_results("batch_1-out", claim, print)
        output.recover()
        await asyncio.gather(*[output.append(it) for it in lines])
        output.sync()
        output.close()

    claim = claimed(rig)
    asyncio.run(append(claim, lines[0], lines[1][:-9]))  # as a kill leaves it on one machine
    again = rig.files.open_results("batch_1-out", claim, print)
    assert set(again.recover()) == {"1"}
    again.close()
    asyncio.run(append(claim, *lines[1:]))
    whole = rig.files.open_results("batch_1-out", claim, print)
    assert set(whole.recover()) == {"1", "2", "3"}
    assert whole.num_bytes == sum(map(len, lines))
    whole.close()


@pytest.mark.parametrize("lines", [[b"a\n", b"\n", b"b\n"], [b"a\n", b"b"], [b"\n"], []])
def test_lines_of_pieces(lines: list[bytes]) -> None:
    text = b"".join(lines)
    for size in range(1, 5):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert list(split_lines(pieces)) == lines


def test_any_host_reads_what_one_took_and_deletes_it(
    two: tuple[Rig, Rig], database: Database
) -> None:
    here, there = two
    stored = uploaded(here, "file-1")
    assert there.rows.list_files(HERE.account, None, None, 10, newest_first=True) == [stored]
    assert there.rows.get_file(OTHER_ACCOUNT.account, "file-1") is None
    reading = there.files.read_chunks(stored)
    assert b"".join(there.files.read_chunks(stored)) == CONTENT
    next(reading)
    assert here.rows.delete_file(HERE.account, "file-1") is None
    here.files.delete("file-1")
    assert count(database, CHUNKS) == count(database, UNLISTED) == 0
    with pytest.raises(StoreUnavailable, match="was deleted while it was read"):
        list(reading)


def test_an_upload_of_a_dead_host_is_removed_in_time_and_never_listed(
    two: tuple[Rig, Rig], database: Database
) -> None:
    here, there = two
    assert isinstance(there.files, SharedFiles)
    new = here.files.begin_upload("file-1", HERE.account)
    new.write(CONTENT)
    assert there.rows.list_files(HERE.account, None, None, 10, newest_first=True) == []
    assert there.rows.count_bytes(HERE.account) == new.num_bytes, "it takes room on every host"
    there.files.sweep()
    assert count(database, CHUNKS) > 0
    there.clock.advance(UPLOAD_S + 1)
    there.files.sweep()
    assert count(database, CHUNKS) == count(database, UNLISTED) == 0
    with pytest.raises(StoreUnavailable, match="was given up"):
        new.complete()
    with pytest.raises(StoreUnavailable, match="was given up"):
        here.rows.add_file(a_file("file-1", len(CONTENT)))
    here.files.begin_upload("file-2", HERE.account).write(CONTENT)
    assert isinstance(here.files, SharedFiles)
    here.files.give_up_own()  # the process on that host starts again
    there.files.sweep()
    assert count(database, CHUNKS) == count(database, UNLISTED) == 0


def test_uploads_of_two_hosts_do_not_share_the_last_room(two: tuple[Rig, Rig]) -> None:
    most = 100
    kept: list[str] = []

    def upload(rig: Rig, id: str, ready: threading.Barrier) -> None:
        room = FileRoom(rig.rows, most)
        arriving = room.open_upload(HERE.account)
        ready.wait(WAIT_S)
        new = rig.files.begin_upload(id, HERE.account)
        new.write(b"x" * 60)
        new.complete()
        ready.wait(WAIT_S)
        stored = a_file(id, 60)
        with contextlib.suppress(ServiceError):
            arriving.keep(stored)
            kept.append(id)

    for number in range(5):
        ready = threading.Barrier(2)
        names = [f"file-{number}-{host}" for host in ("here", "there")]
        with ThreadPoolExecutor(2) as both:
            list(both.map(upload, two, names, [ready, ready]))
        assert len(kept) == 1
        assert two[0].rows.delete_file(HERE.account, kept.pop()) is None
        for name in names:
            two[0].files.delete(name)


def test_a_file_is_deleted_by_one_host_or_read_by_a_batch_of_the_other(
    two: tuple[Rig, Rig],
) -> None:
    here, there = two
    for number in range(10):
        here.stored("a", id=f"file-{number}")
        ready = threading.Barrier(2)

        def delete(id: str, ready: threading.Barrier) -> bool:
            ready.wait(WAIT_S)
            return here.rows.delete_file(HERE.account, id) is None

        def begin(batch: LlmBatch, ready: threading.Barrier) -> bool:
            ready.wait(WAIT_S)
            return there.rows.add_batch(batch)

        with ThreadPoolExecutor(2) as both:
            deleted = both.submit(delete, f"file-{number}", ready)
            begun = both.submit(begin, there.batch(f"batch_{number}", f"file-{number}"), ready)
            assert deleted.result() is not begun.result()


def test_a_batch_is_one_hosts_until_its_lease_ends(two: tuple[Rig, Rig]) -> None:
    here, there = two
    assert here.claims is not None
    assert there.claims is not None
    here.stored("a")
    here.rows.add_batch(here.batch())
    now = here.clock.now()
    claim = claimed(here)
    assert claim is not None
    assert there.claims.take((), 9, now + LEASE_S - 1) == []
    assert here.claims.take((), 9, now) == [], "nor twice by one host"
    seen = here.claims.look({"batch_1": (claim, ["pool"])}, now + 10)
    assert set(seen.kept) == {"batch_1"}
    assert there.claims.look({}, now + 11).elsewhere == {"batch_1": ["pool"]}
    ((batch, newer),) = there.claims.take((), 9, now + 10 + LEASE_S)
    assert newer.fence > claim.fence
    assert here.claims.look({"batch_1": (claim, [])}, now + 50).kept == {}
    for stale in (
        lambda: here.rows.save(batch.went(BatchStatus.FAILED, now), (), claim),
        lambda: here.files.append(claim, "batch_1-out", 0, b"late\n"),  # type: ignore[attr-defined]
    ):
        with pytest.raises(BatchClaimLostError):
            stale()
    there.rows.save(batch.went(BatchStatus.FAILED, now), (), newer)
    assert here.claims.take((), 9, now + 1000) == [], "it has ended"
    here.rows.add_batch(here.batch("batch_2"))
    assert claimed(here, "batch_2") is not None
    here.claims.give_back()
    assert claimed(there, "batch_2") is not None


async def test_lines_whose_commit_was_not_answered_are_there_once(two: tuple[Rig, Rig]) -> None:
    here, _ = two
    here.stored("a")
    here.rows.add_batch(here.batch())
    claim = claimed(here)
    assert isinstance(here.files, SharedFiles)
    append, failures = here.files.append, [True, False, True]

    def unsure(claim: BatchClaim, id: str, start: int, data: bytes) -> None:
        """A commit that is lost, or is done while its answer is lost."""
        if failures:
            if failures.pop():
                append(claim, id, start, data)
            raise StoreUnavailable("the connection broke")
        append(claim, id, start, data)

    here.files.append = unsure  # type: ignore[method-assign]
    waits: list[str] = []
    lines = here.files.open_results("batch_1-out", claim, waits.append)
    await lines.append(build_results(here, 1)[0])
    await asyncio.gather(*[lines.append(it) for it in build_results(here, 2, 3)])
    lines.close()
    assert waits == ["nothing can be written: the connection broke"] * 3
    assert list(here.files.lines("batch_1-out")) == build_results(here, 1, 2, 3)


def test_a_host_goes_on_where_a_dead_one_was_and_answers_no_line_again(
    two: tuple[Rig, Rig],
) -> None:
    dead, alive = two
    dead.stored("a", "b", "c")
    dead.rows.add_batch(dead.batch())
    claim = claimed(dead)
    begun = dead.rows.save(dead.batch().went(BatchStatus.IN_PROGRESS, 1.0), (), claim)
    (line,) = build_results(dead, 2)
    dead.files.append(claim, begun.output_file_id, 0, line)  # type: ignore[attr-defined]

    async def steps() -> None:
        await until(lambda: alive.rows.count_unfinished() == 1)
        assert alive.calls.asked == []
        alive.clock.advance(LEASE_S)
        batch = await alive.ended()
        assert batch.status is BatchStatus.COMPLETED
        assert (batch.counts.completed, batch.usage.input) == (3, 6)
        assert sorted(alive.calls.asked) == ["a", "c"]
        assert set(alive.open_results(batch.output_file_id)) == {"1", "2", "3"}

    run_on((alive,), steps)


def test_two_hosts_run_each_batch_once_and_show_those_of_the_other(
    two: tuple[Rig, Rig],
) -> None:
    here, there = two

    async def steps() -> None:
        here.stored("a", "late")
        names = [f"batch_{number}" for number in range(6)]
        for number, name in enumerate(names):
            await two[number % 2].work.submit(here.batch(name))
        await until(lambda: (here.calls.asked + there.calls.asked).count("late") == len(names))
        for rig in two:
            shown = [await rig.once(it, lambda batch: batch.counts.completed == 1) for it in names]
            assert {it.status for it in shown} == {BatchStatus.IN_PROGRESS}
        pool = next(it for name in names for it in here.pools.get_pools(name))
        await until(lambda: here.pools.count_batches(pool) == len(names))
        here.calls.late.set()
        there.calls.late.set()
        for name in names:
            batch = await here.ended(name)
            assert batch.status is BatchStatus.COMPLETED
            assert set(there.open_results(batch.output_file_id)) == {"1", "2"}
        asked = here.calls.asked + there.calls.asked
        assert sorted(asked) == ["a"] * 6 + ["late"] * 6

    run_on(two, steps)


@pytest.mark.parametrize("runs", ["running on the other host", "running on no host"])
def test_a_batch_is_cancelled_through_any_host(two: tuple[Rig, Rig], runs: str) -> None:
    here, there = two

    async def steps() -> None:
        here.stored("a", "late")
        if runs == "running on the other host":
            await here.work.submit(here.batch())
            await there.once("batch_1", lambda it: it.counts.completed == 1)
        else:
            here.rows.add_batch(here.batch())
        cancelled = await there.work.cancel(there.batch())
        assert cancelled.status is BatchStatus.CANCELLING
        here.calls.late.set()
        there.calls.late.set()
        batch = await there.ended()
        assert batch.status is BatchStatus.CANCELLED
        if runs == "running on the other host":
            assert set(there.open_results(batch.output_file_id)) >= {"1"}
        with pytest.raises(StatusOrderError):
            await there.work.cancel(batch)

    run_on((here, there) if runs == "running on the other host" else (there,), steps)


def test_a_batch_that_fails_leaves_no_bytes_behind(
    two: tuple[Rig, Rig], database: Database
) -> None:
    here, there = two
    here.stored("a")
    here.rows.add_batch(here.batch())
    claim = claimed(here)
    (line,) = build_results(here, 1)
    here.files.append(claim, "batch_1-out", 0, line)  # type: ignore[attr-defined]
    here.rows.save(here.batch().went(BatchStatus.FAILED, 1.0), (), claim)
    assert count(database, CLAIMS) == 0
    there.files.sweep()  # type: ignore[attr-defined]
    assert [row.file for row in database.query(sa.select(CHUNKS.c.file))] == ["file-in"]


def test_a_full_disk_of_the_host_holds_a_batch_up_and_ends_nothing(two: tuple[Rig, Rig]) -> None:
    here, there = two
    opened, failures = here.files.open, [OSError(28, "No space left on device")] * 2
    seen: list[str | None] = []

    def full(id: str) -> IO[bytes]:
        if failures:
            raise failures.pop()
        seen.append(here.work.present(here.batch())[1])
        return opened(id)

    here.files.open = full  # type: ignore[method-assign]

    async def steps() -> None:
        there.stored("a")
        await here.work.submit(here.batch())
        assert (await there.ended()).status is BatchStatus.COMPLETED
        assert seen == ["nothing can be written: [Errno 28] No space left on device"]

    run_on((here,), steps)


def test_a_batch_waits_for_a_database_that_is_away(tmp_path: Path) -> None:
    with postgres_database() as url, contextlib.closing(open_database(url)) as database:
        rig = Rig(tmp_path, OK, host="here", database=database)

        async def steps() -> None:
            rig.stored("a", "late", "b")
            await rig.work.submit(rig.batch())
            await rig.once("batch_1", lambda it: it.counts.completed == 2)
            postgres_server().stop()
            rig.calls.late.set()
            present = rig.batch()

            def waits() -> bool:
                trouble = rig.work.present(present)[1] or ""
                return trouble.startswith("nothing can be written: the store ")

            await until(waits)
            postgres_server().start()  # in this thread: the server ends with the one that starts it
            batch = await rig.ended()
            assert batch.status is BatchStatus.COMPLETED
            assert set(rig.open_results(batch.output_file_id)) == {"1", "2", "3"}
            assert sorted(rig.calls.asked) == ["a", "b", "late"]

        run_on((rig,), steps)
