"""The advice of `hostelry fit` as text and as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from hostelry.advisor.advice import GroupAdvice, SimulatedOption, format_anchor
from hostelry.advisor.axes import AxisValue
from hostelry.advisor.options import HostingOption
from hostelry.advisor.values import FitMix, FitModel
from hostelry.cli.status_text import columns, count_text, number_text

BAR_CELLS = 10
FULL, BAND, EMPTY, ASSUMED = "█", "▒", "·", "░"
MAX_REASONS, MAX_NAMES = 3, 8


def list_lines(mix: FitMix, advice: Sequence[GroupAdvice], notes: Sequence[str]) -> Iterator[str]:
    """The whole report."""
    yield (
        f"{mix.name}: {count_text(len(mix.models), 'model')}, {mix.hours:g} h simulated with "
        f"{len(mix.seeds)} seeds"
    )
    yield from (f"note: {it}" for it in notes)
    yield from ("", *_list_anchors(mix))
    for one in advice:
        yield from ("", *_list_group(one, named=len(advice) > 1))


def _list_group(advice: GroupAdvice, *, named: bool) -> Iterator[str]:
    group = advice.group
    if named:
        yield f"group {group.name}: {count_text(len(group.models), 'model')} ({group.why})"
        yield f"   {_list_names(group.models)}"
        yield (
            "   requests at a time, on average over the busiest five minutes: "
            f"{number_text(group.peak)}, or {number_text(group.sum_of_peaks)} if the busiest five "
            "minutes of all models came together"
        )
    if advice.simulated:
        yield from _list_options(advice)
        yield from _list_sources(advice)
    for option, reasons in advice.refused.items():
        yield f"cannot work: {option.value}: {'; '.join(reasons[:MAX_REASONS])}"
    for option, reason in advice.not_simulated.items():
        yield f"not ranked: {option.value}: {reason}"
    yield from (f"adapters of {it}" for it in (*advice.adapter_limits, *advice.merging))
    yield ""
    yield from _list_pick(advice)


def _list_names(models: Sequence[FitModel]) -> str:
    names = [it.name for it in models[:MAX_NAMES]]
    more = len(models) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more > 0 else "")


def _list_pick(advice: GroupAdvice) -> Iterator[str]:
    ranking = advice.ranking
    pick = ranking.pick
    if pick is None and not ranking.ranked:
        yield "No option can be ranked."
        return
    if pick is None:
        first = ranking.ranked[0]
        axes = ", ".join(it.value for it in first.unacceptable)
        yield (
            f"No option is acceptable on every axis. {first.option.value} comes closest; it is "
            f"unacceptable on {axes}. Change the mix, or the anchors of {axes}."
        )
    else:
        machines = _get_machines(advice.simulated[pick.option])
        yield f"Choose {pick.option.value}{machines}."
        yield ranking.sensitivity


def _get_machines(simulated: SimulatedOption) -> str:
    if simulated.plan.option is HostingOption.SERVERLESS:
        return ""
    types = dict.fromkeys(it.type for it in simulated.plan.machines)
    return f" on {', '.join(types)}"


def _list_anchors(mix: FitMix) -> list[str]:
    rows: list[tuple[str, ...]] = [("axis", "0 at", "1 at", "weight")]
    for axis, anchors in mix.axes.items():
        ends = (format_anchor(axis, it) for it in (anchors.unacceptable, anchors.target))
        rows.append((axis.value, *ends, f"{anchors.weight:g}"))
    return columns(rows)


def _list_options(advice: GroupAdvice) -> Iterator[str]:
    """The ranked options, best first: each axis as a bar from 0 to 1, with its score and value."""
    for place, ranked in enumerate(advice.ranking.ranked):
        simulated = advice.simulated[ranked.option]
        front = "" if ranked.is_on_front else ", another option is as good or better on every axis"
        machines = _get_machines(simulated)
        title = f"{place + 1}. {ranked.option.value}{machines}: shortfall {ranked.shortfall:.3f}"
        yield f"{title}{front}"
        rows = [(f"   {axis.value}", *draw_bar(it), it.text) for axis, it in simulated.axes.items()]
        yield from columns(rows)
        yield f"   {simulated.constraint}"
        if simulated.schedule:
            yield f"   {simulated.schedule}"
        yield ""
    yield f"{FULL} score, {BAND} spread over the seeds, {ASSUMED} rests on assumed service times"


def draw_bar(value: AxisValue) -> tuple[str, str]:
    """A score as a bar, and as a number with its spread."""
    if value.score is None:
        return "?" * BAR_CELLS, "unknown"
    low, high = value.score_low or 0.0, value.score_high or 0.0
    full = round(low * BAR_CELLS)
    band = round(high * BAR_CELLS) - full
    cell = ASSUMED if value.is_assumed else FULL
    bar = cell * full + BAND * band + EMPTY * (BAR_CELLS - full - band)
    spread = f" ({low:.2f}-{high:.2f})" if high - low >= 0.005 else ""
    return bar, f"{value.score:.2f}{spread}"


def _list_sources(advice: GroupAdvice) -> Iterator[str]:
    """The source of each axis. It is the same for all options of a group, but for the inputs."""
    axes = next(iter(advice.simulated.values())).axes
    for source in dict.fromkeys((it.source, it.inputs) for it in axes.values()):
        names = [axis.value for axis, it in axes.items() if (it.source, it.inputs) == source]
        kind, inputs = source
        yield f"{', '.join(names)}: {kind.value} ({inputs})"


def build_report(
    mix: FitMix, advice: Sequence[GroupAdvice], notes: Sequence[str]
) -> dict[str, Any]:
    """The advice for programs."""
    return {
        "name": mix.name,
        "hours": mix.hours,
        "seeds": mix.seeds,
        "notes": notes,
        "axes": {axis.value: anchors for axis, anchors in mix.axes.items()},
        "groups": [_report_group(it) for it in advice],
    }


def _report_group(advice: GroupAdvice) -> dict[str, Any]:
    ranking = advice.ranking
    pick = ranking.pick
    return {
        "name": advice.group.name,
        "why": advice.group.why,
        "peak": advice.group.peak,
        "sum_of_peaks": advice.group.sum_of_peaks,
        "models": [it.name for it in advice.group.models],
        "pick": None if pick is None else pick.option.value,
        "sensitivity": ranking.sensitivity,
        "merging": advice.merging,
        "adapter_limits": advice.adapter_limits,
        "ranked": [
            {
                "option": ranked.option.value,
                "shortfall": ranked.shortfall,
                "on_front": ranked.is_on_front,
                "unacceptable": [axis.value for axis in ranked.unacceptable],
                **_report_option(advice.simulated[ranked.option]),
            }
            for ranked in ranking.ranked
        ],
        "refused": {it.value: reasons for it, reasons in advice.refused.items()},
        "not_ranked": {it.value: reason for it, reason in advice.not_simulated.items()},
    }


def _report_option(simulated: SimulatedOption) -> dict[str, Any]:
    return {
        "machines": list(dict.fromkeys(it.type for it in simulated.plan.machines)),
        "constraint": simulated.constraint,
        "schedule": simulated.schedule,
        "quiet": {
            model.name: hours
            for model, hours in zip(simulated.plan.models, simulated.plan.quiet, strict=False)
            if hours is not None
        },
        "axes": {axis.value: it for axis, it in simulated.axes.items()},
        "trials": simulated.trials,
    }


def format_document(document: Mapping[str, Any], source: str) -> str:
    """A document for `hostelry apply`, as YAML."""
    head = f"# The choice of `hostelry fit {source}`. Deploy it with `hostelry apply -f FILE`.\n"
    return head + yaml.safe_dump(dict(document), sort_keys=False)
