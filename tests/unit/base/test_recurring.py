import asyncio
import logging

import pytest
from tests.cases import case, cases

from hostelry.base.clock import ManualClock
from hostelry.base.concurrency import run_again, run_until_done
from hostelry.base.errors import RetryableError


@cases(
    "fault",
    case("a defect", ValueError("a defect")),
    case("a full disk", RetryableError("the disk is full")),
    case("an end", None),
)
def test_work_that_ends_or_fails_is_run_again(
    fault: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    began: list[float] = []
    clock = ManualClock()

    async def run() -> None:
        began.append(clock.now())
        if len(began) == 3:
            raise asyncio.CancelledError
        if fault is not None:
            raise fault

    with caplog.at_level(logging.INFO), pytest.raises(asyncio.CancelledError):
        asyncio.run(run_again("the part", run, 1.0, clock))
    assert [it - began[0] for it in began] == [0.0, 1.0, 2.0]
    assert ("the part" in caplog.text) is (fault is not None)


def test_a_step_that_fails_is_tried_until_it_does_not(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(0.0)
    tried: list[float] = []

    async def step() -> None:
        tried.append(clock.now())
        if len(tried) < 3:
            raise RetryableError("busy")

    with caplog.at_level(logging.INFO):
        asyncio.run(run_until_done("the step", step, 2.0, clock))
    assert tried == [0.0, 2.0, 4.0]
    assert caplog.text.count("the step: will be tried again: busy") == 2
