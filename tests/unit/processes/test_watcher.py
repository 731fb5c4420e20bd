from tests.cases import case, cases

from hostelry.processes.watcher import FIRST_PAUSE_S, MOST_PAUSE_S, STEADY_S, next_pause_s


@cases(
    "last_s, lived_s, expected",
    case("after a steady life at once", FIRST_PAUSE_S, STEADY_S, FIRST_PAUSE_S),
    case("... also after quick deaths before", 8.0, STEADY_S + 1, FIRST_PAUSE_S),
    case("a quick death doubles the pause", 0.1, 3.0, 0.2),
    case("up to a minute", 50.0, 0.0, MOST_PAUSE_S),
)
def test_the_pause_before_up_is_started_again(
    last_s: float, lived_s: float, expected: float
) -> None:
    assert next_pause_s(last_s, lived_s) == expected
