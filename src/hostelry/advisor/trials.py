"""Figures of an option for one seed: calls within their targets, cost, and the answer to a step."""

import heapq
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from hostelry.advisor.options import OPTION_LIMITS, HostingOption
from hostelry.advisor.plans import OptionPlan, get_instance_service
from hostelry.advisor.runs import OptionRun, list_runs
from hostelry.advisor.traffic import DAY_S, HOUR_S, STEP_AT_S, STEP_LASTS_S, MixTraffic
from hostelry.advisor.values import FitMachine, FitMix, FitModel
from hostelry.base.errors import TerminalError
from hostelry.sim.copies import SimulatedCopy
from hostelry.sim.ledger import RequestFate
from hostelry.sim.multi_model import MultiModelComponent
from hostelry.sim.queued import ServerlessComponent
from hostelry.sim.replay import Replay
from hostelry.sim.trace import FloatArray, Trace

WINDOW_S = STEP_LASTS_S - STEP_AT_S
# A step is noticed if the share of calls within their target falls by more than this share, from
# the time before it to the time after it.
NOTICED, AROUND_S = 0.01, 300.0
MB_PER_GB = 1024

Flags = npt.NDArray[np.bool_]


class CallFigures(msgspec.Struct, kw_only=True):
    """Calls of one or several replays: times of those answered, and how many met their target.

    `ended_s` is the second of the last answer.
    """

    ended_s: float = 0.0
    num_calls: int = 0
    num_answered: int = 0
    num_met: int = 0
    took_s: list[FloatArray] = msgspec.field(default_factory=list)
    first_s: list[FloatArray] = msgspec.field(default_factory=list)

    def get_quantile(self, share: float) -> float | None:
        """A quantile of the answered calls' times."""
        took = np.concatenate(self.took_s) if self.took_s else np.empty(0)
        return float(np.quantile(took, share)) if len(took) else None

    def get_first_quantile(self, share: float) -> float | None:
        """A quantile of the times until first tokens."""
        first = np.concatenate(self.first_s) if self.first_s else np.empty(0)
        return float(np.quantile(first, share)) if len(first) else None


class OptionTrial(msgspec.Struct, frozen=True, kw_only=True):
    """An option with one seed.

    `cost` is for 1,000 successful calls, None if a price is unknown or no call succeeded.
    `scale_s` is the time from a fourfold step of the load to the first answer of new capacity, the
    mean by calls. 0 if the capacity carried it. `step_failed` is the share of calls after the step
    without an answer. `hit_rate` is of a multi-model endpoint. `num_starts` has its loads of
    models, or the environments that a serverless endpoint started. `ended_s` is the second of the
    last answer.
    """

    seed: int
    num_calls: int
    num_answered: int
    met_share: float
    p50_s: float | None
    p99_s: float | None
    first_p50_s: float | None
    first_p99_s: float | None
    cost: float | None
    instance_h: float
    scale_s: float = 0.0
    step_failed: float = 0.0
    hit_rate: float | None = None
    num_starts: int | None = None
    ended_s: float = 0.0


class _Sums(msgspec.Struct, kw_only=True):
    """Sums over the runs of a trial. A `cost` of None: a price is unknown."""

    calls: CallFigures = msgspec.field(default_factory=CallFigures)
    cost: float | None = 0.0
    instance_h: float = 0.0
    num_hits: int = 0
    num_misses: int = 0
    num_starts: int | None = None

    def add_cost(self, machine: FitMachine, instance_h: float) -> None:
        self.instance_h += instance_h
        price = machine.price_per_hour
        known = self.cost is not None and price is not None
        self.cost = (self.cost or 0.0) + instance_h * (price or 0.0) if known else None


def run_trial(plan: OptionPlan, mix: FitMix, traffic: MixTraffic, seed: int) -> OptionTrial:
    """Simulate an option with one seed. Raises TerminalError if it cannot carry the calls."""
    found = run_period(plan, mix, traffic, seed)
    if plan.option is HostingOption.BATCH:
        return found
    scale_s, step_failed = _measure_step(plan, mix, traffic, seed)
    return replace(found, scale_s=scale_s, step_failed=step_failed)


