"""A platform's records are moved between SQLite and PostgreSQL, all records or none."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa
from tests.contract.jobs.test_request_queue import NOW, asked, claims, ids
from tests.contract.jobs.test_shared_batches import claimed, uploaded
from tests.contract.messages.test_message_tables import HOOK, delivery
from tests.postgres_rig import QUOTED_PASSWORD, postgres_database, postgres_server
from tests.unit.dataplane.routes_sample import HERE
from tests.unit.jobs.batches.test_batch_work import Rig

from hostelry.audit.acts import AuditEntry
from hostelry.audit.check import ChainCheck
from hostelry.audit.trail import AuditTrail
from hostelry.base.clock import ManualClock
from hostelry.base.errors import TerminalError
from hostelry.control.audit_opening import open_platform_trail, read_stored_trail
from hostelry.control.data import MetricRows
from hostelry.control.store_transfer import copy_store
from hostelry.domain.llm_batch import BatchStatus
from hostelry.domain.metric import Metric, MetricStat, Sample
from hostelry.domain.scope import Scope
from hostelry.home.home import (
    Home,
    UpConfig,
    load_credentials,
    new_credentials,
    save_credentials,
)
from hostelry.home.platform_store import platform_database
from hostelry.home.run_file import save_run_file
from hostelry.jobs.batches.shared_files import SharedFiles
from hostelry.jobs.queue.durable_queue import DurableQueue
from hostelry.messaging.deliveries import Deliveries
from hostelry.messaging.tables import MessageTables
from hostelry.metrics.persistence.durable import DurableMetrics
from hostelry.metrics.persistence.shared import SharedMetrics
from hostelry.store.claim import StoreClaim, claim
from hostelry.store.copying import copy_tables
from hostelry.store.database import Database, open_database
from hostelry.store.protocol import Change, Key, StoreRefused
from hostelry.store.schema import HOLD_STATEMENT
from hostelry.store.sql import SqlStore

SCOPE = Scope("123456789012", "us-west-2")
NUMBERED = sa.MetaData()
ROWS = sa.Table(
    "numbered",
    NUMBERED,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("parent", sa.ForeignKey("numbered.id"), nullable=True),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=True),
)


def key(name: str) -> Key:
    return Key(kind="endpoint", scope=SCOPE, name=name)


@pytest.fixture
def url() -> Iterator[str]:
    with postgres_database() as found:
        yield found


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return a_home(tmp_path / "home")


def a_home(root: Path) -> Home:
    home = Home(root)
    home.make()
    save_credentials(home, new_credentials("123456789012", "us-west-2"))
    return home


def fill(place: Path | str, count: int) -> tuple[Change, ...]:
    """Write records of every kind, and return all changes of the store."""
    store = SqlStore(open_database(place))
    for number in range(count):
        store.put(key(f"n{number}"), bytes([number % 256]) * number, expect=None)
    store.put(key("\0 Größe \x01"), b"", expect=None)
    gone = store.put(key("gone"), b"1", expect=None)
    store.delete(gone.key, expect=gone.version)
    changes = tuple(store.changes(0))
    store.close()
    return changes


def changes_of(place: Path | str) -> tuple[Change, ...]:
    store = SqlStore(open_database(place))
    found = tuple(store.changes(0))
    store.close()
    return found


def copied(source: object, target: object, *, replace: bool = False) -> dict[str, int]:
    tables = copy_store(str(source), str(target), replace=replace, report=lambda *_: None)
    return {it.name: it.num_rows for it in tables}


def test_records_go_to_postgresql_and_back_with_their_revisions(
    home: Home, url: str, tmp_path: Path
) -> None:
    written = fill(home.state, 510)  # more than one page
    assert copied(home.root, url)["records"] == 512
    assert changes_of(url) == written
    store = SqlStore(open_database(url))
    assert store.revision() == written[-1].revision
    again = store.put(key("after"), b"", expect=None)
    assert again.version == written[-1].revision + 1  # a watcher continues from there
    store.close()
    other = a_home(tmp_path / "other")
    assert copied(url, other.root)["records"] == 513
    assert changes_of(other.state) == changes_of(url)


def test_a_target_with_records_is_kept_unless_it_is_to_be_replaced(home: Home, url: str) -> None:
    written = fill(home.state, 3)
    fill(url, 50)
    before = changes_of(url)
    with pytest.raises(TerminalError, match="is not empty; --replace overwrites"):
        copied(home.root, url)
    assert changes_of(url) == before
    copied(home.root, url, replace=True)
    assert changes_of(url) == written


def test_a_store_in_use_is_neither_read_nor_written(home: Home, url: str) -> None:
    fill(home.state, 3)
    in_use = open_database(url)
    with in_use.read() as connection:
        connection.exec_driver_sql(HOLD_STATEMENT)  # as each listener does
        for source, target in ((home.root, url), (url, home.root)):
            with pytest.raises(TerminalError, match="a platform runs on the store"):
                copied(source, target, replace=True)
    in_use.close()
    save_run_file(home, "control", os.getpid(), 1)
    with pytest.raises(TerminalError, match=r"control of .* still run: `hostelry down`"):
        copied(home.root, url)


def test_a_database_of_another_cluster_is_not_overwritten(
    home: Home, url: str, tmp_path: Path
) -> None:
    fill(home.state, 1)
    database = open_database(url)
    wanted = StoreClaim(cluster_id="another", home="db1:/srv/a", claimed_at=1.0)
    claim(database, wanted)
    with pytest.raises(StoreRefused, match="that of the home db1:/srv/a, and web2:/srv/b is"):
        claim(database, StoreClaim(cluster_id="mine", home="web2:/srv/b", claimed_at=2.0))
    assert claim(database, StoreClaim(cluster_id="another", home="c", claimed_at=3.0)) == wanted
    database.close()
    with pytest.raises(TerminalError, match="belongs to another cluster"):
        copied(home.root, url, replace=True)
    with pytest.raises(TerminalError, match="no hostelry in"):
        copied(url, tmp_path / "none")
    with pytest.raises(TerminalError, match="are both"):
        copied(url, url)


# Copies, and stops for good with every row written and nothing committed.
KILLED = """
import os, sys
from hostelry.control import store_transfer
checked = store_transfer.copy_tables
def stop(*arguments):
    checked(*arguments)
    print("written", flush=True)
    sys.stdin.read()
