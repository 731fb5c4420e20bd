"""The cause of a missing answer of control."""

from tests.cases import case, cases

from hostelry.dataplane.control_calls import why_unanswered
from hostelry.http1.reply import (
    BrokenError,
    ConnectError,
    ControlAwayError,
    DeadlineError,
    UpstreamError,
)


@cases(
    "error, message",
    case("no connection", ConnectError("refused"), "is restarting"),
    case("no answer in time", DeadlineError("late"), "did not answer within 55 s"),
    case("no whole answer", BrokenError("reset"), "may have carried the call out"),
    case("of several none", ControlAwayError("a is down, b is down"), "b is down"),
)
def test_the_cause_of_a_missing_answer_is_named(error: UpstreamError, message: str) -> None:
    assert message in why_unanswered(error, 55.0)
