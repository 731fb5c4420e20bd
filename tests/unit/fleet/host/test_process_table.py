"""The process table and the copies' folders in it."""

import asyncio
import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.fleet.host import processes
from hostelry.fleet.host.processes import (
    MARKER_VARIABLE,
    ProcessRow,
    ProcessScans,
    ProcessTable,
    Recent,
    process_table,
)
from hostelry.fleet.launch.warm_rules import build_parent_environment

# A process as after a fork from a warm interpreter. It writes its folder after a line of input.
FORKED = (
    "import sys; from hostelry.containers.predictive.worker.copy_process import write_marker; "
    "print('begun', flush=True); sys.stdin.readline(); "
    f"write_marker({MARKER_VARIABLE!r}, sys.argv[1]); print('done', flush=True); "
    "sys.stdin.readline()"
)


def row_of(pid: int) -> processes.ProcessRow:
    return next(row for row in process_table() if row.pid == pid)


def test_the_variables_of_a_process_are_read_until_they_cannot_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**os.environ, MARKER_VARIABLE: str(tmp_path)}
    with (
        subprocess.Popen(["sleep", "60"], env=environment) as marked,
        subprocess.Popen(["sleep", "60"]) as other,
    ):
        try:
            assert row_of(marked.pid).marker == str(tmp_path)
            assert row_of(other.pid).marker is None
            read: list[int] = []

            def note(pid: int, name: str) -> str:
                read.append(pid)
                return "/late"

            monkeypatch.setattr(processes, "environment_value", note)
            assert row_of(marked.pid).marker == str(tmp_path)
            assert marked.pid not in read, "its marker is known"
            assert row_of(other.pid).marker == "/late", "it may have run no program before"
            monkeypatch.setattr(processes, "SETTLED_S", -60.0)
            processes._markers.clear()
            monkeypatch.setattr(processes, "environment_value", lambda *_: None)
            process_table()
            monkeypatch.setattr(processes, "environment_value", note)
            assert row_of(other.pid).marker is None, "it is old enough"
        finally:
            marked.kill()
            other.kill()
    process_table()
    assert not {marked.pid, other.pid} & {pid for pid, _ in processes._markers}, "forgotten"


@cases(
    "folder, shown",
    case("a copy", "/i/copies/c-1", "/i/copies/c-1"),
    case("a copy whose path is as long as allowed", "/" + "c" * 4094, "/" + "c" * 4094),
    case("no copy, whose space is blank", "", None),
)
def test_a_forked_process_is_known_once_it_has_written_its_folder(
    folder: str, shown: str | None
) -> None:
    """What it shows before is its parent's, and is not kept."""
    environment = build_parent_environment(dict(os.environ))
    with subprocess.Popen(
        [sys.executable, "-c", FORKED, folder],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as forked:
        assert forked.stdin is not None
        assert forked.stdout is not None
        assert forked.stdout.readline() == b"begun\n"
        assert row_of(forked.pid).marker is None
        forked.stdin.write(b"\n")
        forked.stdin.flush()
        assert forked.stdout.readline() == b"done\n"
        assert row_of(forked.pid).marker == shown


def test_those_who_look_at_one_moment_share_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    now, reads = [100.0], itertools.count()
    monkeypatch.setattr(processes, "monotonic_s", lambda: now[0])
    recent = Recent(lambda: next(reads), max_age_s=0.5)
    assert recent.value() == 0
    now[0] += 0.5
    assert recent.value() == 0
    now[0] += 0.1
    assert recent.value() == 1


def test_all_who_ask_during_a_scan_share_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    scans: list[int] = []
    begun, goes_on = threading.Event(), threading.Event()

    def scan() -> ProcessTable:
        scans.append(len(scans))
        begun.set()
        assert goes_on.wait(10)
        return ProcessTable([ProcessRow(pid=scans[-1], session=0, start_ticks=0, marker=None)])

    monkeypatch.setattr(processes, "process_table", scan)

    async def case() -> None:
        shared = ProcessScans()
        first = asyncio.ensure_future(shared.fresh())
        await asyncio.to_thread(begun.wait)
        others = [asyncio.ensure_future(shared.fresh()) for _ in range(300)]
        await asyncio.sleep(0)
        others[0].cancel()
        goes_on.set()
        assert (await first)[0].pid == 0
        tables = await asyncio.gather(*others[1:])
        assert {table[0].pid for table in tables} == {1}, "what they did before is in it"

    asyncio.run(case())
    asyncio.run(ProcessScans().fresh())
    assert scans == [0, 1, 2]


async def test_scans_in_a_row_take_a_quarter_of_a_core_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, pauses = [100.0], list[float]()

    def scan() -> ProcessTable:
        now[0] += 0.02
        return ProcessTable()

    async def sleep(pause_s: float) -> None:
        pauses.append(round(pause_s, 3))
        now[0] += pause_s

    monkeypatch.setattr(processes, "monotonic_s", lambda: now[0])
    monkeypatch.setattr(processes, "thread_cpu_s", lambda: now[0])
    monkeypatch.setattr(processes, "process_table", scan)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    shared = ProcessScans()
    await shared.fresh()
    await shared.fresh()
    now[0] += 0.05
    await shared.fresh()
    now[0] += 1.0
    await shared.fresh()
    assert pauses == [0.0, 0.06, 0.01, 0.0]
