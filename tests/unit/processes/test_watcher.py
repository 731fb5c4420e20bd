import pytest

from hostelry.processes.watcher import FIRST_PAUSE_S, MOST_PAUSE_S, STEADY_S, next_pause_s


@pytest.mark.parametrize(
    ("last_s", "lived_s", "expected"),
    [
        pytest.param(FIRST_PAUSE_S, STEADY_S, FIRST_PAUSE_S, id="after a steady life at once"),
        pytest.param(8.0, STEADY_S + 1, FIRST_PAUSE_S, id="... also after quick deaths before"),
        pytest.param(0.1, 3.0, 0.2, id="a quick death doubles the pause"),
        pytest.param(50.0, 0.0, MOST_PAUSE_S, id="up to a minute"),
    ],
)
def test_the_pause_before_up_is_started_again(
    last_s: float, lived_s: float, expected: float
) -> None:
    assert next_pause_s(last_s, lived_s) == expected
