"""Never two leaders: controls over one database, in random schedules of everything that goes wrong.

The database is a model of what `lease_rows` and `fence` do in PostgreSQL: a shared lock on an epoch
is held by its leader's session and by each of its transactions, and a control that acquires ends
them all.
"""

from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hostelry.store.lease import (
    POLL_S,
    RENEW_S,
    TTL_S,
    Acquire,
    Decision,
    LeaderLease,
    LeaseLook,
    Renew,
    StepDown,
    decide,
)

CONTROLS = range(3)


@dataclass
class Transaction:
    """A write that is not committed yet."""

    session: int
    epoch: int


@dataclass
class ModelDatabase:
    """The rows and locks of PostgreSQL. `locks` has the locks of sessions, by epoch."""

    has_fence_lock: bool = True
    now: float = 1000.0
    started_at: float = 0.0
    lease: LeaderLease | None = None
    sessions: set[int] = field(default_factory=set)
    locks: dict[int, int] = field(default_factory=dict)
    open: list[Transaction] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    holders: dict[int, str] = field(default_factory=dict)
    connected: int = 0

    def connect(self) -> int:
        self.connected += 1
        self.sessions.add(self.connected)
        return self.connected

    def end(self, session: int | None) -> None:
        self.sessions.discard(-1 if session is None else session)
        self.locks.pop(-1 if session is None else session, None)
        self.open = [it for it in self.open if it.session != session]

    def restart(self, after_s: float) -> None:
        for session in list(self.sessions):
            self.end(session)
        self.now += after_s
        self.started_at = self.now

    def holds(self, epoch: int) -> bool:
        return epoch in self.locks.values() or any(it.epoch == epoch for it in self.open)

    def acquire(self, session: int, me: str, seen: LeaderLease | None) -> int | None:
        if self.lease != seen:
            return None
        epoch = 1 if seen is None else seen.epoch + 1
        if seen is not None and self.has_fence_lock:
            ended = {it.session for it in self.open if it.epoch == seen.epoch}
            ended |= {it for it, held in self.locks.items() if held == seen.epoch}
            for other in ended - {session}:
                self.end(other)
        self.locks[session] = epoch
        self.lease = self._renewed(me, epoch, 0)
        assert self.holders.setdefault(epoch, me) == me, "two controls have one epoch"
        return epoch

    def renew(self, session: int, me: str, epoch: int) -> bool:
        if self.lease is None or (self.lease.holder, self.lease.epoch) != (me, epoch):
            return False
        self.locks[session] = epoch
        self.lease = self._renewed(me, epoch, self.lease.renewals + 1)
        return True

    def begin(self, session: int, epoch: int) -> bool:
        if self.lease is None or self.lease.epoch != epoch:
            return False
        self.open.append(Transaction(session, epoch))
        return True

    def commit(self, transaction: Transaction) -> bool:
        if not any(it is transaction for it in self.open):
            return False
        self.open.remove(transaction)
        self.committed.append(transaction.epoch)
        return True

    def _renewed(self, me: str, epoch: int, renewals: int) -> LeaderLease:
        return LeaderLease(
            holder=me,
            epoch=epoch,
            renewals=renewals,
            renewed_at=self.now,
            expires_at=self.now + TTL_S,
        )


@dataclass
class ModelAgent:
    """An agent: the highest epoch is on disk, so that its own restarts change nothing."""

    highest: int = 0
    accepted: list[int] = field(default_factory=list)

    def call(self, control: "ModelControl") -> None:
        epoch = control.epoch if control.is_alive else None
        if epoch is not None and epoch >= self.highest:
            self.highest = epoch
            self.accepted.append(epoch)


@dataclass
class ModelControl:
    """One control: a look, a decision and an act are separate steps, with anything in between."""

    number: int
    lives: int = 0
    session: int | None = None
    epoch: int | None = None
    seen: tuple[LeaderLease | None, float] | None = None
    decided: tuple[Decision, LeaderLease | None] | None = None
    writing: Transaction | None = None
    is_cut: bool = False
    is_alive: bool = True

    @property
    def me(self) -> str:
        return f"{self.number}.{self.lives}"

    def step(self, database: ModelDatabase, steady: float, *, reply_lost: bool = False) -> None:
        """Look at the lease, or act on the decision of the last look."""
        if not self.is_alive:
            return
        if self.is_cut or (self.session is not None and self.session not in database.sessions):
            self.session = self.session if self.is_cut else None
            self.seen = self.decided = None
            return
        if self.session is None:
            self.session = database.connect()
        if self.decided is None:
            self.decided = self._look(database, steady)
        else:
            self._act(database, reply_lost)

    def _look(self, database: ModelDatabase, steady: float) -> tuple[Decision, LeaderLease | None]:
        lease = database.lease
        if self.seen is None or self.seen[0] != lease:
            self.seen = (lease, steady)
        found = LeaseLook(
            lease=lease,
            now=database.now,
            session_lives=lease is not None and database.holds(lease.epoch),
            server_started_at=database.started_at,
        )
        return decide(self.me, self.epoch, found, steady - self.seen[1]), lease

    def _act(self, database: ModelDatabase, reply_lost: bool) -> None:
        assert self.decided is not None
        assert self.session is not None
        (decision, lease), self.decided = self.decided, None
        match decision:
            case Acquire():
                got = database.acquire(self.session, self.me, lease)
                self.epoch = self.epoch if reply_lost else got
            case Renew(epoch):
                renewed = database.renew(self.session, self.me, epoch)
                if renewed and not reply_lost:
                    self.epoch = epoch
            case StepDown():
                self.die(database)
                self.is_alive = True

    def begin(self, database: ModelDatabase) -> None:
        if self.is_alive and self.epoch is not None and not self.is_cut and self.writing is None:
            session = database.connect()
            if database.begin(session, self.epoch):
                self.writing = database.open[-1]
            else:
                database.end(session)

    def commit(self, database: ModelDatabase) -> None:
        if self.is_alive and self.writing is not None and not self.is_cut:
            database.commit(self.writing)
            database.end(self.writing.session)
            self.writing = None

    def die(self, database: ModelDatabase) -> None:
        """The kernel closes the connections. During a partition the database does not notice."""
        if not self.is_cut:
            database.end(self.session)
            if self.writing is not None:
                database.end(self.writing.session)
        self.session = self.epoch = self.seen = self.decided = self.writing = None
        self.lives += 1
        self.is_alive = False