store_transfer.copy_tables = stop
store_transfer.copy_store(sys.argv[1], sys.argv[2], replace=True, report=lambda *_: None)
"""


def test_a_copy_that_is_killed_leaves_the_target_as_it_was(home: Home, url: str) -> None:
    fill(home.state, 20)
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(home.root), url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        process.kill()
    assert changes_of(url) == ()
    assert copied(home.root, url)["records"] == 22


def test_numbers_continue_and_null_stays(url: str, tmp_path: Path) -> None:
    source, target = open_database(tmp_path / "a.db"), open_database(url)
    for database in (source, target):
        database.create(NUMBERED)
    values: list[dict[str, object]] = [
        {"id": 7, "parent": None, "at": 1.0, "body": None},
        {"id": 9, "parent": 7, "at": 0.1 + 0.2, "body": b"\0\xff"},
    ]
    with source.write() as connection:
        connection.execute(sa.insert(ROWS), values)
    with source.read() as read, target.write() as written:
        (table,) = copy_tables(read, written, NUMBERED, lambda *_: None)
    assert table.num_rows == 2
    assert rows_of(source) == rows_of(target)
    with target.write() as connection:
        added = connection.execute(sa.insert(ROWS).values(at=2.0).returning(ROWS.c.id))
        assert added.scalar_one() == 10
    source.close()
    target.close()


def rows_of(database: Database) -> list[tuple[object, ...]]:
    with database.read() as connection:
        return [tuple(it) for it in connection.execute(sa.select(ROWS).order_by(ROWS.c.id))]


def is_hidden(shown: str) -> bool:
    return "hostelry.cli.main" in shown and QUOTED_PASSWORD not in shown


def test_the_command_shows_no_password_to_others(home: Home, url: str) -> None:
    fill(home.state, 1)
    command = [sys.executable, "-m", "hostelry.cli.main", "store", "copy"]
    with postgres_server().frozen():
        process = subprocess.Popen(
            [*command, "--from", str(home.root), "--to", url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        line = Path(f"/proc/{process.pid}/cmdline")
        # Before the process runs the command, it shows the previous command line.
        while not is_hidden(line.read_text()) and process.poll() is None:
            time.sleep(0.02)
        assert process.poll() is None
        assert "postgresql" not in line.read_text()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "records" in out
    assert QUOTED_PASSWORD not in out + err


def test_messages_and_requests_go_over_and_go_on_there(home: Home, url: str) -> None:
    fill(home.state, 3)
    here = DurableQueue(open_database(home.jobs))
    here.submit([asked("first"), asked("second")])
    here.close()
    messages = open_database(home.messages)
    Deliveries(MessageTables(messages)).accept([delivery("one")], [])
    messages.close()
    rows = copied(home.root, url)
    assert (rows["async_request"], rows["delivery"]) == (2, 1)
    there = DurableQueue(open_database(url), is_shared=True)
    there.submit([asked("third")])
    assert ids(claims(there)) == ["first", "second", "third"]
    waiting = Deliveries(MessageTables(there.database))
    waiting.accept([delivery("two")], [])
    assert [it.body for it in waiting.due(HOOK, NOW, 9)] == ["one", "two"]
    there.close()


def test_files_and_batches_go_to_postgresql_and_back(home: Home, url: str, tmp_path: Path) -> None:
    fill(home.state, 3)
    here = Rig(home.root)
    files = {"file-a": os.urandom(2_500_000), "file-b": b"x", "file-c": b""}
    stored = [uploaded(here, id, content) for id, content in files.items()]
    begun = here.batch(file="file-b").went(BatchStatus.IN_PROGRESS, 1.0)
    here.rows.add_batch(begun)
    here.folder.path(begun.output_file_id).write_bytes(b"answered\n")
    here.folder.path("file-lost").write_bytes(b"of no row")
    assert copied(home.root, url)["openai_chunk"] == 39 + 3
    with closing(open_database(url)) as database:
        there = Rig(tmp_path, host="there", database=database)
        assert [b"".join(there.files.read_chunks(it)) for it in stored] == list(files.values())
        assert there.rows.delete_file(HERE.account, "file-b") == begun.id
        claim = claimed(there)
        assert claim is not None
        assert isinstance(there.files, SharedFiles)
        there.files.append(claim, begun.output_file_id, 9, b"again\n")
        half = there.files.begin_upload("file-half", HERE.account)
        half.write(b"x" * 2_000_000)
    other = a_home(tmp_path / "other")
    copied(url, other.root)
    again = Rig(other.root)
    assert [b"".join(again.files.read_chunks(it)) for it in stored] == list(files.values())
    assert again.rows.list_unfinished() == [begun]
    output = again.folder.path(begun.output_file_id)
    assert output.read_bytes() == b"answered\nagain\n"
    assert {it.name for it in other.files.iterdir()} == {*files, output.name}


def samples(place: Home | str, number: int = 0) -> float:
    """Record `count` further samples, and return their total."""
    clock, metric = ManualClock(NOW), Metric.of("Mine", "Put", {"a": "b"})
    with ExitStack() as stack:
        store: DurableMetrics | SharedMetrics
        if isinstance(place, Home):
            store = DurableMetrics(place.metrics, clock)
        else:
            database = stack.enter_context(closing(open_database(place)))
            store = SharedMetrics(MetricRows(database), clock, record_s=0.0)
        stack.enter_context(closing(store))
        for _ in range(number):
            store.record(SCOPE, [Sample(metric=metric, at=NOW, values=(1.0,))])
            if number > 1:
                store.compact()  # a snapshot, and a new segment
        store.record(SCOPE, [Sample(metric=metric, at=NOW, values=(1.0,))])
        stat = MetricStat(metric=metric, period_s=60, statistic="SampleCount")
        return sum(it.value for it in store.datapoints(SCOPE, stat, NOW - 60, NOW + 60))


def act(at: float) -> AuditEntry:
    return AuditEntry(at=at, who="me", act="restart", target="e", outcome="accepted")


@contextmanager
def opened_trail(home: Home, url: str | None = None) -> Iterator[AuditTrail]:
    """The trail of a home, or of its database."""
    config = UpConfig(control_port=1, store_url=url)
    with closing(platform_database(home, config)) as database:
        keys, clock = load_credentials(home), ManualClock(5.0)
        with closing(open_platform_trail(home, config, keys, database, clock)) as trail:
            yield trail


def is_whole(home: Home, url: str | None = None) -> bool:
    """Whether the trail's chain is whole up to the head that the store notes."""
    config = UpConfig(control_port=1, store_url=url)
    with read_stored_trail(home, config, load_credentials(home)) as stored:
        check = ChainCheck(stored.key, stored.anchor, stored.heads)
        for place, lines in stored.reader.read_forwards():
            for line in lines:
                check.take(line, place)
        check.finish()
        return check.problems == [] and check.head in stored.heads


