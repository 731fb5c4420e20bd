"""Figures of a replay: latencies, cost, overshoot, and every act of scaling."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from hostelry.domain.scaling import Dimension
from hostelry.scaling.decide.load_signals import LOOK_BACK_S, LULL_S
from hostelry.sim.ledger import ReplayLedger, RequestFate, SimulatedAct
from hostelry.sim.replay import Progress, Replay, ReplaySetup, no_progress
from hostelry.sim.service import ServiceModel
from hostelry.sim.trace import FloatArray, Trace


class Occupancy:
    """The number of spans that cover a time, on average over an interval.

    Args:
        begins_s: when each began.
        ends_s: when each ended, in the same order.
    """

    def __init__(self, begins_s: FloatArray, ends_s: FloatArray) -> None:
        self._begins = _Ramp(begins_s)
        self._ends = _Ramp(ends_s)

    def means(self, edges_s: npt.ArrayLike) -> FloatArray:
        """The mean between each two neighbours of `edges_s`, which rise."""
        edges = np.asarray(edges_s, dtype=np.float64)
        passed = self._begins.at(edges) - self._ends.at(edges)
        means: FloatArray = np.diff(passed) / np.diff(edges)
        return means

    def mean(self, from_s: float, to_s: float) -> float:
        """The mean over one span. 0 if it is empty."""
        return float(self.means([from_s, to_s])[0]) if to_s > from_s else 0.0


class _Ramp:
    """Seconds since each of many instants, summed over those that are past."""

    def __init__(self, instants_s: FloatArray) -> None:
        self._sorted = np.sort(instants_s)
        self._summed = np.concatenate([[0.0], np.cumsum(self._sorted)])

    def at(self, times_s: FloatArray) -> FloatArray:
        past = np.searchsorted(self._sorted, times_s, side="right")
        seconds: FloatArray = past * times_s - self._summed[past]
        return seconds


def step_means(instants_s: FloatArray, values: FloatArray, edges_s: FloatArray) -> FloatArray:
    """Means of a step function, 0 before its first instant, between neighbours of `edges_s`."""
    if not len(instants_s):
        return np.zeros(len(edges_s) - 1)
    lasted = np.concatenate([[0.0], np.cumsum(np.diff(instants_s) * values[:-1])])
    place = np.searchsorted(instants_s, edges_s, side="right") - 1
    known = np.maximum(place, 0)
    area = lasted[known] + (edges_s - instants_s[known]) * values[known]
    area = np.where(place < 0, 0.0, area)
    means: FloatArray = np.diff(area) / np.diff(edges_s)
    return means


BIN_S = 10.0
AROUND_S = 60.0
USED_SHARE = 0.8  # of a copy's throughput, if no policy has a target concurrency
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


class ReplayOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A replay's figures. Times are in seconds.

    Latencies and first tokens are of answered requests. `num_cold` found no copy. `num_delayed` of
    them were answered once there was one. `copy_s` counts copies from the choice of their place
    until they are gone, `needed_copy_s` the fewest that would have carried each 10 s' load with
    full batches, `overshoot_copy_s` the copies above it. An act of scaling out is spurious if the
    copies before it would have carried the minute before and the minute after.
    """

    policy: str
    trace: str
    seed: int
    digest: str
    lasts_s: float
    num_requests: int
    num_answered: int
    num_refused: int
    num_timed_out: int
    num_overflown: int
    num_cold: int
    num_delayed: int
    latency_s: Mapping[str, float]
    first_token_s: Mapping[str, float]
    copy_s: float
    needed_copy_s: float
    overshoot_copy_s: float
    peak_copies: int
    instance_h: float
    peak_instances: int
    num_out: int
    num_in: int
    num_spurious: int
    spurious_per_h: float
    acts: Sequence[SimulatedAct] = msgspec.field(default_factory=tuple)

    @property
    def num_failed(self) -> int:
        """Requests without an answer."""
        return self.num_refused + self.num_timed_out + self.num_overflown