def run_period(plan: OptionPlan, mix: FitMix, traffic: MixTraffic, seed: int) -> OptionTrial:
    """Simulate the period of a mix, without the step. Raises as `run_trial`."""
    sums = _Sums()
    if plan.option is HostingOption.BATCH:
        _run_batches(plan, mix, traffic, seed, sums)
        return _build_trial(seed, sums)
    for run in list_runs(plan, mix, seed):
        replay = _replay(run, traffic.day(run.models, run.names, seed))
        count_calls(replay, run.models, plan.option, sums.calls)
        _count_cost(replay, run, mix, sums)
        for component in (it.component for it in replay.scaled):
            if isinstance(component, MultiModelComponent):
                sums.num_hits += component.num_hits
                sums.num_misses += component.num_misses
                sums.num_starts = sums.num_misses
            elif isinstance(component, ServerlessComponent):
                later = [it for it in component.ever if it.placed_s > 0.0]
                sums.num_starts = (sums.num_starts or 0) + len(later)
    return _build_trial(seed, sums)


def _build_trial(seed: int, sums: _Sums) -> OptionTrial:
    calls = sums.calls
    cost = None
    if sums.cost is not None and calls.num_answered:
        cost = sums.cost / calls.num_answered * 1000
    loads = sums.num_hits + sums.num_misses
    return OptionTrial(
        seed=seed,
        num_calls=calls.num_calls,
        num_answered=calls.num_answered,
        met_share=calls.num_met / max(1, calls.num_calls),
        p50_s=calls.get_quantile(0.5),
        p99_s=calls.get_quantile(0.99),
        first_p50_s=calls.get_first_quantile(0.5),
        first_p99_s=calls.get_first_quantile(0.99),
        cost=cost,
        instance_h=sums.instance_h,
        hit_rate=sums.num_hits / loads if loads else None,
        num_starts=sums.num_starts,
        ended_s=calls.ended_s,
    )


def _replay(run: OptionRun, trace: Trace) -> Replay:
    replay = Replay(trace, run.setup)
    try:
        replay.run()
    except TerminalError as error:
        raise TerminalError(f"it cannot carry the calls: {error}") from None
    return replay


def count_calls(
    replay: Replay, models: Sequence[FitModel], option: HostingOption, into: CallFigures
) -> None:
    """Add the calls of a replay. A call that takes longer than the option allows has failed."""
    answered, met = _judge(replay, models, option)
    overhead = _get_overheads(replay, models)
    took = np.array(replay.ledger.took_s) + overhead
    ends_s = (np.array(replay.ledger.arrived_s) + took)[answered]
    into.ended_s = max(into.ended_s, float(ends_s.max(initial=0.0)))
    into.num_calls += len(took)
    into.num_answered += int(answered.sum())
    into.num_met += int(met.sum())
    into.took_s.append(took[answered])
    into.first_s.append((np.array(replay.ledger.first_token_s) + overhead)[answered])


def _get_overheads(replay: Replay, models: Sequence[FitModel]) -> FloatArray:
    """Seconds that the platform adds to each call. They take no capacity of copies."""
    overheads: FloatArray = np.array([it.overhead_s for it in models])
    return overheads[np.array(replay.ledger.of, dtype=np.int64)]


def _judge(
    replay: Replay, models: Sequence[FitModel], option: HostingOption
) -> tuple[Flags, Flags]:
    """Which calls were answered in time, and which of them met their model's targets."""
    ledger = replay.ledger
    of = np.array(ledger.of, dtype=np.int64)
    overhead = _get_overheads(replay, models)
    took = np.array(ledger.took_s) + overhead
    first = np.array(ledger.first_token_s) + overhead
    limits = np.array([OPTION_LIMITS[option].get_time_limit_s(it) for it in models])
    targets = np.array([it.target_p99_s for it in models])
    firsts = np.array([it.target_first_token_s or np.inf for it in models])
    answered = np.array(ledger.fate) == RequestFate.ANSWERED
    if option is not HostingOption.ASYNCHRONOUS:  # there the limit is of one attempt, not a wait
        answered &= took <= limits[of]
    return answered, answered & (took <= targets[of]) & (first <= firsts[of])


def _count_cost(replay: Replay, run: OptionRun, mix: FitMix, sums: _Sums) -> None:
    if run.machine is not None:
        sums.add_cost(run.machine, replay.fleet.instance_s / HOUR_S)
        return
    billed_s = sum(
        scaled.component.billed_s
        for scaled in replay.scaled
        if isinstance(scaled.component, ServerlessComponent)
    )
    price, gigabytes = mix.serverless_price, run.memory_mb / MB_PER_GB
    known = sums.cost is not None and price is not None
    sums.cost = (sums.cost or 0.0) + billed_s * gigabytes * (price or 0.0) if known else None


