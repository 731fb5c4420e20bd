import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from hostelry.domain.scope import Scope
from hostelry.logs.events import LogsUnavailable, NewEvent
from hostelry.logs.store import BEGIN, END, LogStore

HERE = Scope("123456789012", "us-west-2")


def put_until_killed(path: Path, put: Any) -> None:
    store = LogStore(path)
    store.create_group(HERE, "g", 1)
    group = store.group(HERE, "g")
    assert group is not None
    store.create_stream(group, "s", 1)
    stream = store.stream(group, "s")
    assert stream is not None
    for number in range(10**6):
        store.append(stream, [NewEvent(at_ms=number, message=f"{number}")] * 3, 1)
        put.value = number + 1


def test_what_was_stored_survives_a_kill(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    num_put = context.Value("q", 0)
    process = context.Process(target=put_until_killed, args=(tmp_path / "logs.db", num_put))
    process.start()
    while num_put.value < 50:
        process.join(0.01)  # leaves the processor to it
        assert process.is_alive()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    store = LogStore(tmp_path / "logs.db")
    group = store.group(HERE, "g")
    assert group is not None
    stream = store.stream(group, "s")
    assert stream is not None
    events = store.read_forwards(stream, BEGIN, END, 10**6)
    assert len(events) >= num_put.value * 3
    assert len(events) % 3 == 0
    store.close()


def test_only_its_owner_reads_the_file(tmp_path: Path) -> None:
    store = LogStore(tmp_path / "logs.db")
    store.create_group(HERE, "g", 1)
    modes = {it.name: it.stat().st_mode & 0o777 for it in tmp_path.iterdir()}
    assert set(modes.values()) == {0o600}, modes
    store.close()


def test_a_full_disk_changes_nothing_and_is_retryable(tmp_path: Path) -> None:
    store = LogStore(tmp_path / "logs.db")
    store.create_group(HERE, "g", 1)
    with store.database.writing() as db:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count={pages}")
    group = store.group(HERE, "g")
    assert group is not None
    store.create_stream(group, "s", 1)
    stream = store.stream(group, "s")
    assert stream is not None
    with pytest.raises(LogsUnavailable, match="full"):
        store.append(stream, [NewEvent(at_ms=1, message="x" * 10**6)], 1)
    assert store.read_forwards(stream, BEGIN, END, 10) == []
    store.close()


def test_a_damaged_file_is_moved_aside(tmp_path: Path) -> None:
    (tmp_path / "logs.db").write_bytes(b"no database at all" * 100)
    store = LogStore(tmp_path / "logs.db")
    assert store.create_group(HERE, "g", 1)
    assert (tmp_path / "logs.db.damaged").exists()
    store.close()
