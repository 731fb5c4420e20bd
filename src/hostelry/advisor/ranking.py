"""The ranking of simulated options: Pareto front, weighted shortfalls, sensitivity. PURE.

Areas are not compared: an area depends on the order of the axes, and grows as a square.
"""

from collections.abc import Mapping, Sequence

import msgspec

from hostelry.advisor.axes import AxisValue
from hostelry.advisor.options import HostingOption
from hostelry.advisor.values import AxisAnchors, FitAxis

Axes = Mapping[FitAxis, AxisValue]
Anchors = Mapping[FitAxis, AxisAnchors]
TWICE = 2.0
CLOSE = 1e-9


class RankedOption(msgspec.Struct, frozen=True, kw_only=True):
    """An option's place. `shortfall` is the weighted mean distance of its scores from 1.

    `unacceptable` are the axes with weight whose score is 0.
    """

    option: HostingOption
    shortfall: float
    is_on_front: bool
    unacceptable: tuple[FitAxis, ...]


class FitRanking(msgspec.Struct, frozen=True, kw_only=True):
    """Ranked options, best first, and the options without a place with the reason."""

    ranked: tuple[RankedOption, ...]
    unranked: Mapping[HostingOption, str]
    sensitivity: str

    @property
    def pick(self) -> RankedOption | None:
        """The best option. None if no option is acceptable on all axes with weight."""
        if not self.ranked or self.ranked[0].unacceptable:
            return None
        return self.ranked[0]


def rank_options(options: Mapping[HostingOption, Axes], anchors: Anchors) -> FitRanking:
    """Rank options by their weighted shortfalls. Acceptable options come first."""
    unranked = {
        option: f"its {unknown.value} is unknown"
        for option, axes in options.items()
        if (unknown := _find_unknown(axes, anchors)) is not None
    }
    known = {option: axes for option, axes in options.items() if option not in unranked}
    ranked = _rank(known, anchors)
    return FitRanking(
        ranked=tuple(ranked), unranked=unranked, sensitivity=_build_sensitivity(known, anchors)
    )


def get_shortfall(axes: Axes, anchors: Anchors) -> float:
    """The weighted mean distance of the scores from 1."""
    total = sum(it.weight for it in anchors.values())
    lacking = sum(
        anchors[axis].weight * (1.0 - score)
        for axis, it in axes.items()
        if (score := it.score) is not None
    )
    return lacking / total


def find_front(options: Mapping[HostingOption, Axes], anchors: Anchors) -> set[HostingOption]:
    """The options that no other option beats: as good on all axes with weight, better on one."""
    used = [axis for axis, it in anchors.items() if it.weight]

    def scores(axes: Axes) -> list[float]:
        return [axes[it].score or 0.0 for it in used]

    def beats(one: Sequence[float], other: Sequence[float]) -> bool:
        pairs = list(zip(one, other, strict=True))
        return all(a >= b - CLOSE for a, b in pairs) and any(a > b + CLOSE for a, b in pairs)

    by_option = {option: scores(axes) for option, axes in options.items()}
    return {
        option
        for option, mine in by_option.items()
        if not any(beats(other, mine) for other in by_option.values())
    }


def _find_unknown(axes: Axes, anchors: Anchors) -> FitAxis | None:
    """The first axis with weight whose value is unknown."""
    return next((it for it in FitAxis if anchors[it].weight and axes[it].score is None), None)


def _rank(options: Mapping[HostingOption, Axes], anchors: Anchors) -> list[RankedOption]:
    front = find_front(options, anchors)
    found = [
        RankedOption(
            option=option,
            shortfall=get_shortfall(axes, anchors),
            is_on_front=option in front,
            unacceptable=list_unacceptable(axes, anchors),
        )
        for option, axes in options.items()
    ]
    order = {option: place for place, option in enumerate(HostingOption)}
    found.sort(key=lambda it: (bool(it.unacceptable), it.shortfall, order[it.option]))
    return found


def list_unacceptable(axes: Axes, anchors: Anchors) -> tuple[FitAxis, ...]:
    """The axes with weight on which an option is unacceptable."""
    return tuple(it for it in FitAxis if anchors[it].weight and axes[it].score == 0.0)


def _build_sensitivity(options: Mapping[HostingOption, Axes], anchors: Anchors) -> str:
    """One sentence: which axis would have to matter twice as much for another option to win."""
    ranked = _rank(options, anchors)
    if len(ranked) < 2:
        return "There is no other option to compare with."
    best = ranked[0].option
    for axis in FitAxis:
        if not anchors[axis].weight:
            continue
        other = _rank(options, _weigh(anchors, axis, TWICE))[0].option
        if other is not best:
            return f"If {axis.value} mattered twice as much, {other.value} would win."
    for axis in FitAxis:
        if not anchors[axis].weight:
            continue
        other = _rank(options, _weigh(anchors, axis, 1 / TWICE))[0].option
        if other is not best:
            return f"If {axis.value} mattered half as much, {other.value} would win."
    return f"{best.value} wins also if any one axis matters twice or half as much."


def _weigh(anchors: Anchors, axis: FitAxis, factor: float) -> Anchors:
    changed = anchors[axis]
    return {
        **anchors,
        axis: AxisAnchors(
            unacceptable=changed.unacceptable,
            target=changed.target,
            weight=changed.weight * factor,
        ),
    }
