"""Axes of an option: raw values with their spread and source, and scores by the user's anchors.

A score is 0 at the unacceptable value, 1 at the target, and on a straight line between them. It is
never scaled by the other options.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

import msgspec

from hostelry.advisor.options import get_isolation
from hostelry.advisor.plans import OptionPlan
from hostelry.advisor.trials import OptionTrial
from hostelry.advisor.values import (
    ISOLATION_TEXT,
    AxisAnchors,
    FitAxis,
    FitMix,
    NumberSource,
)


class AxisValue(msgspec.Struct, frozen=True, kw_only=True):
    """An option's value on an axis.

    `low` and `high` are the spread of `raw` over the seeds, `score` and its spread are from 0 to 1.
    A `raw` of None is unknown, as `text` says. `inputs` is where the numbers come from that the
    value was computed from.
    """

    axis: FitAxis
    raw: float | None
    low: float | None
    high: float | None
    score: float | None
    score_low: float | None
    score_high: float | None
    text: str
    source: NumberSource
    inputs: str

    @property
    def is_assumed(self) -> bool:
        """Whether the value depends on an assumption, so that it is drawn in grey."""
        return self.source is NumberSource.ASSUMED


def get_score(raw: float, anchors: AxisAnchors) -> float:
    """The score of a value, from 0 to 1."""
    span = anchors.target - anchors.unacceptable
    return min(1.0, max(0.0, (raw - anchors.unacceptable) / span))


def build_axes(
    plan: OptionPlan, trials: Sequence[OptionTrial], num_objects: int, mix: FitMix
) -> Mapping[FitAxis, AxisValue]:
    """All axes of a simulated option. `num_objects` are the objects that deploy it."""
    inputs, source = get_inputs(plan)
    met = [it.met_share for it in trials]
    p99 = [it.p99_s for it in trials if it.p99_s is not None]
    level = get_isolation(plan.option, has_machine_per_instance=mix.has_machine_per_instance)
    scale = [it.scale_s for it in trials]
    failed = fmean(it.step_failed for it in trials)
    shown = f", p99 {format_s(fmean(p99))}" if p99 else ""
    hits = [it.hit_rate for it in trials if it.hit_rate is not None]
    shown += f", {fmean(hits):.1%} of models loaded" if hits else ""
    values = [
        _value(FitAxis.LATENCY, met, mix, f"{fmean(met):.2%} in time{shown}", (source, inputs)),
        _build_cost(trials, mix, (source, inputs)),
        _value(
            FitAxis.ISOLATION,
            [float(level)],
            mix,
            f"{level.value}: {ISOLATION_TEXT[level]}",
            (NumberSource.COUNTED, "properties of the option"),
        ),
        _value(
            FitAxis.SCALABILITY,
            scale,
            mix,
            f"{format_s(fmean(scale))}, {failed:.2%} failed",
            (source, inputs),
            factor=1.0 - failed,
        ),
        _value(
            FitAxis.OPERATIONS,
            [float(num_objects)],
            mix,
            f"{num_objects:,} objects",
            (NumberSource.COUNTED, "the document for apply"),
        ),
    ]
    return {it.axis: it for it in values}


def get_inputs(plan: OptionPlan) -> tuple[str, NumberSource]:
    """The origin of the service times, and whether the simulation rests on measured ones."""
    origins = list(dict.fromkeys(it.service_origin for it in plan.models))
    shown = "; ".join(origins[:2]) + ("; ..." if len(origins) > 2 else "")
    is_assumed = not all(it.is_measured for it in plan.models)
    text = f"service times {shown}"
    return text, NumberSource.ASSUMED if is_assumed else NumberSource.SIMULATED


def _build_cost(
    trials: Sequence[OptionTrial], mix: FitMix, source: tuple[NumberSource, str]
) -> AxisValue:
    costs = [it.cost for it in trials if it.cost is not None]
    if len(costs) == len(trials):
        text = f"{fmean(costs):.4g} for 1,000 calls"
        return _value(FitAxis.COST, costs, mix, text, source)
    answered = all(it.num_answered for it in trials)
    text = "unknown: a price is missing" if answered else "no call succeeded"
    return AxisValue(
        axis=FitAxis.COST, raw=None, low=None, high=None,
        score=None if answered else 0.0,
        score_low=None if answered else 0.0,
        score_high=None if answered else 0.0,
        text=text, source=source[0], inputs=source[1],
    )  # fmt: skip


def _value(
    axis: FitAxis,
    raws: Sequence[float],
    mix: FitMix,
    text: str,
    source: tuple[NumberSource, str],
    factor: float = 1.0,
) -> AxisValue:
    scores = [factor * get_score(it, mix.axes[axis]) for it in raws]
    return AxisValue(
        axis=axis,
        raw=fmean(raws),
        low=min(raws),
        high=max(raws),
        score=fmean(scores),
        score_low=min(scores),
        score_high=max(scores),
        text=text,
        source=source[0],
        inputs=source[1],
    )


def format_s(seconds: float) -> str:
    """A time with a unit that fits."""
    if seconds < 1.0:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120.0:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
