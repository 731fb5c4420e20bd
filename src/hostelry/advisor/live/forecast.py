"""Forecast of the present deployment over the recorded calls, and measured figures. PURE."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
from msgspec.structs import replace

from hostelry.advisor.live.records import LiveRecords, NameRecords, RecordedUnit
from hostelry.advisor.live.stretch import Span
from hostelry.advisor.live.times import get_latency
from hostelry.advisor.options import HostingOption
from hostelry.advisor.plans import OptionPlan, Standing
from hostelry.advisor.policies import RESOURCES
from hostelry.advisor.traffic import HOUR_S, DrawnCalls, MixTraffic
from hostelry.advisor.trials import OptionTrial, run_period
from hostelry.advisor.values import MIB, FitMachine, FitMix, FitModel, ModelTraffic
from hostelry.base.errors import ServiceError, TerminalError
from hostelry.domain.scaling import Dimension
from hostelry.sim.policy_file import build_policy_set
from hostelry.sim.policy_requests import PolicySet

RECORDED = Path("recorded")  # stands for the file of the calls
PER_COMPONENT = (HostingOption.COMPONENTS, HostingOption.ADAPTERS)


class LivePrices(msgspec.Struct, frozen=True, kw_only=True):
    """Prices of an hour by instance type, and of a GB-second. None is unknown."""

    per_hour: Mapping[str, float | None]
    per_gb_s: float | None


class UnitFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of an endpoint. None is unknown.

    `cost` is for 1,000 answered calls. `starts` counts cold starts: environments of a serverless
    endpoint that began, loads of models of a multi-model endpoint.
    """

    calls_per_s: float | None = None
    failed_share: float | None = None
    cost: float | None = None
    p50_s: float | None = None
    p99_s: float | None = None
    starts: float | None = None


class UnitComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The forecast and the measured figures of an endpoint. `problem` is set without a forecast."""

    endpoint: str
    option: HostingOption
    forecast: UnitFigures
    measured: UnitFigures
    problem: str | None = None
    notes: tuple[str, ...] = ()


def compare_units(
    records: LiveRecords, span: Span, calls: Mapping[str, DrawnCalls], mix: FitMix
) -> list[UnitComparison]:
    """Each endpoint whose models the mix has. The mix gives times, memory and prices."""
    hours = span.seconds / HOUR_S
    traffic = MixTraffic(replace(mix, hours=hours), {RECORDED: calls})
    return [_compare(it, span, traffic, replace(mix, hours=hours)) for it in records.units]


def _compare(unit: RecordedUnit, span: Span, traffic: MixTraffic, mix: FitMix) -> UnitComparison:
    prices = LivePrices(
        per_hour={it.type: it.price_per_hour for it in mix.machines}, per_gb_s=mix.serverless_price
    )
    measured = measure_unit(unit, span, prices)
    found = UnitComparison(
        endpoint=unit.endpoint, option=unit.option, forecast=UnitFigures(), measured=measured
    )
    try:
        plan, notes = build_plan(unit, mix, traffic)
        mix = replace(mix, serverless_concurrency=unit.concurrency)
        trials = [run_period(plan, mix, traffic, seed) for seed in mix.seeds]
    except TerminalError as error:
        return replace(found, problem=str(error))
    return replace(found, forecast=average_trials(trials, span.seconds), notes=notes)


def build_plan(
    unit: RecordedUnit, mix: FitMix, traffic: MixTraffic
) -> tuple[OptionPlan, tuple[str, ...]]:
    """The plan that runs now, with notes. Raises TerminalError if the mix lacks a part of it."""
    by_name = {it.name: it for it in mix.models}
    missing = [it.live_name for it in unit.models if it.name not in by_name]
    if missing:
        raise TerminalError(
            f"the file has no model for {', '.join(missing[:3])}; `hostelry fit --from-live` "
            "writes one"
        )
    models = [
        replace(by_name[one.name], traffic=ModelTraffic(trace=RECORDED, trace_model=one.name))
        for one in unit.models
    ]
    if unit.option is HostingOption.SERVERLESS:
        models = [replace(it, memory_bytes=unit.memory_mb * MIB) for it in models]
        machine = mix.machines[0]
    else:
        machine = _find_machine(unit, mix)
    policies, notes = _build_all_policies(unit)
    plan = OptionPlan(
        option=unit.option,
        models=tuple(models),
        machines=(machine,) * len(models),
        standing=Standing(
            policies=policies, min_instances=unit.min_instances, loaded=list_loaded(models, traffic)
        ),
    )
    return plan, notes


def list_loaded(models: Sequence[FitModel], traffic: MixTraffic) -> tuple[int, ...]:
    """The places of the models that are called, most calls first."""
    rates = [traffic.rate(it) for it in models]
    called = [place for place, rate in enumerate(rates) if rate > 0]
    return tuple(sorted(called, key=lambda it: -rates[it]))


def _find_machine(unit: RecordedUnit, mix: FitMix) -> FitMachine:
    known = {it.type: it for it in mix.machines}
    if unit.instance_type not in known:
        raise TerminalError(
            f"the file has no machine of the type {unit.instance_type}: add a [[machines]] table"
        )
    return replace(known[unit.instance_type], most=max(1, unit.max_instances))


def _build_all_policies(
    unit: RecordedUnit,
) -> tuple[tuple[PolicySet | None, ...], tuple[str, ...]]:
    if unit.option is HostingOption.SERVERLESS:
        return (None,) * len(unit.models), ()
    notes: list[str] = []
    found: list[PolicySet | None] = []
    dimension = Dimension.COPIES if unit.option in PER_COMPONENT else Dimension.INSTANCES
    for place, model in enumerate(unit.models):
        if model.adapter_of is not None:
            found.append(None)
            continue
        at = place if unit.option in PER_COMPONENT else 0
        policies, note = build_policies_in_force(unit.scalings[at], unit.counts[at], dimension)
        found.append(policies)
        notes += [f"{model.live_name}: {note}"] if note else []
    return tuple(found), tuple(dict.fromkeys(notes))


def build_policies_in_force(
    requests: Sequence[Mapping[str, Any]], count: int, dimension: Dimension
) -> tuple[PolicySet, str]:
    """The policies that scale a name now, or its present number, and a note if this is not all."""
    fixed = PolicySet(name="fixed", minimum=count, maximum=count, dimension=dimension)
    if not requests:
        return fixed, ""
    of = {"ResourceId": RESOURCES[dimension], "ScalableDimension": dimension.value}
    try:
        found = build_policy_set([{**of, **it} for it in requests], "in force")
    except (TerminalError, ServiceError, ValueError) as error:
        return fixed, f"its policies cannot be replayed, so its number stays {count}: {error}"
    return replace(found, dimension=dimension), ""


def average_trials(trials: Sequence[OptionTrial], lasts_s: float) -> UnitFigures:
    """The forecast: means over the seeds."""
    return UnitFigures(
        calls_per_s=fmean(it.num_answered for it in trials) / lasts_s,
        failed_share=fmean(
            1 - one.num_answered / one.num_calls if one.num_calls else 0.0 for one in trials
        ),
        cost=_mean([it.cost for it in trials]),
        p50_s=_mean([it.p50_s for it in trials]),
        p99_s=_mean([it.p99_s for it in trials]),
        starts=_mean([it.num_starts for it in trials]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [it for it in values if it is not None]
    return fmean(known) if len(known) == len(values) and known else None


def measure_unit(unit: RecordedUnit, span: Span, prices: LivePrices) -> UnitFigures:
    """The measured figures of an endpoint in a span."""
    records = list_names(unit)
    num_calls, num_failed = _count(unit, span)
    answered = num_calls - num_failed
    amount = _measure_amount(unit, span, prices)
    return UnitFigures(
        calls_per_s=answered / span.seconds,
        failed_share=num_failed / num_calls if num_calls else None,
        cost=amount / answered * 1000 if amount is not None and answered > 0 else None,
        p50_s=get_latency(records, span, 0.5),
        p99_s=get_latency(records, span, 0.99),
        starts=_sum_starts(unit, span),
    )


def get_present_cost(records: LiveRecords, span: Span, prices: LivePrices) -> float | None:
    """The cost of 1,000 answered calls of all endpoints. None if a part is unknown."""
    amounts = [_measure_amount(it, span, prices) for it in records.units]
    counts = [_count(it, span) for it in records.units]
    answered = sum(calls - failed for calls, failed in counts)
    known = [it for it in amounts if it is not None]
    if len(known) < len(amounts) or answered <= 0:
        return None
    return sum(known) / answered * 1000


def list_names(unit: RecordedUnit) -> list[NameRecords]:
    """The records of a unit's names. The models of a multi-model endpoint share one."""
    return list({id(it.records): it.records for it in unit.models}.values())


def _count(unit: RecordedUnit, span: Span) -> tuple[float, float]:
    """The calls of a span, and those that failed."""
    names = list_names(unit)
    calls = sum(sum(span.select(it.calls).values()) for it in names)
    return calls, sum(sum(span.select(it.failed).values()) for it in names)


def _measure_amount(unit: RecordedUnit, span: Span, prices: LivePrices) -> float | None:
    """The cost of the span. None if a price or the use is unknown."""
    if unit.option is HostingOption.SERVERLESS:
        price = prices.per_gb_s
        return None if price is None else price * sum(span.select(unit.gb_s).values())
    per_hour, used = prices.per_hour.get(unit.instance_type), span.select(unit.instances)
    if per_hour is None or not used:
        return None
    return per_hour * fmean(used.values()) * span.seconds / HOUR_S


def _sum_starts(unit: RecordedUnit, span: Span) -> float | None:
    counted = (HostingOption.SERVERLESS, HostingOption.MULTI_MODEL)
    return sum(span.select(unit.starts).values()) if unit.option in counted else None
