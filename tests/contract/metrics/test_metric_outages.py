"""A disk that refuses metrics, at the start or later: refusals, and metrics that still work."""

import contextlib
import logging
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import case, cases
from tests.unit.scaling.loop.alarm_rig import ALARM, SCOPE, Rig

from hostelry.base.clock import ManualClock
from hostelry.base.errors import RetryableError
from hostelry.domain.metric import Metric, MetricStat, Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.persistence.durable import RETRY_S, SNAPSHOT_RETRY_S, DurableMetrics
from hostelry.metrics.protocol import MetricFilter
from hostelry.scaling.loop.alarm_actions import Addresses, AlarmActionDeps
from hostelry.scaling.loop.alarm_watch import AlarmWatch, AlarmWatchDeps

HERE = Scope("123456789012", "us-west-2")
T = 1_700_000_040.0
PUT = Metric.of("Mine", "Load", {})
OURS = Metric.of("AWS/SageMaker", "Invocations", {"InferenceComponentName": "chat"})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(T)


@pytest.fixture
def folder(tmp_path: Path, clock: ManualClock) -> Path:
    """A folder in which a process before kept two samples that were put, and two of ours."""
    folder = tmp_path / "metrics"
    store = DurableMetrics(folder, clock)
    for _ in range(2):
        store.record(HERE, [Sample(metric=PUT, at=T, values=(1.0,))])
        store.emit(HERE, [Sample(metric=OURS, at=T, values=(1.0, 2.0))])
    store.close()
    return folder


def put(store: DurableMetrics) -> None:
    store.record(HERE, [Sample(metric=PUT, at=T, values=(1.0,))])


def emit(store: DurableMetrics) -> None:
    store.emit(HERE, [Sample(metric=OURS, at=T, values=(1.0, 2.0))])


def count(store: DurableMetrics, metric: Metric) -> float:
    stat = MetricStat(metric=metric, period_s=60, statistic="SampleCount")
    return sum(it.value for it in store.datapoints(HERE, stat, T, T + 60))


def counts(store: DurableMetrics) -> tuple[float, float]:
    """The numbers of stored samples, and of calls of `emit`."""
    return count(store, PUT), count(store, OURS) / 2


def reopened(store: DurableMetrics, folder: Path, clock: ManualClock) -> DurableMetrics:
    """The store as the next process finds it after a kill. `store` writes nothing more."""
    store.settle()
    found = DurableMetrics(folder, clock)
    store.close()
    return found


