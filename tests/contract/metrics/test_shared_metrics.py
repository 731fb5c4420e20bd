"""Metrics with a journal beyond this host: samples that survive its failures, and lost samples."""

import contextlib
import itertools
from collections.abc import Callable, Iterator

import pytest
from tests.cases import case, cases
from tests.journal_rows import MemoryRows

from hostelry.base.clock import ManualClock
from hostelry.base.errors import RetryableError, TerminalError
from hostelry.domain.metric import Metric, MetricStat, Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.persistence import shared
from hostelry.metrics.persistence.journal import PartKind
from hostelry.metrics.persistence.shared import SharedMetrics
from hostelry.metrics.protocol import MetricFilter

HERE = Scope("123456789012", "us-west-2")
T = 1_700_000_040.0
PUT, OURS = Metric.of("Mine", "Put", {}), Metric.of("AWS/SageMaker", "Ours", {"a": "b"})
AWAY = RetryableError("the database is away")

Open = Callable[[], SharedMetrics]


@pytest.fixture
def rows() -> MemoryRows:
    return MemoryRows()


@pytest.fixture
def opened(rows: MemoryRows, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens stores over `rows` that commit at once. All are closed in the end."""
    for name in ("COMMIT_S", "RETRY_S", "SNAPSHOT_RETRY_S"):
        monkeypatch.setattr(shared, name, 0.01)
    with contextlib.ExitStack() as stack:

        def make() -> SharedMetrics:
            store = SharedMetrics(rows, ManualClock(T), record_s=0.0)
            stack.callback(store.close)
            return store

        yield make


def put(store: SharedMetrics, *values: float) -> None:
    store.record(HERE, [Sample(metric=PUT, at=T, values=values or (1.0,))])


def emit(store: SharedMetrics, number: int = 1) -> None:
    store.emit(HERE, [Sample(metric=OURS, at=T, values=(1.0,))] * number)


def counts(store: SharedMetrics) -> tuple[float, float]:
    """Samples that were put, and that were emitted."""
    stats = (MetricStat(metric=it, period_s=60, statistic="SampleCount") for it in (PUT, OURS))
    found = [store.datapoints(HERE, it, T, T + 60) for it in stats]
    return tuple(sum(it.value for it in points) for points in found)  # type: ignore[return-value]


def test_what_is_put_is_in_the_rows_when_it_is_acknowledged(rows: MemoryRows, opened: Open) -> None:
    store = opened()
    for number in range(1, 4):
        put(store)
        assert counts(opened()) == (number, 0.0)  # a successor of a process that is killed now
    emit(store)
    store.settle()
    assert counts(opened()) == (3.0, 1.0)


@cases(
    "error",
    case("a database that is away", AWAY),
    case("another leader", TerminalError("epoch 1 is over: another leads")),
    case("a defect", TypeError("a bug")),
)
def test_rows_that_cannot_be_written_refuse_what_is_put_and_cost_nothing_of_ours(
    rows: MemoryRows, opened: Open, error: Exception
) -> None:
    store = opened()
    put(store)
    rows.failing = error
    emit(store)
    for _ in range(3):
        with pytest.raises(RetryableError, match=rf"1 samples cannot be kept: .*{error}"):
            put(store)
        store.settle()
    assert counts(store) == (1.0, 1.0)
    state = store.journal()
    assert (state.is_taking, state.is_behind, state.num_refused) == (False, True, 3)
    rows.failing = None
    store.settle()
    assert store.journal().is_taking
    put(store)
    assert counts(store) == (2.0, 1.0)
    assert counts(opened()) == (2.0, 1.0)
    assert not store.journal().is_behind


def test_what_was_refused_is_not_kept_though_its_write_was_made(
    rows: MemoryRows, opened: Open
) -> None:
    store = opened()
    emit(store)
    store.settle()
    rows.lost_answers = 1
    with pytest.raises(RetryableError, match="the answer was lost"):
        put(store)
    emit(store)
    store.settle()
    assert counts(store) == (0.0, 2.0)
    assert counts(opened()) == (0.0, 2.0)


def test_what_no_longer_fits_while_the_rows_fail_is_saved_by_a_snapshot(
    rows: MemoryRows, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "MAX_WAITING", 50)
    store = opened()
    put(store)
    rows.failing = AWAY
    for _ in range(9):
        emit(store, 10)
        store.settle()
    assert counts(store) == (1.0, 90.0)
    rows.failing = None
    store.settle()
    assert not store.journal().is_behind
    assert counts(opened()) == (1.0, 90.0)
    assert {kind for kind, _, _ in rows.parts} == {PartKind.SNAPSHOT, PartKind.SEGMENT} or {
        kind for kind, _, _ in rows.parts
    } == {PartKind.SNAPSHOT}


def test_rows_that_cannot_be_read_at_the_start_are_read_later(
    rows: MemoryRows, opened: Open
) -> None:
    before = opened()
    put(before)
    emit(before)
    before.close()
    rows.failing = AWAY
    store = opened()
    emit(store)
    with pytest.raises(RetryableError, match="away"):
        put(store)
    rows.failing = None
    store.settle()
    put(store)
    assert counts(store) == (2.0, 2.0)
    store.settle()
    assert counts(opened()) == (2.0, 2.0)


@cases("error", case("by the database", AWAY), case("by a defect", TypeError("a bug")))
def test_a_snapshot_that_breaks_off_anywhere_loses_nothing(
    rows: MemoryRows, opened: Open, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    rows.no_more = error
    monkeypatch.setattr(shared, "PART_BYTES", 200)
    monkeypatch.setattr(shared, "SNAPSHOT_RETRY_S", 3600.0)
    store = opened()
    for number in range(400):
        metric = Metric.of("Mine", f"M{number}", {})
        store.emit(HERE, [Sample(metric=metric, at=T, values=(1.0,))])
    put(store)
    for left in itertools.count():
        rows.writes_left = left
        store.compact()
        rows.writes_left = None
        assert counts(opened()) == (1.0, 0.0)
        assert len(opened().find(HERE, MetricFilter())) == 401
        if PartKind.SNAPSHOT in {kind for kind, _, _ in rows.parts}:
            break
    assert left >= 4, "it has several parts"
    put(store)
    assert counts(opened()) == (2.0, 0.0)


def test_a_mark_is_kept_with_what_was_emitted_before_it(rows: MemoryRows, opened: Open) -> None:
    store = opened()
    assert store.marks() == {}
    rows.failing = AWAY
    emit(store)
    store.mark("reports", b"one")
    store.settle()
    rows.failing = None
    assert rows.kept_marks == {} or counts(opened()) == (0.0, 1.0)
    store.mark("reports", b"two")
    store.settle()
    assert store.marks() == {"reports": b"two"}
    assert counts(opened()) == (0.0, 1.0)


def test_what_comes_at_once_shares_a_commit(
    rows: MemoryRows, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    monkeypatch.setattr(shared, "COMMIT_S", 3600.0)
    put(store)
    before = rows.num_writes
    for _ in range(500):
        emit(store)
    store.settle()
    assert rows.num_writes - before <= 2
    assert counts(opened()) == (1.0, 500.0)


def test_a_closed_store_has_committed_what_waited_and_takes_nothing_more(
    rows: MemoryRows, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "COMMIT_S", 3600.0)
    store = opened()
    emit(store, 3)
    store.close()
    with pytest.raises(RetryableError, match="closed"):
        put(store)
    assert counts(opened()) == (0.0, 3.0)