def test_metrics_and_the_audit_log_go_to_postgresql_and_back(
    home: Home, url: str, tmp_path: Path
) -> None:
    assert samples(home, 3) == 4
    with opened_trail(home) as trail:
        trail.append(act(1.0))
    home.former_audit.write_bytes(msgspec.json.encode(act(2.0)) + b"\n")  # of an earlier version
    rows = copied(home.root, url)
    assert (rows["audit_record"], rows["audit_entry"]) == (1, 1)
    assert rows["metric_part"] >= 2
    assert samples(url) == 5
    with opened_trail(home, url) as trail:
        assert trail.newest(9) == [act(2.0), act(1.0)]
        trail.append(act(3.0))
    assert is_whole(home, url)
    other = a_home(tmp_path / "other")
    shutil.copy(home.credentials, other.credentials)
    for _ in range(2):  # the second copy replaces the first
        copied(url, other.root, replace=True)
        assert is_whole(other)
        with opened_trail(other) as trail:
            assert trail.newest(9) == [act(3.0), act(2.0), act(1.0)]
        assert samples(other) == 6
    assert samples(home) == 5, "the source has what it had"
    assert not list(other.root.glob("*cop*"))
    with pytest.raises(TerminalError, match="is not empty; --replace overwrites"):
        copied(url, other.root)


def test_a_target_whose_files_cannot_be_written_keeps_its_records(home: Home, url: str) -> None:
    written = fill(home.state, 3)
    fill(url, 50)
    (home.root / "metrics.copied").write_text("in the way")
    with pytest.raises(TerminalError, match=r"metrics, audit log or files of .*metrics.copied"):
        copied(url, home.root, replace=True)
    assert changes_of(home.state) == written
