"""The ledger of a cluster under faults: calls, leaders, writes, and broken promises. Pure.

observed                                                    promise
---------------------------------------------------------   --------------------------------------
a call failed at a host that the fault does not cut off     none fails
a call failed at a host that is cut off, drained or killed  none that begins after the fault's end
no new leader, a late one, or a thawed one that leads on    within the scenario's limit
no acknowledged write that began after the fault            within the scenario's limit
a call failed by another error than a modelled one          none, if the scenario has a list
copies of a dead node do not run and answer again           within the scenario's limit
an acknowledged write is missing, or was made twice         each exists once
a write by an epoch that is not the newest, or is less      epochs of accepted writes never go back
than the epoch of an earlier write

Instants are seconds since the fault.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from hostelry_lab.call import OK, LoadCall

EFFECT_S = 1.0  # in which a fault must take effect


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterWrite:
    """A create of a record through a host's gateway. Its outcome is OK or the error's code."""

    name: str
    host: str
    began_at: float
    ended_at: float
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderSight:
    """The lease in the database at an instant."""

    at: float
    epoch: int
    holder: str


NO_LEASE = LeaderSight(at=0.0, epoch=0, holder="")  # for a platform with a single control


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedWrite:
    """A row that the store accepted: the epoch of its writer, and the newest epoch at that time.

    `epoch` is `None` if the writing transaction held no epoch.
    """

    revision: int
    name: str
    epoch: int | None
    newest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioLimits:
    """A scenario's promises, in seconds after the fault.

    At the hosts of `cut_off` calls may fail until `served_s` after the fault's end. `leader_s`
    None: no other leader is required. `fenced_s` counts from the fault's end. During the fault no
    call may be answered at `no_calls`, and no write acknowledged at `no_writes`: otherwise it had
    no effect. `errors` are the kinds of errors by which calls may fail, or None for any. `copies_s`
    is the limit until all copies run again, and answer.
    """

    leader_s: float | None = None
    write_s: float = 30.0
    fenced_s: float | None = None
    cut_off: frozenset[str] = frozenset()
    served_s: float = 10.0
    no_calls: frozenset[str] = frozenset()
    no_writes: frozenset[str] = frozenset()
    errors: frozenset[str] | None = None
    copies_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFacts:
    """The observations of one scenario, by the drill's clock. The fault was at `fault_at`.

    `fenced_at` is the instant at which the old leader's process had ended, and `copies_at` the
    instant at which each copy had answered. `trouble` is why the fault did not have its effect.
    """

    name: str
    means: str
    fault_at: float
    healed_at: float
    calls: Mapping[str, Sequence[LoadCall]]
    writes: Sequence[ClusterWrite]
    before: LeaderSight
    sights: Sequence[LeaderSight]
    fenced_at: float | None = None
    copies_at: float | None = None
    trouble: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioReport:
    """One scenario's row: failures by host, durations, and missed promises.

    `slowest_s` is the slowest answered call. `served_s` is the begin of the last call that failed.
    `write_s` is the time by host until a write that began after the fault was acknowledged.
    """

    name: str
    means: str
    fault_s: float
    calls: Mapping[str, int]
    failures: Mapping[str, Mapping[str, int]]
    slowest_s: float
    leader_s: float | None
    write_s: Mapping[str, float | None]
    fenced_s: float | None
    served_s: float
    acknowledged: int
    refused: Mapping[str, int]
    copies_s: float | None = None
    missed: Sequence[str] = field(default=())
    not_run: str | None = None


def not_run(name: str, means: str, why: str) -> ScenarioReport:
    """The row of a scenario that cannot run here."""
    return ScenarioReport(
        name=name, means=means, fault_s=0.0, calls={}, failures={}, slowest_s=0.0, leader_s=None,
        write_s={}, fenced_s=None, served_s=0.0, acknowledged=0, refused={}, not_run=why,
    )  # fmt: skip


def report(facts: ScenarioFacts, limits: ScenarioLimits) -> ScenarioReport:
    """The scenario's row, judged by its limits."""
    since = facts.fault_at
    touched = {
        host: [it for it in calls if it.ended_at >= since] for host, calls in facts.calls.items()
    }
    failed = {host: [it for it in calls if it.outcome != OK] for host, calls in touched.items()}
    well = (
        call.ended_at - call.began_at
        for calls in touched.values()
        for call in calls
        if call.outcome == OK
    )
    writes = [it for it in facts.writes if it.ended_at >= since]
    acknowledged = [it for it in writes if it.outcome == OK]
    last_failed = max((it.began_at for calls in failed.values() for it in calls), default=since)
    leader_at = next((it.at for it in facts.sights if it.epoch > facts.before.epoch), None)
    first_writes = {
        host: min(
            (it.ended_at - since for it in acknowledged if it.host == host and it.began_at > since),
            default=None,
        )
        for host in facts.calls
    }
    row = ScenarioReport(
        name=facts.name,
        means=facts.means,
        fault_s=facts.healed_at - since,
        calls={host: len(calls) for host, calls in touched.items()},
        failures={
            host: _count_outcomes(it.outcome for it in calls) for host, calls in failed.items()
        },
        slowest_s=max(well, default=0.0),
        leader_s=None if leader_at is None else leader_at - since,
        write_s=first_writes,
        fenced_s=None if facts.fenced_at is None else max(0.0, facts.fenced_at - facts.healed_at),
        served_s=max(0.0, last_failed - since),
        copies_s=None if facts.copies_at is None else facts.copies_at - since,
        acknowledged=len(acknowledged),
        refused=_count_outcomes(it.outcome for it in writes if it.outcome != OK),
    )
    missed = [*_missed_calls(facts, limits, failed), *_missed_times(row, limits)]
    missed += _without_effect(facts, limits)
    if facts.trouble is not None:
        missed.append(facts.trouble)
    return replace(row, missed=tuple(missed))


