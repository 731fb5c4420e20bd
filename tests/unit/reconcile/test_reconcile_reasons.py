from tests.cases import case, cases

from hostelry.domain.trouble import SEE_LOG
from hostelry.reconcile.plan.status import (
    MAX_REASON_CHARS,
    build_failure_reason,
    take_last_lines,
)


@cases(
    "cause, log_tail, expected",
    case("no server ran", "no such key", "", "no such key"),
    case(
        "the agent's own lines only repeat the cause",
        "no such key",
        "[agent] downloading s3://b/k\n[agent] failed: no such key",
        "no such key",
    ),
    case(
        "what the server said last",
        "exited with code 1.",
        "[agent] starting\nOPTION_DTYPE is 'x'\n[agent] exited with code 1.",
        "exited with code 1. Last log lines: OPTION_DTYPE is 'x'",
    ),
    case("in its own order", "died.", "one\n\n  two  \n", "died. Last log lines: one\ntwo"),
)
def test_a_failure_reason_is_the_cause_and_the_servers_last_lines(
    cause: str, log_tail: str, expected: str
) -> None:
    assert build_failure_reason(cause, log_tail) == expected


def test_a_reason_never_exceeds_what_the_api_allows_and_cuts_between_lines() -> None:
    reason = build_failure_reason("cause " * 1000, "\n".join(f"line {n}" for n in range(1000)))
    assert len(reason) <= MAX_REASON_CHARS
    assert reason.endswith("line 998\nline 999")
    assert reason.split("Last log lines: ")[1].startswith("line ")


@cases(
    "cause, log_tail",
    case("no line", "died", ""),
    case("lines", "died.", "one\ntwo"),
    case("a long cause", "cause " * 1000, ""),
    case("a long cause, and lines", "cause " * 1000, "line\n" * 1000),
)
def test_a_reason_names_the_log_stream_within_the_limit(cause: str, log_tail: str) -> None:
    where = f" See the log stream {'v' * 63}/i-1/c-1 of group /aws/sagemaker/Endpoints/{'e' * 63}."
    reason = build_failure_reason(cause, log_tail, where)
    assert len(reason) <= MAX_REASON_CHARS
    assert where in reason
    assert SEE_LOG.sub("", reason).startswith("died." if cause.startswith("died") else "cause ")


def test_of_a_single_line_that_is_too_long_its_end_is_kept() -> None:
    assert take_last_lines(["short", "x" * 50 + "end"], 10) == "x" * 7 + "end"
