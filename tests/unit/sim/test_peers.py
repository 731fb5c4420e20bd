"""Other systems' rules, by their own documentation and defaults."""

import pytest

from hostelry.sim.peers import (
    KnativeRule,
    KnativeState,
    PointsRule,
    RayServeRule,
    RayServeState,
    aws_points,
    knative,
    naive_mean,
    ray_serve,
)


@pytest.mark.parametrize(
    ("in_flight", "ready", "wanted"),
    [
        pytest.param([5.0] * 60, 1, 1, id="at the target nothing changes"),
        pytest.param([12.0] * 60, 2, 3, id="the stable window's mean over the target, rounded up"),
        pytest.param([5.0] * 54 + [9.0] * 6, 1, 2, id="below twice the target it is not panic"),
        pytest.param([5.0] * 54 + [50.0] * 6, 1, 10, id="panic goes by the last six seconds"),
        pytest.param([0.0] * 60, 8, 4, id="scale-in halves at most in a tick"),
        pytest.param([], 3, 3, id="no data, no opinion"),
        pytest.param([7.0], 0, 2, id="no pod is counted as one"),
    ],
)
def test_knative_wants(in_flight: list[float], ready: int, wanted: int) -> None:
    assert knative(KnativeRule(target=5.0), KnativeState(), in_flight, ready, 0.0)[1] == wanted


def test_knative_does_not_scale_in_while_it_panics_nor_a_stable_window_later() -> None:
    rule = KnativeRule(target=5.0)
    state, wanted = knative(rule, KnativeState(), [5.0] * 54 + [50.0] * 6, 1, 0.0)
    assert wanted == 10
    state, wanted = knative(rule, state, [1.0] * 60, 10, 30.0)
    assert wanted == 10
    state, wanted = knative(rule, state, [1.0] * 60, 10, 61.0)
    assert (state, wanted) == (KnativeState(), 5)


@pytest.mark.parametrize(
    ("in_flight", "replicas", "delay_s", "wanted"),
    [
        pytest.param(20.0, 2, 30.0, 10, id="more, wanted for 30 s"),
        pytest.param(2.0, 4, 600.0, 1, id="fewer, wanted for 600 s"),
    ],
)
def test_ray_serve_waits_before_it_acts(
    in_flight: float, replicas: int, delay_s: float, wanted: int
) -> None:
    rule, state = RayServeRule(target=2.0), RayServeState()
    shown = [in_flight] * 30
    for second in range(int(delay_s)):
        state, desired = ray_serve(rule, state, shown, replicas, float(second))
        assert desired == replicas
    assert ray_serve(rule, state, shown, replicas, delay_s) == (RayServeState(), wanted)


def test_ray_serve_begins_to_wait_again_after_a_moment_of_agreement() -> None:
    rule = RayServeRule(target=2.0)
    state, _ = ray_serve(rule, RayServeState(), [20.0] * 30, 2, 0.0)
    assert state.more_since == 0.0
    state, _ = ray_serve(rule, state, [4.0] * 30, 2, 20.0)
    assert state == RayServeState()
    assert ray_serve(rule, state, [], 2, 30.0) == (RayServeState(), 2)


@pytest.mark.parametrize(
    ("points", "wanted"),
    [
        pytest.param([6.0, 6.0], 4, id="two points are not three"),
        pytest.param([6.0, 5.0, 6.0], 4, id="one at the target does not breach"),
        pytest.param([9.0, 6.0, 7.5], 6, id="in proportion to the newest, rounded up"),
        pytest.param([1.0, 6.0, 6.0, 6.0], 5, id="older points do not matter"),
    ],
)
def test_aws_acts_after_three_points_over_the_target(points: list[float], wanted: int) -> None:
    assert aws_points(PointsRule(target=5.0), points, 4) == wanted


@pytest.mark.parametrize(
    ("in_flight", "over", "wanted"),
    [
        pytest.param([99.0, 10.0, 12.0], 1.0, 3, id="two seconds over the target"),
        pytest.param([10.0, 12.0], 1.3, 2, id="but not far enough over"),
    ],
)
def test_a_naive_mean_acts_on_two_seconds(in_flight: list[float], over: float, wanted: int) -> None:
    assert naive_mean(5.0, in_flight, 2, over=over) == wanted
