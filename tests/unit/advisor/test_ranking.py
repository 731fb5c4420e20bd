"""Scores by the user's anchors, Pareto front, weighted shortfalls, sensitivity."""

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.advisor.mixes import AXES

from hostelry.advisor.axes import AxisValue, get_score
from hostelry.advisor.options import HostingOption as Option
from hostelry.advisor.ranking import Axes, find_front, get_shortfall, rank_options
from hostelry.advisor.values import AxisAnchors, FitAxis, NumberSource


def build_axes(*scores: float | None) -> Axes:
    """The axes in their order with these scores."""
    return {
        axis: AxisValue(
            axis=axis, raw=score, low=score, high=score, score=score, score_low=score,
            score_high=score, text="", source=NumberSource.SIMULATED, inputs="",
        )
        for axis, score in zip(FitAxis, scores, strict=True)
    }  # fmt: skip


GOOD, CHEAP, POOR = (
    build_axes(1.0, 0.6, 1.0, 1.0, 1.0), build_axes(0.5, 1.0, 1.0, 1.0, 1.0),
    build_axes(0.5, 0.5, 1.0, 1.0, 1.0),
)  # fmt: skip


@cases(
    "raw, anchors, score",
    case("at the target", 0.99, (0.9, 0.99), 1.0),
    case("above it: no more than 1", 1.0, (0.9, 0.99), 1.0),
    case("half way", 0.945, (0.9, 0.99), 0.5),
    case("unacceptable", 0.5, (0.9, 0.99), 0.0),
    case("less is better", 20.0, (300.0, 20.0), 1.0),
    case("less is better, half way", 160.0, (300.0, 20.0), 0.5),
    case("less is better, unacceptable", 400.0, (300.0, 20.0), 0.0),
)
def test_a_score_depends_on_anchors_alone(
    raw: float, anchors: tuple[float, float], score: float
) -> None:
    found = get_score(raw, AxisAnchors(unacceptable=anchors[0], target=anchors[1]))
    assert found == pytest.approx(score)


def test_shortfalls_are_weighted() -> None:
    assert get_shortfall(GOOD, AXES) == pytest.approx(0.4 / 5)
    heavy = {**AXES, FitAxis.COST: replace(AXES[FitAxis.COST], weight=6.0)}
    assert get_shortfall(GOOD, heavy) == pytest.approx(6 * 0.4 / 10)


def test_an_option_that_another_one_beats_is_not_on_the_front() -> None:
    options = {Option.DEDICATED: GOOD, Option.COMPONENTS: CHEAP, Option.BATCH: POOR}
    assert find_front(options, AXES) == {Option.DEDICATED, Option.COMPONENTS}


def test_the_least_shortfall_wins_and_the_sentence_names_the_axis_that_decides() -> None:
    ranking = rank_options({Option.COMPONENTS: CHEAP, Option.DEDICATED: GOOD}, AXES)
    assert [it.option for it in ranking.ranked] == [Option.DEDICATED, Option.COMPONENTS]
    assert ranking.pick is not None
    assert ranking.sensitivity == "If cost mattered twice as much, components would win."


def test_a_clear_winner_wins_with_other_weights_too() -> None:
    ranking = rank_options({Option.DEDICATED: GOOD, Option.BATCH: POOR}, AXES)
    assert ranking.sensitivity == (
        "dedicated wins also if any one axis matters twice or half as much."
    )


def test_an_unacceptable_axis_comes_after_all_acceptable_options() -> None:
    bad = build_axes(0.0, 1.0, 1.0, 1.0, 1.0)
    ranking = rank_options({Option.BATCH: bad, Option.DEDICATED: POOR}, AXES)
    assert ranking.ranked[0].option is Option.DEDICATED
    assert ranking.ranked[1].unacceptable == (FitAxis.LATENCY,)


def test_nothing_is_chosen_if_nothing_is_acceptable() -> None:
    ranking = rank_options({Option.BATCH: build_axes(0.0, 1.0, 1.0, 1.0, 1.0)}, AXES)
    assert ranking.pick is None


def test_an_unknown_cost_is_not_ranked_unless_cost_has_no_weight() -> None:
    unknown = build_axes(1.0, None, 1.0, 1.0, 1.0)
    options = {Option.SERVERLESS: unknown, Option.BATCH: POOR}
    ranking = rank_options(options, AXES)
    assert ranking.unranked == {Option.SERVERLESS: "its cost is unknown"}
    free = {**AXES, FitAxis.COST: replace(AXES[FitAxis.COST], weight=0.0)}
    pick = rank_options(options, free).pick
    assert pick is not None
    assert pick.option is Option.SERVERLESS


def test_without_options_there_is_no_pick() -> None:
    ranking = rank_options({}, AXES)
    assert ranking.pick is None
    assert ranking.ranked == ()
