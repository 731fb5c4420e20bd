"""Measurements of a drill, judged by its targets. Pure.

measured                              -> verdict of `judge`
no instant, but a limit               -> missed: never
instant after its limit               -> late
an error kind that is not allowed     -> missed
allowed errors after `all_served_s`   -> late
anything lost                         -> missed
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hostelry_lab.call import OK, LoadCall
from hostelry_lab.cluster.cluster_ledger import ClusterLedger
from hostelry_lab.jobs.jobs_ledger import JobsLedger
from hostelry_lab.neighbours import NeighbourReport
from hostelry_lab.rollout.rollout_ledger import RolloutLedger


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedCalls:
    """Summary of the load's calls around a fault. Instants are seconds after the fault.

    `served_after_s`: begin of the last call that failed, or 0 without failures. `slowest_s`:
    duration of the slowest successful call.
    """

    num_calls: int
    in_flight: int
    errors: dict[str, int]
    served_after_s: float
    slowest_s: float


def served_calls(calls: Iterable[LoadCall], fault_at: float) -> ServedCalls:
    """Summary of the calls that were in flight at the fault, or began later."""
    touched = [call for call in calls if call.ended_at >= fault_at]
    failed = [call for call in touched if call.outcome != OK]
    last_failed_at = max((call.began_at for call in failed), default=fault_at)
    well = (call.ended_at - call.began_at for call in touched if call.outcome == OK)
    return ServedCalls(
        num_calls=len(touched),
        in_flight=sum(1 for call in touched if call.began_at <= fault_at),
        errors=dict(sorted(Counter(call.outcome for call in failed).items())),
        served_after_s=max(0.0, last_failed_at - fault_at),
        slowest_s=max(well, default=0.0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillOutcome:
    """One drill's measurements.

    `detected_s`: the fault was detected, for example the copy left the routes or a successor was
    started. `back_s`: all processes and copies were as before. `lost`: records and acknowledged
    writes that are missing afterwards. `kept`: the parts that kept running or were replaced, in
    words. `beside`: the neighbours' calls, if a tenant misbehaved. `jobs`: the counts of requests
    and records that were to outlive the faults. `rollout`: the outcome of updates. `cluster`: the
    scenarios between hosts, and the writes that their database kept. `missed`: each target that was
    not met. `late`: each target that was met too late. The drill passed if both are empty.
    `not_run`: the reason why the drill could not run here. `left_out`: the parts of it that could
    not run, and why. With either, it did not pass.
    """

    drill: str
    target: str
    served: ServedCalls | None = None
    beside: NeighbourReport | None = None
    jobs: JobsLedger | None = None
    rollout: RolloutLedger | None = None
    cluster: ClusterLedger | None = None
    detected_s: float | None = None
    back_s: float | None = None
    lost: tuple[str, ...] = ()
    kept: str = ""
    missed: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    not_run: str | None = None
    left_out: str | None = None
    details: dict[str, float | str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether all of the drill was run and every target met."""
        return self.verdict == "PASS"

    @property
    def verdict(self) -> str:
        """PASS, FAIL, NOT RUN or NOT ALL RUN."""
        if self.not_run is not None:
            return "NOT RUN"
        if self.missed or self.late:
            return "FAIL"
        return "PASS" if self.left_out is None else "NOT ALL RUN"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillLimits:
    """Targets of a drill in seconds after the fault. None: no target of that kind.

    `errors` are the allowed kinds. No call that begins after `all_served_s` may fail.
    """

    detected_s: float | None = None
    back_s: float | None = None
    all_served_s: float = 0.0
    errors: frozenset[str] = frozenset()


def judge(outcome: DrillOutcome, limits: DrillLimits) -> DrillOutcome:
    """The outcome, with each target that it missed added to its missed targets."""
    missed, late = list(outcome.missed), list(outcome.late)
    for what, measured_s, limit_s in (
        ("seen", outcome.detected_s, limits.detected_s),
        ("back", outcome.back_s, limits.back_s),
    ):
        if limit_s is not None and measured_s is None:
            missed.append(f"{what}: never, while the drill watched (target {limit_s:g} s)")
        elif limit_s is not None and measured_s is not None and measured_s > limit_s:
            late.append(f"{what} after {measured_s:.2f} s (target {limit_s:g} s)")
    summary = outcome.served
    if summary is not None and (other := sorted(summary.errors.keys() - limits.errors)):
        missed.append(f"errors that clients should not see: {', '.join(other)}")
    elif summary is not None and summary.served_after_s > limits.all_served_s:
        late.append(
            f"calls failed that began {summary.served_after_s:.2f} s after the fault (target "
            f"{limits.all_served_s:g} s)"
        )
    if outcome.lost:
        missed.append(f"lost: {', '.join(outcome.lost)}")
    return replace(outcome, missed=tuple(missed), late=tuple(late))
