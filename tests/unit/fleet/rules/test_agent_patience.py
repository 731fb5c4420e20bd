from tests.cases import case, cases

from hostelry.fleet.local.fleet import KILL_COUNTS_S, patience_s

NOW = 10_000.0


@cases(
    "kills, expected",
    case("an agent that was never killed has the first time", [], 60.0),
    case("one kill doubles the time", [NOW], 120.0),
    case("each kill doubles the time", [NOW - 900.0, NOW - 300.0], 240.0),
    case("the time is bounded", [NOW] * 40, 960.0),
    case("a kill of an hour ago does not count", [NOW - KILL_COUNTS_S], 60.0),
)
def test_an_agents_time_to_answer(kills: list[float], expected: float) -> None:
    assert patience_s(60.0, kills, NOW) == expected
