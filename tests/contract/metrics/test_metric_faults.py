"""Metrics on disk withstand death in mid-write, a full disk, and damaged files."""

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.clock import ManualClock
from hostelry.base.errors import RetryableError
from hostelry.domain.metric import Metric, MetricStat, Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.persistence.durable import RETRY_S, DurableMetrics
from hostelry.metrics.protocol import MetricFilter

HERE = Scope("123456789012", "us-west-2")
T = 1_700_000_040.0
LOAD = Metric.of("Mine", "Load", {})
# Records one sample after another, and prints the number of acknowledged samples. A limit on the
# size of files replaces a full disk. At the end it prints the samples that it can still read.
WRITER = """
import sys
from pathlib import Path
from hostelry.base.clock import ManualClock
from hostelry.base.errors import RetryableError
from hostelry.domain.metric import Metric, MetricStat, Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.persistence.durable import DurableMetrics

folder, journal_bytes, limit_bytes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
scope, load = Scope("123456789012", "us-west-2"), Metric.of("Mine", "Load", {})
store = DurableMetrics(folder, ManualClock(1_700_000_040.0), least_journal_bytes=journal_bytes)
if limit_bytes:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
number = 0
try:
    while True:
        number += 1
        other = Metric.of("Mine", f"Other{number % 50}", {"Number": str(number % 50)})
        samples = [
            Sample(metric=load, at=1_700_000_040.0 + number % 60, values=(1.0,), resolution_s=1),
            Sample(metric=other, at=1_700_000_040.0, values=(1.0, float(number))),
        ]
        store.record(scope, samples)
        print(number, flush=True)
except RetryableError as error:
    print("refused", error, flush=True)
    stat = MetricStat(metric=load, period_s=60, statistic="Sum")
    print(store.datapoints(scope, stat, 1_700_000_040.0, 1_700_000_100.0)[0].value, flush=True)
"""


def start_writer(folder: Path, journal_bytes: int, limit_bytes: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), str(journal_bytes), str(limit_bytes)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def num_kept(store: DurableMetrics) -> float:
    stat = MetricStat(metric=LOAD, period_s=60, statistic="SampleCount")
    return sum(it.value for it in store.datapoints(HERE, stat, T, T + 60))


def opened(folder: Path) -> DurableMetrics:
    return DurableMetrics(folder, ManualClock(T))


@cases(
    "journal_bytes",
    case("in the journal", 10**9),
    case("while snapshots are written all the time", 2000),
)
def test_no_acknowledged_sample_is_lost_when_the_writer_is_killed(
    tmp_path: Path, journal_bytes: int
) -> None:
    num_acknowledged = 0
    for life in range(3):
        writer = start_writer(tmp_path, journal_bytes)
        assert writer.stdout is not None
        acknowledged = [writer.stdout.readline() for _ in range(300 + 170 * life)]
        writer.kill()
        acknowledged += writer.stdout.readlines()
        writer.wait()
        writer.stdout.close()
        # The last line may be half a number. Then the line before it is the number minus one.
        num_acknowledged += len([line for line in acknowledged if line.endswith("\n")])
        store = opened(tmp_path)
        # One more may have been written and not acknowledged.
        kept = num_kept(store)
        assert num_acknowledged <= kept <= num_acknowledged + 1
        assert len(store.find(HERE, MetricFilter())) == 51
        num_acknowledged = int(kept)
        store.close()


def test_a_full_disk_refuses_and_loses_nothing(tmp_path: Path) -> None:
    writer = start_writer(tmp_path, 10**9, limit_bytes=30_000)
    out, _ = writer.communicate(timeout=60)
    *numbers, refusal, readable = out.splitlines()
    assert refusal.startswith("refused 2 samples cannot be kept in")
    assert "File too large" in refusal
    assert float(readable) == len(numbers) == int(numbers[-1])
    store = opened(tmp_path)
    assert num_kept(store) == len(numbers)
    # The disk has room again: samples are taken, and are there at the next start.
    store.record(HERE, [Sample(metric=LOAD, at=T, values=(1.0,))])
    store.close()
    again = opened(tmp_path)
    assert num_kept(again) == len(numbers) + 1
    again.close()


