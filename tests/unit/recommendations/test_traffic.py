"""The number of users, and the windows of a load."""

from tests.cases import case, cases

from hostelry.domain.recommendation_job import TrafficPhase
from hostelry.recommendations.traffic import (
    DEFAULT_TRAFFIC,
    build_stairs,
    count_most_users,
    count_users,
    get_duration_s,
    is_window_over,
)

STAIRS = build_stairs(30.0, 3, 2)
GROWING = (
    TrafficPhase(initial_users=1, users_per_minute=6, duration_s=60.0),
    TrafficPhase(initial_users=2, duration_s=12.0),
)


@cases(
    "phases, elapsed_s, expected",
    case("the first stair", STAIRS, 0.0, 2),
    case("the second stair", STAIRS, 30.0, 4),
    case("the end of the last stair", STAIRS, 89.9, 6),
    case("after the stairs", STAIRS, 90.0, 0),
    case("a phase before its second user", GROWING, 9.9, 1),
    case("a phase with its second user", GROWING, 10.0, 2),
    case("the end of a growing phase", GROWING, 59.0, 6),
    case("fewer users in the next phase", GROWING, 60.0, 2),
)
def test_the_number_of_users(
    phases: tuple[TrafficPhase, ...], elapsed_s: float, expected: int
) -> None:
    assert count_users(phases, elapsed_s) == expected


@cases(
    "phases, most, duration_s",
    case("stairs", STAIRS, 6, 90.0),
    case("growing phases", GROWING, 7, 72.0),
    case("the default", DEFAULT_TRAFFIC, 256, 90.0),
)
def test_the_most_users_and_the_duration(
    phases: tuple[TrafficPhase, ...], most: int, duration_s: float
) -> None:
    assert (count_most_users(phases), get_duration_s(phases)) == (most, duration_s)


@cases(
    "began_s, elapsed_s, num_answers, expected",
    case("too short", 0.0, 4.9, 1000, False),
    case("long enough, with answers", 0.0, 5.0, 20, True),
    case("long enough, with too few answers", 0.0, 5.0, 19, False),
    case("the phase is over, without an answer", 25.0, 30.0, 0, True),
    case("the rest of the phase is too short for a window", 20.0, 26.0, 1000, False),
    case("a window of the next phase", 30.0, 35.0, 20, True),
)
def test_the_end_of_a_window(
    began_s: float, elapsed_s: float, num_answers: int, expected: bool
) -> None:
    assert is_window_over(STAIRS, began_s, elapsed_s, num_answers) is expected
