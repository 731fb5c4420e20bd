"""Reports of data capture over HTTP: each counted once, kept while control is down."""

import asyncio
import logging

import msgspec
import pytest
from tests.cases import case, cases
from tests.unit.dataplane.capture.capture_sample import AT, KEY

from hostelry.base.clock import ManualClock
from hostelry.dataplane.capture.report_sender import CaptureReportSender
from hostelry.dataplane.fake import FakeReplyConnection, FakeUpstream
from hostelry.domain.data_capture import CaptureCounts, CaptureReport
from hostelry.domain.load import LoadKey
from hostelry.http1.reply import ConnectError, Reply
from hostelry.http1.upstream import Timeouts


class Control(FakeUpstream):
    """Answers with these statuses in turn. None means that control is down."""

    def __init__(self, *statuses: int | None) -> None:
        super().__init__()
        self.statuses = list(statuses)
        self.reports: list[CaptureReport] = []

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        assert b"POST /internal/capture " in parts[0]
        assert b"X-Hostelry-Key: secret" in parts[0]
        status = self.statuses.pop(0)
        if status is None:
            raise ConnectError("refused")
        self.reports.append(msgspec.json.decode(parts[1], type=CaptureReport))
        reply = Reply(FakeReplyConnection())
        reply.set_head(status, {})
        reply.end(reusable=True)
        return reply


def reported(control: Control, *counted: CaptureCounts | None) -> list[tuple[int, int, int]]:
    """Number, captured and dropped of each report that control got, after a `send` per count."""
    counts = list(counted)

    def take() -> dict[LoadKey, CaptureCounts]:
        now = counts.pop(0)
        return {} if now is None else {KEY: now}

    sender = CaptureReportSender(
        "gateway-1", take, control, "http://c:1", "secret", ManualClock(AT)
    )

    async def main() -> None:
        for _ in counted:
            await sender.send()

    asyncio.run(main())
    found = [(it.sequence, it.variants[0].counts) for it in control.reports]
    return [(number, it.captured, it.dropped) for number, it in found]


def one(captured: int = 1, dropped: int = 0, cause: str | None = None) -> CaptureCounts:
    return CaptureCounts(captured=captured, dropped=dropped, drop_cause=cause)


@cases(
    "statuses, counted, seen",
    case("one after another", (204, 204), (one(), one(2)), [(1, 1, 0), (2, 2, 0)]),
    case("nothing: no report", (204,), (one(), None), [(1, 1, 0)]),
    case(
        "control down: the same report, then what came meanwhile",
        (None, 204, 204),
        (one(), one(2), one(4)),
        [(1, 1, 0), (2, 6, 0)],
    ),
    case("a failure of control", (500, 204), (one(), None), [(1, 1, 0), (1, 1, 0)]),
    case("refused: dropped", (400, 204), (one(), one(2)), [(1, 1, 0), (2, 2, 0)]),
)
def test_reports(
    statuses: tuple[int | None, ...],
    counted: tuple[CaptureCounts | None, ...],
    seen: list[tuple[int, int, int]],
) -> None:
    assert reported(Control(*statuses), *counted) == seen


def test_a_cause_of_drops_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    full, ok = one(0, 5, "the disk is full"), one(3)
    with caplog.at_level(logging.WARNING):
        reported(Control(*[204] * 5), full, full, ok, full, one(0, 1, "another"))
    causes = [it.getMessage().rpartition(": ")[2] for it in caplog.records]
    assert causes == ["the disk is full", "the disk is full", "another"]
