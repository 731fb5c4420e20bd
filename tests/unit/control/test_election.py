"""The election of one control: its turns against a lease whose other users are played."""

from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from hostelry.control.election import LeaderElection
from hostelry.store.lease import POLL_S, RENEW_S, TTL_S, LeaderLease, LeaseLook
from hostelry.store.protocol import StoreUnavailable


@dataclass
class FakeLeaseTable:
    """A lease in memory, over a connection that may be lost."""

    lease: LeaderLease | None = None
    now: float = 1000.0
    session_lives: bool = True
    is_away: bool = False
    is_reply_lost: bool = False
    done: list[str] = field(default_factory=list)

    def look(self) -> LeaseLook:
        self._reach()
        return LeaseLook(
            lease=self.lease,
            now=self.now,
            session_lives=self.session_lives,
            server_started_at=0.0,
        )

    def acquire(self, seen: LeaderLease | None, reason: str, floor: int = 0) -> int | None:
        if seen != self.lease:
            return None
        epoch = 1 if seen is None else max(seen.epoch, floor) + 1
        self.lease = lease_of("me", epoch, self.now)
        self.done.append(f"acquire {epoch}: {reason}")
        if self.is_reply_lost:
            raise StoreUnavailable("the reply was lost")
        return epoch

    def renew(self, epoch: int) -> bool:
        self._reach()
        self.done.append(f"renew {epoch}")
        return self.lease is not None and self.lease.epoch == epoch

    def release(self, epoch: int) -> None:
        self._reach()
        self.done.append(f"release {epoch}")

    def register(self) -> None:
        self._reach()

    def close(self) -> None:
        self.done.append("close")

    def _reach(self) -> None:
        if self.is_away:
            raise StoreUnavailable("the server is away")


def lease_of(holder: str, epoch: int, now: float, renewals: int = 0) -> LeaderLease:
    return LeaderLease(
        holder=holder,
        epoch=epoch,
        renewals=renewals,
        renewed_at=now,
        expires_at=now + TTL_S,
    )


@dataclass
class Rig:
    table: FakeLeaseTable = field(default_factory=FakeLeaseTable)
    steady_s: float = 0.0
    reported: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.election = LeaderElection(
            self.table,
            "me",
            lambda: self.steady_s,
            lambda epoch, reason: self.reported.append(f"{epoch}: {reason}"),
            self.reported.append,
        )

    def turn(self, after_s: float = 0.0) -> float:
        self.steady_s += after_s
        self.table.now += after_s
        return self.election.turn()


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_the_first_control_leads_and_renews(rig: Rig) -> None:
    assert rig.turn() == RENEW_S
    assert rig.turn(RENEW_S) == RENEW_S
    assert rig.reported == ["1: no control led before"]
    assert rig.table.done == ["acquire 1: no control led before", "renew 1"]


def test_a_standby_looks_often_and_takes_over_from_a_killed_leader(rig: Rig) -> None:
    rig.table.lease = lease_of("b", 3, 1000.0)
    assert rig.turn() == POLL_S
    rig.table.session_lives = False
    assert rig.turn(POLL_S) == RENEW_S
    assert rig.reported == ["4: the session of b ended"]


def test_time_without_looks_is_no_time_without_renewals(rig: Rig) -> None:
    rig.table.lease = lease_of("b", 3, 2_000_000.0)  # that clock went back
    rig.turn()
    rig.table.is_away = True
    rig.turn(TTL_S)
    rig.table.is_away = False
    rig.turn(TTL_S)
    rig.turn(TTL_S - POLL_S)
    assert rig.reported == []
    rig.turn(POLL_S)
    assert rig.reported == ["4: b did not renew it for 5.0 s"]


def test_a_renewal_at_a_standbys_own_pause_counts(rig: Rig) -> None:
    rig.table.lease = lease_of("b", 3, 2_000_000.0)
    rig.turn()
    rig.table.lease = replace(rig.table.lease, renewals=1)
    rig.turn(10 * TTL_S)  # the standby was frozen, not the leader
    assert rig.reported == []


def test_a_leader_whose_reply_was_lost_finds_that_it_leads(rig: Rig) -> None:
    rig.table.is_reply_lost = True
    assert rig.turn() == POLL_S
    rig.table.is_reply_lost = False
    rig.turn(POLL_S)
    assert rig.reported == ["1: the answer to its acquisition was lost"]


def test_a_leader_keeps_trying_while_the_database_is_away_and_steps_down_if_it_must(
    rig: Rig,
) -> None:
    rig.turn()
    rig.table.is_away = True
    assert rig.turn(RENEW_S) == POLL_S
    rig.table.is_away = False
    assert rig.turn(10 * TTL_S) == RENEW_S
    assert rig.table.done[-1] == "renew 1"
    rig.table.lease = lease_of("b", 2, rig.table.now)
    rig.turn(RENEW_S)
    assert rig.reported == [
        "1: no control led before",
        "epoch 1 is over: b has the lease with epoch 2",
    ]


def test_a_leader_that_stops_releases_the_lease(rig: Rig) -> None:
    rig.turn()
    rig.election.start()
    rig.election.stop()
    assert rig.table.done[-2:] == ["release 1", "close"]


def test_a_database_that_forgot_epochs_is_put_above_those_that_agents_obey(rig: Rig) -> None:
    rig.turn()
    rig.election.raise_floor(7)
    rig.turn(RENEW_S)
    rig.turn(RENEW_S)
    assert rig.table.done[-1].startswith("acquire 8: an agent obeys epoch 7, ")
    assert rig.reported[-1] == "epoch 1 is over: me has the lease with epoch 8"