def record(store: DurableMetrics, count: int = 1) -> None:
    for _ in range(count):
        store.record(HERE, [Sample(metric=LOAD, at=T, values=(1.0,))])


@contextlib.contextmanager
def files_of_at_most(limit_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_that_has_room_again_is_written_to_again(tmp_path: Path) -> None:
    clock = ManualClock(T)
    store = DurableMetrics(tmp_path, clock)
    record(store, 20)
    size = max(path.stat().st_size for path in tmp_path.iterdir())
    with files_of_at_most(size + 3):
        for _ in range(3):
            with pytest.raises(RetryableError, match="cannot be kept"):
                record(store)
            clock.advance(RETRY_S)
    record(store, 5)
    assert num_kept(store) == 25
    store.close()
    again = opened(tmp_path)
    assert num_kept(again) == 25
    again.close()


def test_a_snapshot_that_does_not_fit_leaves_what_was_there(tmp_path: Path) -> None:
    store = opened(tmp_path)
    record(store, 20)
    store.compact()
    record(store, 5)
    with files_of_at_most(30), pytest.raises(OSError, match="large"):
        store.compact()
    record(store, 5)
    store.close()
    assert list(tmp_path.glob("*.unfinished")) == []
    again = opened(tmp_path)
    assert num_kept(again) == 30
    again.close()


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 3)


def flip_a_bit(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[-5] ^= 4
    path.write_bytes(body)


def add_noise(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\xff" * 40)


@cases(
    "damage, kept",
    case("cut short: all but the last", cut_short, 9),
    case("a bit flipped: all but the last", flip_a_bit, 9),
    case("noise at its end: all", add_noise, 10),
)
def test_a_damaged_end_of_the_journal_costs_no_more_than_itself(
    tmp_path: Path, damage: Callable[[Path], None], kept: int
) -> None:
    store = opened(tmp_path)
    record(store, 10)
    store.close()
    damage(max(tmp_path.glob("segment-*")))
    for more in range(3):
        again = opened(tmp_path)
        assert num_kept(again) == kept + more
        record(again)
        again.close()


def test_a_damaged_snapshot_does_not_keep_control_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(tmp_path)
    record(store, 10)
    store.compact()
    record(store, 3)
    store.close()
    flip_a_bit(next(tmp_path.glob("snapshot-*")))
    again = opened(tmp_path)
    assert num_kept(again) in (3.0, 13.0)
    assert "is damaged" in caplog.text
    again.close()


def test_a_sample_of_the_snapshot_and_of_the_journal_counts_once(tmp_path: Path) -> None:
    store = opened(tmp_path)
    record(store, 20)
    written = max(tmp_path.glob("segment-*")).read_bytes()
    store.compact()
    store.close()
    # As if they had come to the new segment before the snapshot was taken.
    max(tmp_path.glob("segment-*")).write_bytes(written)
    again = opened(tmp_path)
    assert num_kept(again) == 20
    again.close()


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "segment-x.log").write_text("mine")
    store = opened(tmp_path)
    record(store, 2)
    store.compact()
    store.close()
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "segment-x.log").read_text() == "mine"


def test_the_journal_stays_short_and_the_folder_too(tmp_path: Path) -> None:
    store = DurableMetrics(tmp_path, ManualClock(T), least_journal_bytes=5000)
    for _ in range(30):
        record(store, 100)
        store.compact()
        sizes = [path.stat().st_size for path in tmp_path.iterdir()]
        assert sum(sizes) < 20_000
    store.close()
    again = opened(tmp_path)
    assert num_kept(again) == 3000
    again.close()


def test_many_starts_do_not_leave_many_files(tmp_path: Path) -> None:
    for _ in range(25):
        store = opened(tmp_path)
        record(store)
        store.close()
    assert len(list(tmp_path.iterdir())) < 25
    last = opened(tmp_path)
    assert num_kept(last) == 25
    last.close()


def test_other_users_may_not_read_the_files(tmp_path: Path) -> None:
    store = opened(tmp_path / "metrics")
    record(store)
    store.compact()
    modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "metrics").rglob("*")}
    assert modes == {0}
    assert (tmp_path / "metrics").stat().st_mode & 0o077 == 0
    store.close()
    with pytest.raises(RetryableError, match="closed"):
        record(store)