def _measure_step(
    plan: OptionPlan, mix: FitMix, traffic: MixTraffic, seed: int
) -> tuple[float, float]:
    """Seconds from the step to new capacity, by calls, and the share of calls that failed."""
    weighted_s = num_after = num_failed = 0.0
    for run in list_runs(plan, mix, seed):
        replay = _replay(run, traffic.step(run.models, run.names, seed))
        answered, met = _judge(replay, run.models, plan.option)
        at_s, by = np.array(replay.ledger.arrived_s), np.array(replay.ledger.model)
        is_after = at_s >= STEP_AT_S
        is_shortly_before = ~is_after & (at_s >= STEP_AT_S - AROUND_S)
        is_shortly_after = is_after & (at_s < STEP_AT_S + AROUND_S)
        num_failed += int((is_after & ~answered).sum())
        num_after += int(is_after.sum())
        for place, scaled in enumerate(replay.scaled):
            mine = by == place
            is_noticed = _is_noticed(met[mine & is_shortly_before], met[mine & is_shortly_after])
            took_s = _get_scaled_s(scaled.component.ever) if is_noticed else 0.0
            weighted_s += took_s * int((mine & is_after).sum())
    return weighted_s / max(1.0, num_after), num_failed / max(1.0, num_after)


def _is_noticed(before: Flags, after: Flags) -> bool:
    """Whether fewer calls met their targets after the step. If not, the capacity carried it."""
    if not len(after):
        return False
    usual = before.mean() if len(before) else 1.0
    return bool(after.mean() < usual - NOTICED)


def _get_scaled_s(copies: Sequence[SimulatedCopy]) -> float:
    """Seconds from the step to the first answer of new capacity, or to the simulation's end."""
    answers = [it.first_answer_s - STEP_AT_S for it in copies if it.placed_s >= STEP_AT_S]
    return min([WINDOW_S, *answers])


def _run_batches(
    plan: OptionPlan, mix: FitMix, traffic: MixTraffic, seed: int, sums: _Sums
) -> None:
    """One transform job a day for each model, on instances that exist as long as the job."""
    for model, machine in zip(plan.models, plan.machines, strict=True):
        (block,) = traffic.day([model], [model.name], seed).blocks
        service = get_instance_service([model], machine)
        first = service.prefill_s + service.token_s
        work = first + block.input_tokens * service.prefill_s_per_token
        work = work + (block.output_tokens - 1).clip(min=0) * service.token_s
        start_s = service.instance_start_s + service.cold_start_s
        slots = mix.batch_instances * service.max_concurrency
        took: list[float] = []
        for begins_s, arrived, works in _list_batches(block.at_s, work, mix.batch_hour):
            slowed = works * service.slowdowns()[-1]
            ends = list(_schedule(begins_s + start_s, slowed, slots))
            took += [end - at for end, at in zip(ends, arrived, strict=True)]
            lasted_s = max(ends) - begins_s
            sums.add_cost(machine, mix.batch_instances * lasted_s / HOUR_S)
        times = np.array(took)
        sums.calls.num_calls += len(times)
        sums.calls.num_answered += len(times)
        sums.calls.num_met += int((times <= model.target_p99_s).sum())
        sums.calls.took_s.append(times)
        sums.calls.first_s.append(times)


def _list_batches(
    at_s: FloatArray, work: FloatArray, hour: float
) -> Iterator[tuple[float, FloatArray, FloatArray]]:
    """The calls of each day's batch: those that arrived since the one before."""
    number = np.ceil((at_s - hour * HOUR_S) / DAY_S).clip(min=0).astype(np.int64)
    for day in np.unique(number):
        mine = number == day
        yield hour * HOUR_S + float(day) * DAY_S, at_s[mine], work[mine]


def _schedule(begins_s: float, works: FloatArray, slots: int) -> Iterator[float]:
    """When each piece of work ends, if the next one starts on the slot that is free first."""
    free = [begins_s] * min(slots, max(1, len(works)))
    for work_s in works.tolist():
        end_s = heapq.heappop(free) + work_s
        heapq.heappush(free, end_s)
        yield end_s


def list_trials(plan: OptionPlan, mix: FitMix, traffic: MixTraffic) -> Sequence[OptionTrial]:
    """A trial for each seed of the mix. Raises as `run_trial`."""
    return [run_trial(plan, mix, traffic, seed) for seed in mix.seeds]