def _missed_calls(
    facts: ScenarioFacts, limits: ScenarioLimits, failed: Mapping[str, Sequence[LoadCall]]
) -> Iterable[str]:
    for host, calls in failed.items():
        if host not in limits.cut_off and calls:
            kinds = ", ".join(
                f"{n} {it}" for it, n in _count_outcomes(c.outcome for c in calls).items()
            )
            yield f"{len(calls)} calls failed at the {host} host, none may: {kinds}"
        allowed = limits.errors
        others = {it.outcome for it in calls if allowed is not None and it.outcome not in allowed}
        if others:
            kinds = ", ".join(sorted(others))
            yield f"calls failed at the {host} host by errors that are not modelled: {kinds}"
        late = [it for it in calls if it.began_at > facts.healed_at + limits.served_s]
        if host in limits.cut_off and late:
            yield (
                f"{len(late)} calls failed at the {host} host that began more than "
                f"{limits.served_s:g} s after the fault's end"
            )
    yield from (
        f"no call was answered at the {host} host after the fault"
        for host, calls in facts.calls.items()
        if not any(it.outcome == OK and it.began_at >= facts.healed_at for it in calls)
    )


def _without_effect(facts: ScenarioFacts, limits: ScenarioLimits) -> Iterable[str]:
    def within(it: LoadCall | ClusterWrite) -> bool:
        is_in = it.began_at >= facts.fault_at + EFFECT_S and it.ended_at <= facts.healed_at
        return is_in and it.outcome == OK

    for host in sorted(limits.no_calls):
        if any(map(within, facts.calls[host])):
            yield f"the fault had no effect: the {host} host answered calls meanwhile"
    for host in sorted(limits.no_writes):
        if any(within(it) for it in facts.writes if it.host == host):
            yield f"the fault had no effect: the {host} host acknowledged writes meanwhile"


def _missed_times(row: ScenarioReport, limits: ScenarioLimits) -> Iterable[str]:
    writes = [it for it in row.write_s.values() if it is not None]
    for what, measured_s, limit_s in (
        ("a new leader", row.leader_s, limits.leader_s),
        ("an acknowledged write", min(writes, default=None), limits.write_s),
        ("the end of the leader that was fenced", row.fenced_s, limits.fenced_s),
        ("an answer of each copy", row.copies_s, limits.copies_s),
    ):
        if limit_s is not None and measured_s is None:
            yield f"{what}: never, while the drill watched (limit {limit_s:g} s)"
        elif limit_s is not None and measured_s is not None and measured_s > limit_s:
            yield f"{what} only after {measured_s:.1f} s (limit {limit_s:g} s)"


