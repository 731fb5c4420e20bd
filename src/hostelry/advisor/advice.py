"""The advice for a mix: gates, simulation, axes and ranking for each group of its models."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

import msgspec
from msgspec.structs import replace

from hostelry.advisor.adapter_limits import list_limit_advice
from hostelry.advisor.axes import AxisValue, build_axes, format_s
from hostelry.advisor.document import build_document, check_deployable, count_objects
from hostelry.advisor.gates import check_gates
from hostelry.advisor.grouping import ModelGroup, group_models
from hostelry.advisor.merging import list_merge_advice
from hostelry.advisor.options import HostingOption
from hostelry.advisor.plans import OptionPlan, plan_option
from hostelry.advisor.ranking import (
    FitRanking,
    get_shortfall,
    list_unacceptable,
    rank_options,
)
from hostelry.advisor.runs import find_obstacle
from hostelry.advisor.schedules import list_quiet_hours
from hostelry.advisor.traffic import MixTraffic
from hostelry.advisor.trials import OptionTrial, list_trials
from hostelry.advisor.values import FitAxis, FitMix
from hostelry.base.errors import TerminalError

Progress = Callable[[str], None]
ONE_INSTANCE_SLACK = 0.01  # a share of the hours. Up to it, one instance ran all the time
MAX_SHOWN_TIMES = 5  # of models with quiet hours, in one sentence


def ignore_progress(text: str) -> None:
    """Report no progress."""


class SimulatedOption(msgspec.Struct, frozen=True, kw_only=True):
    """An option that was simulated. `constraint` is one sentence on the axis that lacks most.

    `schedule` has the saving of schedules, or the reason against them. It is empty if no model has
    quiet hours.
    """

    plan: OptionPlan
    trials: Sequence[OptionTrial]
    axes: Mapping[FitAxis, AxisValue]
    constraint: str
    schedule: str = ""


class GroupAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """The advice for a group.

    `refused` has the options that cannot work, with the reasons of their gates, `not_simulated`
    the options that take no part in the ranking. `merging` is about adapters that could be merged,
    `adapter_limits` about the number of adapters on a copy.
    """

    group: ModelGroup
    refused: Mapping[HostingOption, tuple[str, ...]]
    not_simulated: Mapping[HostingOption, str]
    simulated: Mapping[HostingOption, SimulatedOption]
    ranking: FitRanking
    merging: tuple[str, ...] = ()
    adapter_limits: tuple[str, ...] = ()


def advise(
    mix: FitMix,
    traffic: MixTraffic,
    progress: Progress = ignore_progress,
    *,
    splits: bool = False,
) -> list[GroupAdvice]:
    """The advice for each group of a mix. With `splits` groups are divided further."""
    groups = group_models(mix, traffic, splits=splits)
    return [advise_group(it, mix, traffic, progress) for it in groups]


def advise_group(
    group: ModelGroup, mix: FitMix, traffic: MixTraffic, progress: Progress = ignore_progress
) -> GroupAdvice:
    """Simulate the options whose gates are open, and rank them."""
    refused: dict[HostingOption, tuple[str, ...]] = {}
    obstacles: dict[HostingOption, str] = {}
    simulated: dict[HostingOption, SimulatedOption] = {}
    for option in HostingOption:
        gate = check_gates(option, group.models, mix)
        if not gate.is_open:
            refused[option] = gate.reasons
            continue
        plan = plan_option(option, group.models, mix, traffic)
        obstacle = find_obstacle(plan)
        if obstacle is not None:
            obstacles[option] = obstacle
            continue
        progress(f"{group.name}: {option.value}, {len(mix.seeds)} seeds")
        try:
            found = simulate_option(plan, group.name, mix, traffic)
            simulated[option] = _try_schedules(found, group.name, mix, traffic, progress)
        except TerminalError as error:
            refused[option] = (str(error),)
    ranking = rank_options({it: one.axes for it, one in simulated.items()}, mix.axes)
    return GroupAdvice(
        group=group,
        refused=refused,
        not_simulated={**obstacles, **ranking.unranked},
        simulated=simulated,
        ranking=ranking,
        merging=list_merge_advice(group.models, traffic, mix.merge_from_share),
        adapter_limits=list_limit_advice(group.models, traffic, mix.adapter_throughput),
    )


def simulate_option(
    plan: OptionPlan, group: str, mix: FitMix, traffic: MixTraffic
) -> SimulatedOption:
    """The figures of a plan. Raises TerminalError if it cannot carry the calls."""
    trials = list_trials(plan, mix, traffic)
    num_objects = count_objects(build_document(plan, mix, group))
    axes = build_axes(plan, trials, num_objects, mix)
    return SimulatedOption(
        plan=plan, trials=trials, axes=axes, constraint=_build_constraint(plan, trials, axes, mix)
    )


def _try_schedules(
    found: SimulatedOption, group: str, mix: FitMix, traffic: MixTraffic, progress: Progress
) -> SimulatedOption:
    """The option with schedules, if they lower its cost and its shortfall. Else as it was."""
    plan = found.plan
    quiet = list_quiet_hours(plan, mix, traffic)
    if not any(quiet):
        return found
    hours = fmean(it.instance_h for it in found.trials)
    if hours <= mix.hours * (1 + ONE_INSTANCE_SLACK):
        return replace(found, schedule="Schedules save nothing: one instance stays in any case.")
    progress(f"{group}: {plan.option.value} with schedules, {len(mix.seeds)} seeds")
    other = simulate_option(replace(plan, quiet=quiet), group, mix, traffic)
    other_hours = fmean(it.instance_h for it in other.trials)
    change = f"{other_hours:,.1f} instance hours in place of {hours:,.1f}"
    met = f"{_get_met(other):.2%} of the calls in time in place of {_get_met(found):.2%}"
    is_acceptable = not list_unacceptable(other.axes, mix.axes)
    is_better = get_shortfall(other.axes, mix.axes) < get_shortfall(found.axes, mix.axes)
    if not (other_hours < hours and is_acceptable and is_better):
        return replace(found, schedule=f"Schedules do not pay: {change}, {met}.")
    times = [
        f"{model.name} {it.text}"
        for model, it in zip(plan.models, quiet, strict=True)
        if it is not None
    ]
    more = f" and {len(times) - MAX_SHOWN_TIMES:,} more" if len(times) > MAX_SHOWN_TIMES else ""
    text = (
        f"With schedules: {change} ({1 - other_hours / hours:.0%} saved), {met}. "
        f"May be at zero: {', '.join(times[:MAX_SHOWN_TIMES])}{more}."
    )
    return replace(other, schedule=text)


def _get_met(simulated: SimulatedOption) -> float:
    return fmean(it.met_share for it in simulated.trials)


def build_choice(mix: FitMix, advice: Sequence[GroupAdvice]) -> Mapping[str, Any]:
    """One document for `hostelry apply` that deploys the choice of every group.

    Raises TerminalError if a group has no choice, or if the file lacks what deploys it.
    """
    found: dict[str, Any] = {"set": mix.name}
    for one in advice:
        pick = one.ranking.pick
        if pick is None:
            raise TerminalError(
                f"group {one.group.name} has no acceptable option to write; change the mix or the "
                "anchors of its axes"
            )
        plan = one.simulated[pick.option].plan
        check_deployable(plan)
        for section, objects in build_document(plan, mix, one.group.name).items():
            if section != "set":
                found.setdefault(section, {}).update(objects)
    return found


def _build_constraint(
    plan: OptionPlan,
    trials: Sequence[OptionTrial],
    axes: Mapping[FitAxis, AxisValue],
    mix: FitMix,
) -> str:
    """One sentence: the axis with the largest weighted shortfall, and its cause if it is known."""

    def lacking(axis: FitAxis) -> float:
        score = axes[axis].score
        return mix.axes[axis].weight * (1.0 - (0.0 if score is None else score))

    worst = max(FitAxis, key=lacking)
    if lacking(worst) <= 0.0:
        return "It meets every target."
    anchors, value = mix.axes[worst], axes[worst]
    cause = _find_cause(plan, trials, worst)
    return (
        f"{worst.value.capitalize()} lacks most: {value.text}, the target is "
        f"{format_anchor(worst, anchors.target)}{cause}."
    )


def _find_cause(plan: OptionPlan, trials: Sequence[OptionTrial], axis: FitAxis) -> str:
    rates = [it.hit_rate for it in trials if it.hit_rate is not None]
    if axis is FitAxis.LATENCY and rates:
        return f"; {1 - fmean(rates):.1%} of the calls waited for their model"
    if axis is FitAxis.COST and plan.option is not HostingOption.SERVERLESS:
        hours = fmean(it.instance_h for it in trials)
        return f"; {hours:,.1f} instance hours, idle ones included"
    return ""


def format_anchor(axis: FitAxis, value: float) -> str:
    """An anchor in its axis's unit."""
    match axis:
        case FitAxis.LATENCY:
            return f"{value:.4g} of the calls in time"
        case FitAxis.COST:
            return f"{value:.4g} for 1,000 calls"
        case FitAxis.SCALABILITY:
            return format_s(value)
        case FitAxis.OPERATIONS:
            return f"{value:,.0f} objects"
        case FitAxis.ISOLATION:
            return f"level {value:g}"
