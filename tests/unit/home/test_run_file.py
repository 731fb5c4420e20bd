import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.home.home import Home
from hostelry.home.run_file import (
    live_run_file,
    live_run_files,
    load_run_file,
    platform_names,
    remove_run_file,
    run_path,
    save_run_file,
)
from hostelry.processes.leftovers import BEFORE_COPIES, end_services

NO_PID = 2**22 + 1  # one more than the kernel's largest pid


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.make()
    return made


def test_a_run_file_names_the_live_process(home: Home) -> None:
    save_run_file(home, "gateway", os.getpid(), 8787)
    record = live_run_file(home, "gateway")
    assert record is not None
    assert (record.pid, record.port) == (os.getpid(), 8787)
    remove_run_file(home, "gateway")
    remove_run_file(home, "gateway")
    assert load_run_file(home, "gateway") is None


@cases(
    "content",
    case("an empty file", b""),
    case("half a file", b'{"name": "gateway"'),
    case("another shape", b'{"name": "gateway", "pid": "x"}'),
    case("a reused pid", b'{"name":"gateway","pid":%d,"start_ticks":1,"port":1}' % os.getpid()),
    case("a dead pid", b'{"name":"gateway","pid":%d,"start_ticks":1,"port":1}' % NO_PID),
)
def test_a_stale_run_file_is_removed_and_no_process_killed(home: Home, content: bytes) -> None:
    run_path(home, "gateway").write_bytes(content)
    assert live_run_file(home, "gateway") is None
    assert end_services(home, BEFORE_COPIES) == []
    assert not run_path(home, "gateway").exists()


@cases(
    "changes, is_alive",
    case("the very process", {}, True),
    case("a file of a version that wrote no boot id", {"boot_id": None}, True),
    case("the same pid and start after a reboot", {"boot_id": "another"}, False),
    case("a pid that was given out again", {"start_ticks": 1}, False),
)
def test_a_run_file_is_of_one_process_of_one_boot(
    home: Home, changes: dict[str, Any], is_alive: bool
) -> None:
    save_run_file(home, "control", os.getpid(), 4242)
    record = {**json.loads(run_path(home, "control").read_bytes()), **changes}
    kept = {key: value for key, value in record.items() if value is not None}
    run_path(home, "control").write_text(json.dumps(kept))
    assert (live_run_file(home, "control") is not None) is is_alive


def test_a_process_that_is_gone_already_gets_no_run_file(home: Home) -> None:
    save_run_file(home, "gateway", NO_PID, 8787)
    assert not run_path(home, "gateway").exists()


def test_processes_are_listed_in_the_platforms_order(home: Home) -> None:
    names = ["objectstore", "gateway-10", "gateway-2", "up", "control", "gateway-1", "gateway"]
    for name in names:
        save_run_file(home, name, os.getpid(), 8787)
    run_path(home, "control").write_bytes(b"half a")
    shown = ["up", "gateway", "gateway-1", "gateway-2", "gateway-10", "objectstore"]
    assert [record.name for record in live_run_files(home)] == shown
    assert platform_names(2) == [
        "up",
        "watcher",
        "gateway-1",
        "gateway-2",
        "mirror",
        "jobs",
        "console",
        "control",
        "s3door",
        "objectstore",
    ]


def test_workers_of_an_earlier_start_with_more_of_them_are_forgotten(home: Home) -> None:
    run_path(home, "gateway-7").write_bytes(b"")
    assert end_services(home, BEFORE_COPIES) == []
    assert not run_path(home, "gateway-7").exists()
