"""The cause of a missing answer of control."""

import pytest

from hostelry.dataplane.control_calls import why_unanswered
from hostelry.dataplane.http.reply import (
    BrokenError,
    ConnectError,
    ControlAwayError,
    DeadlineError,
    UpstreamError,
)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        pytest.param(ConnectError("refused"), "is restarting", id="no connection"),
        pytest.param(DeadlineError("late"), "did not answer within 55 s", id="no answer in time"),
        pytest.param(BrokenError("reset"), "may have carried the call out", id="no whole answer"),
        pytest.param(ControlAwayError("a is down, b is down"), "b is down", id="of several none"),
    ],
)
def test_the_cause_of_a_missing_answer_is_named(error: UpstreamError, message: str) -> None:
    assert message in why_unanswered(error, 55.0)