def replay_trace(
    trace: Trace, setup: ReplaySetup, progress: Progress = no_progress
) -> ReplayOutcome:
    """The outcome of a trace, whose blocks are walked once, against a setup.

    Raises TerminalError where the trace cannot be read, or cannot be carried.
    """
    deployment = setup.deployment
    if setup.policies.dimension is Dimension.INSTANCES and not deployment.one_copy_an_instance:
        setup = replace(setup, deployment=replace(deployment, one_copy_an_instance=True))
    replay = Replay(trace, setup, progress)
    replay.run()
    return build_outcome(replay, setup, trace.name, trace.steps_s)


def build_outcome(
    replay: Replay, setup: ReplaySetup, trace_name: str, steps_s: Sequence[float]
) -> ReplayOutcome:
    """The figures of a replay that has run."""
    ledger, lasts_s = replay.ledger, replay.ended_s
    fate = np.array(ledger.fate, dtype=np.int8)
    answered = fate == RequestFate.ANSWERED
    delayed = np.array(ledger.delayed, dtype=bool)
    cost = _cost(replay)
    _annotate_acts(replay, steps_s)
    outs = [it for it in ledger.acts if it.is_out]
    num_spurious = sum(it.is_spurious for it in outs)
    num_refused = int((fate == RequestFate.REFUSED).sum())
    num_overflown = int((fate == RequestFate.OVERFLOWN).sum())
    return ReplayOutcome(
        policy=setup.policies.name,
        trace=trace_name,
        seed=setup.seed,
        digest=replay.digest(),
        lasts_s=lasts_s,
        num_requests=len(fate),
        num_answered=int(answered.sum()),
        num_refused=num_refused,
        num_timed_out=int((fate == RequestFate.TIMED_OUT).sum()),
        num_overflown=num_overflown,
        num_cold=int(delayed.sum()) + num_refused + num_overflown,
        num_delayed=int((delayed & answered).sum()),
        latency_s=_quantiles(np.array(ledger.took_s)[answered]),
        first_token_s=_quantiles(np.array(ledger.first_token_s)[answered]),
        copy_s=cost["copy_s"],
        needed_copy_s=cost["needed_copy_s"],
        overshoot_copy_s=cost["overshoot_copy_s"],
        peak_copies=_peak(ledger),
        instance_h=replay.fleet.instance_s / 3600.0,
        peak_instances=replay.fleet.peak_instances,
        num_out=len(outs),
        num_in=len(ledger.acts) - len(outs),
        num_spurious=num_spurious,
        spurious_per_h=num_spurious / max(lasts_s / 3600.0, 1e-9),
        acts=tuple(ledger.acts),
    )


def _peak(ledger: ReplayLedger) -> int:
    """The most copies there were at a time, of all models."""
    changes = sorted(
        (at_s, num - before)
        for instants_s, counts in ledger.capacity
        for at_s, num, before in zip(instants_s, counts, [0, *counts], strict=False)
    )
    return max(accumulate(change for _, change in changes), default=0)


def _quantiles(values: FloatArray) -> dict[str, float]:
    if not len(values):
        return dict.fromkeys((*QUANTILES, "mean"), 0.0)
    found = np.quantile(values, list(QUANTILES.values()))
    named = {name: float(it) for name, it in zip(QUANTILES, found, strict=True)}
    return {**named, "mean": float(values.mean())}


def carried_work(service: ServiceModel, concurrency: float | None) -> float:
    """Seconds of requests alone that a copy gets done in a second, at the concurrency aimed at."""
    slowdowns = service.slowdowns()
    most = service.max_concurrency / slowdowns[-1]
    if concurrency is None:
        return USED_SHARE * most
    num = min(max(1, round(concurrency)), service.max_concurrency)
    return min(concurrency, num) / slowdowns[num]


