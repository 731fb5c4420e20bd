import pytest

from hostelry.fleet.local.fleet import KILL_COUNTS_S, patience_s

NOW = 10_000.0


@pytest.mark.parametrize(
    ("kills", "expected"),
    [
        pytest.param([], 60.0, id="an agent that was never killed has the first time"),
        pytest.param([NOW], 120.0, id="one kill doubles the time"),
        pytest.param([NOW - 900.0, NOW - 300.0], 240.0, id="each kill doubles the time"),
        pytest.param([NOW] * 40, 960.0, id="the time is bounded"),
        pytest.param([NOW - KILL_COUNTS_S], 60.0, id="a kill of an hour ago does not count"),
    ],
)
def test_an_agents_time_to_answer(kills: list[float], expected: float) -> None:
    assert patience_s(60.0, kills, NOW) == expected
