from typing import Any

import pytest

from hostelry.cli.status_text import experiment_lines

NOW = 1_700_000_000.0
ONE: dict[str, Any] = {
    "name": "trial",
    "status": "Running",
    "status_reason": None,
    "endpoint": "e",
    "production": "now",
    "shadow": "next",
    "percent": 50,
    "start_at": NOW - 60,
    "end_at": NOW + 7200,
    "is_deployed": True,
    "promotes": False,
    "deadline_at": None,
}


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        pytest.param({}, "ends in 2h", id="runs"),
        pytest.param(
            {"status": "Created", "start_at": NOW + 90}, "starts in 1m30s, ends in 2h", id="waits"
        ),
        pytest.param(
            {"status": "Starting", "deadline_at": NOW + 600},
            "the shadow comes up, given up in 10m00s; ends in 2h",
            id="starts",
        ),
        pytest.param(
            {"status": "Starting", "is_deployed": False}, "its endpoint is changed", id="begins"
        ),
        pytest.param({"status": "Updating"}, "its endpoint takes the update", id="updates"),
        pytest.param(
            {"status": "Stopping", "promotes": True}, "the shadow is promoted", id="promotes"
        ),
        pytest.param({"status": "Stopping"}, "the shadow is removed", id="stops"),
    ],
)
def test_a_line_shows_the_share_and_the_step(changes: dict[str, Any], step: str) -> None:
    line = experiment_lines([{**ONE, **changes}], NOW)[0]
    head = f"experiment trial  {changes.get('status', 'Running')}  endpoint e  50 % of now to next"
    assert line.startswith(f"{head}  {step}")


def test_only_what_is_not_over_of_the_endpoints_asked_for() -> None:
    over = [{**ONE, "status": it} for it in ("Completed", "Cancelled")]
    assert experiment_lines(over, NOW) == []
    assert experiment_lines([ONE], NOW, ["other"]) == []
    lines = experiment_lines([{**ONE, "status_reason": "why"}], NOW, ["e"])
    assert lines[1:] == ["  why", ""]
