"""Lines for data logs are kept in order while control is away, up to a limit."""

import asyncio

from hostelry.base.clock import ManualClock
from hostelry.base.errors import RetryableError
from hostelry.domain.log_source import DataLogReport
from hostelry.domain.scope import Scope
from hostelry.jobs.data_log import MAX_LINES, MAX_LINES_AT_ONCE, MAX_TEXT_CHARS, DataLog

SCOPE = Scope("123456789012", "us-west-2")


class Control:
    """Takes reports, or raises an error that a test sets."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.texts: list[str] = []
        self.fault: Exception | None = None

    async def take(self, report: DataLogReport) -> None:
        self.asked.append((report.sequence, len(report.lines)))
        if self.fault is not None:
            raise self.fault
        self.texts += [it.text for it in report.lines]


def filled(control: Control, count: int) -> DataLog:
    log = DataLog(control.take, ManualClock(5.0))
    for number in range(count):
        log.note(SCOPE, "e", "v", f"line {number}")
    return log


def test_lines_wait_while_control_is_down_and_come_once_in_order() -> None:
    control = Control()
    log = filled(control, MAX_LINES_AT_ONCE + 1)
    control.fault = RetryableError("down")
    asyncio.run(log.flush())
    log.note(SCOPE, "e", "v", "later")
    control.fault = None
    asyncio.run(log.flush())
    assert control.texts == [*(f"line {it}" for it in range(MAX_LINES_AT_ONCE + 1)), "later"]
    first = (1, MAX_LINES_AT_ONCE)
    assert control.asked == [first, first, (2, 2)], "the same report keeps its number"


def test_lines_for_which_there_is_no_room_are_counted() -> None:
    control = Control()
    log = filled(control, MAX_LINES + 3)
    asyncio.run(log.flush())
    log.note(SCOPE, "e", "v", "x" * 2 * MAX_TEXT_CHARS)
    log.note(SCOPE, "e", "v", "after")
    asyncio.run(log.flush())
    assert len(control.texts) == MAX_LINES + 2
    assert control.texts[-2] == "(3 lines are missing before this one) " + "x" * MAX_TEXT_CHARS
    assert control.texts[-1] == "after"
