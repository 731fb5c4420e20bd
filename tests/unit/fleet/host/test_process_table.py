"""The process table and the copies' folders in it."""

import os
import subprocess
from pathlib import Path

import pytest

from hostelry.fleet.host import processes
from hostelry.fleet.host.processes import MARKER_VARIABLE, RecentTable, process_table


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
                return "late"

            monkeypatch.setattr(processes, "environment_value", note)
            assert row_of(marked.pid).marker == str(tmp_path)
            assert marked.pid not in read, "its marker is known"
            assert row_of(other.pid).marker == "late", "it may have run no program before"
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


def test_those_who_look_at_one_moment_share_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    now, tables = [100.0], iter(([], [row_of(os.getpid())], []))
    monkeypatch.setattr(processes, "monotonic_s", lambda: now[0])
    monkeypatch.setattr(processes, "process_table", lambda: next(tables))
    table = RecentTable(max_age_s=0.5)
    first = table.rows()
    now[0] += 0.5
    assert table.rows() is first
    now[0] += 0.1
    assert len(table.rows()) == 1