@contextlib.contextmanager
def full_disk(limit_bytes: int = 0) -> Iterator[None]:
    """Limit the size of files, which acts like a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def file_in_its_place(folder: Path) -> Iterator[None]:
    away = folder.with_name("away")
    folder.rename(away)
    folder.write_text("not a folder")
    try:
        yield
    finally:
        folder.unlink()
        away.rename(folder)


@contextlib.contextmanager
def unreadable_segment(folder: Path) -> Iterator[None]:
    segment = max(folder.glob("segment-*"))
    away = folder.with_name("away")
    segment.rename(away)
    segment.mkdir()
    try:
        yield
    finally:
        segment.rmdir()
        away.rename(segment)


def disk_is_full(folder: Path) -> contextlib.AbstractContextManager[None]:
    return full_disk()


@cases(
    "refusing, message",
    case(
        "a file where the folder should be",
        file_in_its_place,
        "metrics: File exists.*move away the file that stands in its place",
    ),
    case(
        "a segment that cannot be read",
        unreadable_segment,
        "segment-0000000001.log: Is a directory.*move away the folder",
    ),
    case("a full disk", disk_is_full, "File too large.*raise the limit on the size of files"),
)
def test_a_start_on_a_disk_that_refuses_metrics_goes_on_without_it_and_recovers(
    folder: Path,
    clock: ManualClock,
    refusing: Callable[[Path], contextlib.AbstractContextManager[None]],
    message: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with refusing(folder):
        store = DurableMetrics(folder, clock)
        before = counts(store)
        for _ in range(3):
            with pytest.raises(RetryableError, match=message):
                put(store)
            emit(store)
            clock.advance(RETRY_S)
            store.settle()
        assert counts(store) == (before[0], before[1] + 3)
    assert len([it for it in caplog.records if it.levelno == logging.WARNING]) == 1
    clock.advance(RETRY_S)
    emit(store)
    store.settle()
    put(store)
    emit(store)
    assert counts(store) == (3, 7)
    store.settle()
    after = reopened(store, folder, clock)
    assert counts(after) == (3, 7)
    after.close()


def test_what_is_emitted_while_the_disk_is_full_is_seen_and_kept_once_it_is_not(
    folder: Path, clock: ManualClock
) -> None:
    store = DurableMetrics(folder, clock)
    with full_disk(max(it.stat().st_size for it in folder.iterdir())):
        while True:
            try:
                put(store)
            except RetryableError:
                break
        num_put = count(store, PUT)
        for _ in range(5):
            emit(store)
            clock.advance(1)
        assert counts(store) == (num_put, 7)
        killed = reopened(store, folder, clock)
        assert counts(killed) == (num_put, 2)
        for _ in range(5):
            emit(killed)
    clock.advance(RETRY_S)
    put(killed)
    killed.settle()
    after = reopened(killed, folder, clock)
    assert counts(after) == (num_put + 1, 7)
    after.close()


def test_the_disk_is_left_alone_between_two_tries(folder: Path, clock: ManualClock) -> None:
    store = DurableMetrics(folder, clock)
    with full_disk(), pytest.raises(RetryableError):
        put(store)
    with pytest.raises(RetryableError, match="cannot be kept"):
        put(store)  # the disk would take it
    clock.advance(-3600)
    put(store)
    assert counts(store) == (3, 2)
    store.close()


def test_refused_names_take_no_memory(folder: Path, clock: ManualClock) -> None:
    store = DurableMetrics(folder, clock)
    with full_disk():
        for number in range(100):
            name = Metric.of("Mine", f"Name{number}", {})
            with pytest.raises(RetryableError):
                store.record(HERE, [Sample(metric=name, at=T, values=(1.0,))])
    assert store.stats().num_series <= 3
    assert [it.name for it in store.find(HERE, MetricFilter())] == ["Invocations", "Load"]
    store.close()


def test_a_snapshot_that_does_not_fit_after_an_outage_is_tried_again_later(
    folder: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = DurableMetrics(folder, clock)
    with full_disk():
        emit(store)
    clock.advance(RETRY_S)
    size = max(it.stat().st_size for it in folder.iterdir())
    for number in range(20):
        metric = Metric.of("Ours", f"Name{number}", {"Name": "x" * 50})
        with full_disk():
            store.emit(HERE, [Sample(metric=metric, at=T, values=(1.0,))])
    with full_disk(3 * size):
        clock.advance(RETRY_S)
        put(store)  # the journal has room for that, but a snapshot has none
        store.settle()
        num_files = len(list(folder.iterdir()))
        for _ in range(3):
            clock.advance(RETRY_S)
            put(store)
            store.settle()
        assert len(list(folder.iterdir())) == num_files
        assert caplog.text.count("no snapshot of the metrics") == 1
    clock.advance(SNAPSHOT_RETRY_S)
    put(store)
    after = reopened(store, folder, clock)
    assert counts(after) == (7, 3)
    assert len(after.find(HERE, MetricFilter(namespace="Ours"))) == 20
    after.close()


def test_alarms_and_their_policies_go_on_during_an_outage(tmp_path: Path) -> None:
    rig = Rig()
    store = DurableMetrics(tmp_path / "metrics", rig.clock)
    around = AlarmActionDeps(
        state=rig.state, clock=rig.clock, addresses_of=Addresses().of, post=rig.web.post
    )
    watched = AlarmWatchDeps(
        state=rig.state, metrics=store, scaler=rig.scaler, clock=rig.clock, steady=rig.steady
    )
    rig.watch = AlarmWatch(watched, around)
    rig.put()
    load = Metric.of("Own", "Load", {})
    with full_disk():
        for _ in range(30):
            sample = Sample(metric=load, at=rig.clock.now(), values=(9.0,), resolution_s=1)
            store.emit(SCOPE, [sample])
            rig.look_for(1)
    assert rig.alarm().status.state is ALARM
    assert rig.scaler.triggers
    store.close()


STEPS = st.lists(
    st.sampled_from(["put", "emit", "full", "room", "later", "back", "kill", "compact"]),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_whatever_the_disk_does_nothing_acknowledged_is_lost(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    folder, clock = tmp_path_factory.mktemp("metrics"), ManualClock(T)
    store = DurableMetrics(folder, clock)
    num_acknowledged, num_emitted = 0, 0
    with contextlib.ExitStack() as ways:
        for step in steps:
            if step == "full":
                ways.enter_context(full_disk(40))
            elif step == "room":
                ways.close()
            elif step in ("later", "back"):
                clock.advance(6 if step == "later" else -7)
            elif step == "kill":
                store = reopened(store, folder, clock)
                num_emitted = int(counts(store)[1])
            elif step == "compact":
                with contextlib.suppress(OSError):
                    store.compact()
            elif step == "emit":
                emit(store)
                num_emitted += 1
            else:
                with contextlib.suppress(RetryableError):
                    put(store)
                    num_acknowledged += 1
            store.settle()
            assert counts(store) == (num_acknowledged, num_emitted)
    clock.advance(SNAPSHOT_RETRY_S)
    put(store)
    after = reopened(store, folder, clock)
    assert counts(after) == (num_acknowledged + 1, num_emitted)
    after.close()
