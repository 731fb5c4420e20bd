"""The lease and the fence in PostgreSQL: the assumptions of the simulation of `lease`."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.postgres_rig import postgres_database

from hostelry.base.errors import Conflict, Fenced
from hostelry.domain.scope import Scope
from hostelry.store import lease_rows
from hostelry.store.database import Database, open_database
from hostelry.store.fence import Fence, FencedDatabase
from hostelry.store.leaders import METADATA, read_leadership
from hostelry.store.lease import TTL_S, Acquire, StandBy, decide
from hostelry.store.lease_rows import KEPT_CHANGES, LeaseRows
from hostelry.store.postgres_connection import TimedConnection, connect
from hostelry.store.protocol import Key, StoreUnavailable
from hostelry.store.sql import SqlStore

KEY = Key(kind="endpoint", scope=Scope("123456789012", "us-west-2"), name="chat")


@dataclass
class Rig:
    """A database with the lease's tables, and controls over it."""

    url: str
    database: Database
    opened: list[LeaseRows] = field(default_factory=list)

    def control(self, me: str) -> LeaseRows:
        self.opened.append(LeaseRows(self.url, me, f"http://{me}", "1.0"))
        return self.opened[-1]


@pytest.fixture
def rig() -> Iterator[Rig]:
    with postgres_database() as url:
        database = open_database(url)
        database.create(METADATA)
        made = Rig(url, database)
        yield made
        for rows in made.opened:
            rows.close()
        database.close()


def test_one_of_two_gets_an_epoch_and_keeps_it_while_it_renews(rig: Rig) -> None:
    a, b = rig.control("a"), rig.control("b")
    assert decide("a", None, a.look(), 0.0) == Acquire("no control led before")
    assert a.acquire(None, "first") == 1
    assert b.acquire(None, "first") is None
    seen = b.look()
    assert (seen.session_lives, decide("b", None, seen, 0.0)) == (True, StandBy())
    assert a.renew(1)
    assert b.acquire(seen.lease, "as it was before the renewal") is None
    renewed = b.look()
    assert seen.lease is not None
    assert renewed.lease is not None
    assert renewed.lease.renewals == seen.lease.renewals + 1
    assert renewed.lease.expires_at == pytest.approx(renewed.lease.renewed_at + TTL_S)
    assert renewed.lease.renewed_at <= renewed.now


def test_the_end_of_a_session_and_a_release_free_the_lease(rig: Rig) -> None:
    a, b, c = rig.control("a"), rig.control("b"), rig.control("c")
    assert a.acquire(None, "first") == 1
    a.close()
    seen = b.look()
    while seen.session_lives:  # the server notices the end of a connection by itself
        seen = b.look()
    assert decide("b", None, seen, 0.0) == Acquire("the session of a ended")
    assert b.acquire(seen.lease, "the session of a ended") == 2
    assert not a.renew(1)
    a.release(1)
    assert decide("c", None, c.look(), 0.0) == StandBy()
    b.release(2)
    assert decide("c", None, c.look(), 0.0) == Acquire("b released it")


def test_a_session_that_comes_back_holds_its_epoch_again(rig: Rig) -> None:
    a, b = rig.control("a"), rig.control("b")
    assert a.acquire(None, "first") == 1
    with rig.database.write() as connection:
        connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
            " AND mode = 'ShareLock'"
        )
    with pytest.raises(StoreUnavailable, match="terminating connection"):
        a.look()
    assert a.renew(1)
    assert b.look().session_lives


def test_a_session_that_cannot_be_prepared_is_closed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[TimedConnection] = []

    def noted(*arguments: Any, **options: Any) -> TimedConnection:
        made.append(connect(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(lease_rows, "connect", noted)
    monkeypatch.setattr(lease_rows, "SHOW_DURABILITY", "SHOW nothing.known")
    with pytest.raises(StoreUnavailable, match="nothing"):
        rig.control("a").look()
    assert [it.closed for it in made] == [True]


def test_writes_of_an_epoch_end_before_the_next_one_begins(rig: Rig) -> None:
    a, b = rig.control("a"), rig.control("b")
    reported: list[str] = []
    fence, next_fence = Fence(reported.append), Fence(reported.append)
    store = SqlStore(FencedDatabase(rig.database, fence))
    next_database = open_database(rig.url)
    fence.stand_by()
    with pytest.raises(Fenced, match="on standby"):
        store.put(KEY, b"too early", expect=None)
    assert a.acquire(None, "first") == 1
    fence.lead(1)
    first = store.put(KEY, b"first", expect=None)

    writing = FencedDatabase(rig.database, fence).write()
    frozen = writing.__enter__()  # the process stops here, within its transaction
    frozen.exec_driver_sql("UPDATE counter SET revision = 1000")
    next_fence.lead(b.acquire(b.look().lease, "a did not renew it for 5.0 s") or 0)
    next_store = SqlStore(FencedDatabase(next_database, next_fence))
    second = next_store.put(KEY, b"second", expect=first.version)
    with pytest.raises(StoreUnavailable):
        writing.__exit__(None, None, None)

    with pytest.raises(Fenced, match="epoch 1 is over: b with epoch 2 leads"):
        store.put(KEY, b"third", expect=second.version)
    with pytest.raises(Fenced):
        FencedDatabase(rig.database, fence).check()
    assert next_store.get(KEY) == second
    with pytest.raises(Conflict):
        next_store.put(KEY, b"third", expect=first.version)
    assert reported == ["epoch 1 is over: b with epoch 2 leads"]
    next_database.close()


def test_who_leads_is_read_with_all_controls_and_the_last_changes(rig: Rig) -> None:
    a, b = rig.control("a"), rig.control("b")
    for control in (b, a):
        control.register()
    before = read_leadership(rig.database)
    assert (before.epoch, before.leader, [it.id for it in before.controls]) == (0, None, ["a", "b"])
    assert a.acquire(None, "no control led before") == 1
    assert b.acquire(b.look().lease, "the session of a ended") == 2
    found = read_leadership(rig.database)
    assert found.leader is not None
    assert (found.epoch, found.leader.address) == (2, "http://b")
    assert [(it.epoch, it.holder, it.reason) for it in found.changes] == [
        (2, "b", "the session of a ended"),
        (1, "a", "no control led before"),
    ]
    b.release(2)
    assert read_leadership(rig.database).leader is None
    a.close()  # the server has ended its session
    for epoch in range(3, KEPT_CHANGES + 5):
        assert a.acquire(a.look().lease, "again") == epoch
    with rig.database.read() as connection:
        kept = connection.exec_driver_sql("SELECT count(*) FROM lease_changes").scalar_one()
    assert kept == KEPT_CHANGES
