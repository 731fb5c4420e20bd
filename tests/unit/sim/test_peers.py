"""Other systems' rules, by their own documentation and defaults."""

from tests.cases import case, cases

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


@cases(
    "in_flight, ready, wanted",
    case("at the target nothing changes", [5.0] * 60, 1, 1),
    case("the stable window's mean over the target, rounded up", [12.0] * 60, 2, 3),
    case("below twice the target it is not panic", [5.0] * 54 + [9.0] * 6, 1, 2),
    case("panic goes by the last six seconds", [5.0] * 54 + [50.0] * 6, 1, 10),
    case("scale-in halves at most in a tick", [0.0] * 60, 8, 4),
    case("no data, no opinion", [], 3, 3),
    case("no pod is counted as one", [7.0], 0, 2),
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


@cases(
    "in_flight, replicas, delay_s, wanted",
    case("more, wanted for 30 s", 20.0, 2, 30.0, 10),
    case("fewer, wanted for 600 s", 2.0, 4, 600.0, 1),
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


@cases(
    "points, wanted",
    case("two points are not three", [6.0, 6.0], 4),
    case("one at the target does not breach", [6.0, 5.0, 6.0], 4),
    case("in proportion to the newest, rounded up", [9.0, 6.0, 7.5], 6),
    case("older points do not matter", [1.0, 6.0, 6.0, 6.0], 5),
)
def test_aws_acts_after_three_points_over_the_target(points: list[float], wanted: int) -> None:
    assert aws_points(PointsRule(target=5.0), points, 4) == wanted


@cases(
    "in_flight, over, wanted",
    case("two seconds over the target", [99.0, 10.0, 12.0], 1.0, 3),
    case("but not far enough over", [10.0, 12.0], 1.3, 2),
)
def test_a_naive_mean_acts_on_two_seconds(in_flight: list[float], over: float, wanted: int) -> None:
    assert naive_mean(5.0, in_flight, 2, over=over) == wanted
