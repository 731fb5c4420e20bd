"""Metrics in PostgreSQL: processes that are killed, a server that is, and two leaders."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.cases import case, cases
from tests.postgres_rig import postgres_database, postgres_server

from hostelry.base.clock import ManualClock
from hostelry.base.errors import RetryableError
from hostelry.control.data import MetricRows
from hostelry.domain.metric import Metric, MetricStat, Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.persistence.shared import SharedMetrics
from hostelry.metrics.protocol import MetricFilter
from hostelry.store.database import open_database
from hostelry.store.fence import Fence, FencedDatabase
from hostelry.store.leaders import METADATA
from hostelry.store.lease_rows import LeaseRows

pytestmark = pytest.mark.integration
HERE = Scope("123456789012", "us-west-2")
T = 1_700_000_040.0
LOAD = Metric.of("Mine", "Load", {})
# Records and emits one sample after the other, printing how many are acknowledged.
WRITER = """
import sys
from hostelry.base.clock import ManualClock
from hostelry.domain.metric import Metric, Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.persistence.shared import SharedMetrics
from hostelry.control.data import MetricRows
from hostelry.store.database import open_database

scope, load = Scope("123456789012", "us-west-2"), Metric.of("Mine", "Load", {})
rows = MetricRows(open_database(sys.argv[1]))
store = SharedMetrics(
    rows, ManualClock(1_700_000_040.0), least_journal_bytes=int(sys.argv[2]), record_s=0.0
)
for number in range(1, 1_000_000):
    other = Metric.of("Mine", f"Other{number % 50}", {"Number": str(number % 50)})
    store.emit(scope, [Sample(metric=other, at=1_700_000_040.0, values=(1.0, 2.0))])
    store.record(scope, [Sample(metric=load, at=1_700_000_040.0, values=(1.0,))])
    print(number, flush=True)
"""


@pytest.fixture
def url() -> Iterator[str]:
    with postgres_database() as made:
        yield made


@contextlib.contextmanager
def opened(url: str) -> Iterator[SharedMetrics]:
    with contextlib.closing(open_database(url)) as database:
        store = SharedMetrics(MetricRows(database), ManualClock(T), record_s=0.0)
        with contextlib.closing(store):
            yield store


def num_kept(store: SharedMetrics) -> float:
    stat = MetricStat(metric=LOAD, period_s=60, statistic="SampleCount")
    return sum(it.value for it in store.datapoints(HERE, stat, T, T + 60))


@cases(
    "journal_bytes",
    case("in the journal", 10**9),
    case("while snapshots are written all the time", 2000),
)
def test_no_acknowledged_sample_is_lost_when_the_writer_is_killed(
    url: str, journal_bytes: int
) -> None:
    num_acknowledged = 0
    for life in range(2):
        command = [sys.executable, "-c", WRITER, url, str(journal_bytes)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            acknowledged = [writer.stdout.readline() for _ in range(60 + 40 * life)]
            writer.kill()
            acknowledged += writer.stdout.readlines()
        num_acknowledged += len([line for line in acknowledged if line.endswith("\n")])
        with opened(url) as store:
            kept = num_kept(store)
            # One more may have been written and not acknowledged.
            assert num_acknowledged <= kept <= num_acknowledged + 1
            assert len(store.find(HERE, MetricFilter())) == 51
        num_acknowledged = int(kept)


def test_a_server_that_is_killed_costs_refusals_and_no_sample(url: str) -> None:
    server, load = postgres_server(), [Sample(metric=LOAD, at=T, values=(1.0,))]
    with opened(url) as store:
        store.record(HERE, load)
        server.kill()
        try:
            store.emit(HERE, load)
            with pytest.raises(RetryableError, match="cannot be kept"):
                store.record(HERE, load)
            assert num_kept(store) == 2
        finally:
            server.start()
        store.settle()
        store.record(HERE, load)
        with opened(url) as successor:
            assert num_kept(successor) == num_kept(store) == 3


def test_a_leader_whose_epoch_is_over_keeps_nothing_and_its_successor_has_all_before(
    url: str,
) -> None:
    load, ended = [Sample(metric=LOAD, at=T, values=(1.0,))], list[str]()
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(contextlib.closing(open_database(url)))
        database.create(METADATA)
        controls = [LeaseRows(url, name, f"http://{name}", "1.0") for name in ("a", "b")]
        for control in controls:
            stack.callback(control.close)

        def lead(control: LeaseRows) -> SharedMetrics:
            fence = Fence(ended.append)
            fence.lead(control.acquire(control.look().lease, "test") or 0)
            rows = MetricRows(FencedDatabase(database, fence))
            store = SharedMetrics(rows, ManualClock(T), record_s=0.0)
            stack.callback(store.close)
            return store

        before = lead(controls[0])
        before.record(HERE, load)
        after = lead(controls[1])
        before.emit(HERE, load)
        with pytest.raises(RetryableError, match="epoch 1 is over"):
            before.record(HERE, load)
        after.record(HERE, load)
        assert num_kept(after) == 2
        assert len(ended) == 1
        with opened(url) as successor:
            assert num_kept(successor) == 2