WHO = st.sampled_from(CONTROLS)
# Most are healthy, so that schedules come far. A pause is a control that is not chosen.
EVENTS = st.one_of(
    *[st.tuples(st.sampled_from(["look and act"] * 5 + ["step"]), WHO)] * 3,
    *[st.tuples(st.sampled_from(["write"] * 3 + ["begin", "commit", "call"]), WHO)] * 3,
    *[st.tuples(st.just("time"), st.sampled_from([POLL_S, RENEW_S, TTL_S, TTL_S]))] * 2,
    st.tuples(st.sampled_from(["step, reply lost", "kill", *["start", "heal"] * 3, "cut"]), WHO),
    st.one_of(
        st.tuples(st.just("jump"), st.sampled_from([-3600.0, -TTL_S, TTL_S, 3600.0])),
        st.tuples(st.just("restart"), st.sampled_from([0.5, 2 * TTL_S])),
        st.tuples(st.just("time"), st.just(TTL_S)),
    ),
)
FROZEN_IN_A_WRITE = [
    ("look and act", 0),
    ("begin", 0),
    ("time", TTL_S),
    ("look and act", 1),
    ("begin", 1),
    ("commit", 1),
    ("commit", 0),
]


class Schedule:
    """Controls, an agent and their database, and a schedule of events."""

    def __init__(self, *, has_fence_lock: bool = True) -> None:
        self.database = ModelDatabase(has_fence_lock=has_fence_lock)
        self.agent = ModelAgent()
        self.controls = [ModelControl(number) for number in CONTROLS]
        self.steady = 0.0

    def happen(self, event: str, what: float) -> None:
        database = self.database
        match event:
            case "time":
                self.steady += what
                database.now += what
            case "jump":
                database.now += what
            case "restart":
                self.steady += what
                database.restart(what)
            case _:
                self.befall(event, self.controls[int(what)])

    def befall(self, event: str, control: ModelControl) -> None:
        database = self.database
        match event:
            case "look and act" | "step" | "step, reply lost":
                for _ in range(2 if event == "look and act" else 1):
                    control.step(database, self.steady, reply_lost=event == "step, reply lost")
            case "begin" | "commit" | "write":
                if event != "commit":
                    control.begin(database)
                if event != "begin":
                    control.commit(database)
            case "call":
                self.agent.call(control)
            case "kill":
                control.die(database)
            case _:
                control.is_alive = control.is_alive or event == "start"
                control.is_cut = event == "cut" or (control.is_cut and event != "heal")

    def settle(self, dead: int) -> None:
        """Repair everything except one control, for as long as a standby may need."""
        self.happen("heal", dead)
        self.happen("kill", dead)
        for control in self.controls:
            control.is_cut = False
            control.is_alive = control.number != dead
        for _ in range(int(2 * TTL_S / POLL_S)):
            self.happen("time", POLL_S)
            for control in self.controls:
                for _ in range(2):
                    control.step(self.database, self.steady)

    def write_all(self) -> None:
        for control in self.controls:
            control.begin(self.database)
            control.commit(self.database)


@settings(max_examples=200, deadline=None)
@given(events=st.lists(EVENTS, min_size=40, max_size=120), dead=WHO)
@example(events=FROZEN_IN_A_WRITE, dead=2)
def test_no_older_epoch_writes_or_acts_after_a_newer_one_and_soon_one_leads(
    events: list[tuple[str, float]], dead: int
) -> None:
    schedule = Schedule()
    for event, what in events:
        schedule.happen(event, what)
        assert schedule.database.committed == sorted(schedule.database.committed)
        assert schedule.agent.accepted == sorted(schedule.agent.accepted)
    schedule.settle(dead)
    for control in schedule.controls:
        control.commit(schedule.database)
    before = len(schedule.database.committed)
    schedule.write_all()
    assert schedule.database.lease is not None
    led = [it for it in schedule.controls if it.epoch == schedule.database.lease.epoch]
    assert len(led) == 1
    assert schedule.database.committed[before:] == [led[0].epoch]
    assert all(it.epoch is None for it in schedule.controls if it is not led[0])


def test_without_the_lock_on_an_epoch_a_frozen_write_would_come_after_the_next_ones() -> None:
    schedule = Schedule(has_fence_lock=False)
    for event, what in FROZEN_IN_A_WRITE:
        schedule.happen(event, what)
    assert schedule.database.committed == [2, 1]


def test_a_compared_lease_is_one_that_was_not_renewed_since() -> None:
    database = ModelDatabase()
    first, second = database.connect(), database.connect()
    database.acquire(first, "a", None)
    seen = database.lease
    assert database.renew(first, "a", 1)
    assert database.acquire(second, "b", seen) is None
    assert seen is not None
    assert replace(seen, renewals=1) == database.lease