def _cost(replay: Replay) -> dict[str, float]:
    """Copy-seconds there were, were needed, and were too many."""
    lasts_s = replay.ended_s
    if lasts_s <= 0.0:
        return dict.fromkeys(("copy_s", "needed_copy_s", "overshoot_copy_s"), 0.0)
    edges = np.unique(np.append(np.arange(0.0, lasts_s, BIN_S), lasts_s))
    widths = np.diff(edges)
    totals = np.zeros(3)
    for place, (at_s, work_s) in enumerate(replay.ledger.offered):
        began, scaled = np.array(at_s), replay.scaled[place]
        took = np.array(work_s) * scaled.service.slowdowns()[-1]
        busy = Occupancy(began, began + took).means(edges)
        needed = np.ceil(busy / scaled.service.max_concurrency - 1e-9)
        needed = np.maximum(needed, scaled.policies.minimum)
        instants, counts = replay.ledger.capacity[place]
        there = step_means(np.array(instants), np.array(counts, dtype=np.float64), edges)
        over = np.maximum(0.0, there - needed)
        totals += [(it * widths).sum() for it in (there, needed, over)]
    names = ("copy_s", "needed_copy_s", "overshoot_copy_s")
    return dict(zip(names, totals.tolist(), strict=True))


def _annotate_acts(replay: Replay, steps_s: Sequence[float]) -> None:
    """Write t0, t2 and whether it was spurious into each act of scaling out."""
    ledger = replay.ledger
    model = np.array(ledger.model, dtype=np.int64)
    arrived, took = np.array(ledger.arrived_s), np.array(ledger.took_s)
    by_model: dict[int, list[SimulatedAct]] = {}
    for act in ledger.acts:
        if act.is_out:
            by_model.setdefault(act.model, []).append(act)
    for number, acts in by_model.items():
        service, concurrency = (
            replay.scaled[number].service,
            replay.scaled[number].policies.concurrency,
        )
        target = concurrency or USED_SHARE * service.max_concurrency
        mine = model == number
        actual = Occupancy(arrived[mine], arrived[mine] + took[mine])
        at_s, work_s = (np.array(it) for it in ledger.offered[number])
        copies = replay.scaled[number].component.ever
        for place, act in enumerate(acts):
            later = [it.first_answer_s for it in copies if it.placed_s >= act.decided_s]
            answered_s = min(later, default=float("inf"))
            act.answered_s = answered_s if answered_s < float("inf") else None
            act.rose_s = _step_before(act, acts[place - 1] if place else None, steps_s)
            if act.rose_s is None:
                act.rose_s = _rose_s(actual, act, target)
            offered = _work_around(at_s, work_s, act.decided_s)
            carries = act.from_copies * carried_work(service, concurrency)
            span_s = min(AROUND_S, act.decided_s)
            there = actual.mean(act.decided_s - span_s, act.decided_s)
            is_carried = offered <= carries and there <= act.from_copies * target
            act.is_spurious = act.from_copies > 0 and is_carried


def _step_before(
    act: SimulatedAct, earlier: SimulatedAct | None, steps_s: Sequence[float]
) -> float | None:
    """The known step that the act is the first to answer."""
    known = [it for it in steps_s if act.decided_s - LOOK_BACK_S <= it <= act.decided_s]
    if not known or (earlier is not None and earlier.decided_s > known[-1]):
        return None
    return known[-1]


def _rose_s(actual: Occupancy, act: SimulatedAct, target: float) -> float | None:
    """The beginning of the run of seconds, up to the act, with more than the copies carried."""
    first_s = max(0.0, act.decided_s - LOOK_BACK_S)
    edges = np.arange(act.decided_s, first_s - 0.5, -1.0)[::-1]
    if len(edges) < 2:
        return None
    over = np.flatnonzero(actual.means(edges) > act.from_copies * target)
    if not len(over) or len(edges) - 2 - over[-1] > LULL_S:
        return None
    gaps = np.flatnonzero(np.diff(over) > LULL_S)
    return float(edges[over[gaps[-1] + 1 if len(gaps) else 0]])


def _work_around(at_s: FloatArray, work_s: FloatArray, decided_s: float) -> float:
    """Work that arrived a second, in the busier of the minutes before and after."""
    first, middle, last = np.searchsorted(
        at_s, [decided_s - AROUND_S, decided_s, decided_s + AROUND_S]
    )
    before_s = min(AROUND_S, max(decided_s, 1.0))
    before, after = work_s[first:middle].sum(), work_s[middle:last].sum()
    return max(float(before) / before_s, float(after) / AROUND_S)
