import pytest

from hostelry.base.errors import TerminalError
from hostelry_lab.catalogue import DRILLS, EVERYTHING, choose_drills
from hostelry_lab.drill_text import outcome_lines, table_lines
from hostelry_lab.outcome import DrillOutcome, ServedCalls

SERVED = ServedCalls(
    num_calls=90,
    in_flight=4,
    errors={"ModelError": 2, "ServiceUnavailable": 1},
    served_after_s=0.25,
    slowest_s=1.5,
)
GOOD = DrillOutcome(
    drill="copy-kill", target="t", served=SERVED, detected_s=0.1, back_s=2.0, kept="1 of 2 went on"
)
BAD = DrillOutcome(drill="copy-hang", target="t", lost=("copy c-1",), late=("seen after 6 s",))
NOT_RUN = DrillOutcome(drill="disk-full", target="t", not_run="the disk is shared")


def test_a_drill_is_printed_with_its_measurements() -> None:
    text = "\n".join(outcome_lines(GOOD))
    assert text.startswith("copy-kill: PASS")
    for text in ("90 calls", "4 of them in flight", "2 ModelError, 1 ServiceUnavailable",
                 "seen      0.10 s", "began 0.25 s after", "back      2.00 s",
                 "nothing lost; 1 of 2 went on"):  # fmt: skip
        assert text in text


def test_a_drill_that_failed_names_what_it_missed() -> None:
    lines = outcome_lines(BAD)
    assert lines[0] == "copy-hang: FAIL"
    assert lines[-1] == "  MISSED    seen after 6 s"
    assert outcome_lines(NOT_RUN)[-1] == "  not run   the disk is shared"


def test_the_table_has_a_line_a_drill() -> None:
    heading, *rows = table_lines([GOOD, BAD, NOT_RUN])
    assert heading.split() == [
        *("drill", "in", "flight", "errors", "seen", "served", "back", "lost", "p99")
    ]
    assert [row.split()[0] for row in rows] == ["copy-kill", "copy-hang", "disk-full"]
    assert [row.rpartition("  ")[2] for row in rows] == ["PASS", "FAIL", "NOT RUN"]


def test_drills_are_chosen_by_name() -> None:
    assert choose_drills(EVERYTHING) == DRILLS
    assert [it.name for it in choose_drills("agent-kill")] == ["agent-kill"]
    with pytest.raises(TerminalError, match="no drill power-cut"):
        choose_drills("power-cut")