def in_progress(streams: Sequence[LoadCall], fault_at: float) -> str | None:
    """Why the streams of two copies break the promise after one's node died, or None."""
    touched = [it for it in streams if it.ended_at >= fault_at]
    failed = sum(1 for it in touched if it.outcome != OK)
    if failed == 0:
        return f"the fault had no effect: none of {len(touched)} streams in progress failed"
    if failed == len(touched):
        return f"all of {failed} streams in progress failed, those of the other node's copy too"
    return None


def _count_outcomes(outcomes: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(outcomes).items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFindings:
    """The database at the end: acknowledged writes, and the epochs of all accepted ones.

    `kept_unacknowledged` counts writes that exist although the client saw them fail.
    """

    acknowledged: int
    lost: Sequence[str]
    doubled: Sequence[str]
    kept_unacknowledged: int
    accepted: int
    epochs: int
    two_leaders: Sequence[str]

    def broken_promises(self) -> list[str]:
        """A sentence for each broken promise."""
        found = []
        if self.lost:
            found.append(f"{len(self.lost)} acknowledged writes are lost, such as {self.lost[0]}")
        if self.doubled:
            found.append(f"{len(self.doubled)} writes were made twice, such as {self.doubled[0]}")
        if not self.acknowledged:
            found.append("no write was acknowledged: nothing is proved")
        return [*found, *self.two_leaders[:3]]


def add_findings(one: StoreFindings, other: StoreFindings) -> StoreFindings:
    """The findings of two databases together."""
    return StoreFindings(
        acknowledged=one.acknowledged + other.acknowledged,
        lost=(*one.lost, *other.lost),
        doubled=(*one.doubled, *other.doubled),
        kept_unacknowledged=one.kept_unacknowledged + other.kept_unacknowledged,
        accepted=one.accepted + other.accepted,
        epochs=one.epochs + other.epochs,
        two_leaders=(*one.two_leaders, *other.two_leaders),
    )


def findings(
    writes: Iterable[ClusterWrite], kept: Collection[str], accepted: Sequence[AcceptedWrite]
) -> StoreFindings:
    """The findings about `writes`. `kept` are the names that the store has at the end."""
    tried = {it.name: it.outcome for it in writes}
    acknowledged = [name for name, outcome in tried.items() if outcome == OK]
    times = Counter(it.name for it in accepted if it.name in tried)
    return StoreFindings(
        acknowledged=len(acknowledged),
        lost=tuple(it for it in acknowledged if it not in kept),
        doubled=tuple(name for name, count in times.items() if count > 1),
        kept_unacknowledged=sum(1 for it in kept if tried.get(it, OK) != OK),
        accepted=len(accepted),
        epochs=len({it.epoch for it in accepted}),
        two_leaders=tuple(epochs_back(accepted)),
    )


def epochs_back(accepted: Sequence[AcceptedWrite]) -> Iterable[str]:
    """A sentence for each accepted write that a second leader may have made."""
    ordered = sorted(accepted, key=lambda it: it.revision)
    for write in ordered:
        if write.epoch is None:
            yield f"revision {write.revision}, {write.name}, was written without an epoch"
        elif write.epoch != write.newest:
            yield (
                f"revision {write.revision}, {write.name}, was written by epoch {write.epoch} when "
                f"{write.newest} was the newest"
            )
    known = [it for it in ordered if it.epoch is not None]
    for before, after in pairwise(known):
        if (before.epoch or 0) > (after.epoch or 0):
            yield (
                f"revision {after.revision}, {after.name}, was written by epoch {after.epoch} "
                f"after one of epoch {before.epoch}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLedger:
    """All scenarios, and the database at the end."""

    scenarios: Sequence[ScenarioReport]
    store: StoreFindings
    threads_each: int
    between: str

    @property
    def not_run(self) -> str | None:
        """Why no scenario could run, or None if at least one ran."""
        reasons = {it.not_run: None for it in self.scenarios}
        return None if None in reasons else "; ".join(it for it in reasons if it)

    @property
    def left_out(self) -> str | None:
        """The scenarios that could not run, with the reasons, or None if all ran."""
        found = [f"{it.name}: {it.not_run}" for it in self.scenarios if it.not_run is not None]
        return "; ".join(found) or None

    def broken_promises(self) -> list[str]:
        """A sentence for each broken promise."""
        found = [f"{it.name}: {why}" for it in self.scenarios for why in it.missed]
        return found if self.not_run is not None else [*found, *self.store.broken_promises()]
