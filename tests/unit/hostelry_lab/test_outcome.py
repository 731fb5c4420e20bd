from tests.cases import case, cases

from hostelry_lab.call import OK, LoadCall
from hostelry_lab.outcome import DrillLimits, DrillOutcome, ServedCalls, judge, served_calls

FAULT_AT = 100.0


def call(began_s: float, took_s: float, outcome: str = OK) -> LoadCall:
    """A call that began so long after the fault."""
    began_at = FAULT_AT + began_s
    return LoadCall(began_at=began_at, ended_at=began_at + took_s, outcome=outcome)


@cases(
    "calls, expected",
    case(
        "calls that ended before the fault do not count, failed ones neither",
        [call(-5, 1), call(-4, 1, "ModelError")],
        ServedCalls(num_calls=0, in_flight=0, errors={}, served_after_s=0, slowest_s=0),
    ),
    case(
        "one that was under way and one that came later",
        [call(-1, 3), call(0.5, 1)],
        ServedCalls(num_calls=2, in_flight=1, errors={}, served_after_s=0, slowest_s=3),
    ),
    case(
        "one that the fault took with it did not begin after the fault",
        [call(-1, 9, "ModelError"), call(1, 1)],
        ServedCalls(
            num_calls=2, in_flight=1, errors={"ModelError": 1}, served_after_s=0, slowest_s=1
        ),
    ),
    case(
        "the last call to fail counts by its beginning, not by its end",
        [call(2, 9, "B"), call(1, 1, "A"), call(0, 1, "A"), call(3, 1)],
        ServedCalls(
            num_calls=4, in_flight=1, errors={"A": 2, "B": 1}, served_after_s=2, slowest_s=1
        ),
    ),
)
def test_what_the_calls_say(calls: list[LoadCall], expected: ServedCalls) -> None:
    assert served_calls(calls, FAULT_AT) == expected


def summary(served_after_s: float = 0.0, **errors: int) -> ServedCalls:
    return ServedCalls(
        num_calls=9, in_flight=4, errors=errors, served_after_s=served_after_s, slowest_s=0.1
    )


LIMITS = DrillLimits(detected_s=1.0, back_s=5.0, all_served_s=1.0, errors=frozenset({"ModelError"}))


@cases(
    "outcome, missed, late",
    case(
        "every target met to the second",
        DrillOutcome(
            drill="d", target="t", served=summary(1.0, ModelError=3), detected_s=1, back_s=5
        ),
        [],
        [],
    ),
    case(
        "late",
        DrillOutcome(drill="d", target="t", served=summary(), detected_s=1.5, back_s=6),
        [],
        ["seen after 1.50 s", "back after 6.00 s"],
    ),
    case(
        "never",
        DrillOutcome(drill="d", target="t", served=summary()),
        ["seen: never", "back: never"],
        [],
    ),
    case(
        "an error that no client should see",
        DrillOutcome(
            drill="d", target="t", served=summary(0, InternalFailure=1), detected_s=0, back_s=0
        ),
        ["InternalFailure"],
        [],
    ),
    case(
        "errors that go on for too long",
        DrillOutcome(
            drill="d", target="t", served=summary(3, ModelError=1), detected_s=0, back_s=0
        ),
        [],
        ["calls failed that began 3.00 s after"],
    ),
    case(
        "something lost",
        DrillOutcome(
            drill="d", target="t", served=summary(), detected_s=0, back_s=0, lost=("copy c",)
        ),
        ["lost: copy c"],
        [],
    ),
    case(
        "what the drill found itself stays",
        DrillOutcome(
            drill="d", target="t", served=summary(), detected_s=0, back_s=0, missed=("no memory",)
        ),
        ["no memory"],
        [],
    ),
)
def test_an_outcome_is_judged_by_its_targets(
    outcome: DrillOutcome, missed: list[str], late: list[str]
) -> None:
    found = judge(outcome, LIMITS)
    assert len(found.missed) == len(missed)
    assert all(text in found_text for text, found_text in zip(missed, found.missed, strict=True))
    assert all(text in found_text for text, found_text in zip(late, found.late, strict=True))
    assert found.verdict == ("FAIL" if missed or late else "PASS")


def test_a_drill_that_was_not_run_did_not_pass() -> None:
    outcome = DrillOutcome(drill="d", target="t", not_run="no disk of its own")
    assert (outcome.passed, outcome.verdict) == (False, "NOT RUN")
