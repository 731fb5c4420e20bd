"""Reports of invocations to the audit trail: none is lost unseen, and none comes twice."""

import asyncio
from collections.abc import Sequence

import msgspec
from tests.cases import case, cases
from tests.unit.audit.samples import root

from hostelry.audit.invocation import MAX_NOTES, InvocationNote, InvocationReport
from hostelry.base.clock import ManualClock
from hostelry.base.http import HttpRequest
from hostelry.dataplane.fake import FakeReplyConnection, FakeUpstream
from hostelry.dataplane.invocation_audit import (
    InvocationAudit,
    InvocationBacklog,
    find_endpoint,
    find_operation,
)
from hostelry.http1.reply import ConnectError, Reply
from hostelry.http1.upstream import Timeouts


class Control(FakeUpstream):
    """Answers with these statuses in turn, then with 204. None means that control is away."""

    def __init__(self, *statuses: int | None) -> None:
        super().__init__()
        self.statuses = list(statuses)
        self.reports: list[InvocationReport] = []

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        assert b"POST /internal/audit/invocations " in parts[0]
        assert b"X-Hostelry-Key: secret" in parts[0]
        status = self.statuses.pop(0) if self.statuses else 204
        if status is None:
            raise ConnectError("refused")
        self.reports.append(msgspec.msgpack.decode(parts[1], type=InvocationReport))
        reply = Reply(FakeReplyConnection())
        reply.set_head(status, {})
        reply.end(reusable=True)
        return reply


def note(number: int) -> InvocationNote:
    return InvocationNote(
        at=1.0,
        request_id=f"r{number}",
        event_id=f"e{number}",
        caller=root("111122223333"),
        account="111122223333",
        region="us-west-2",
        operation="InvokeEndpoint",
        status=200,
    )


def reports_after(
    control: Control, backlog: InvocationBacklog, sends: int
) -> list[tuple[int, int, int]]:
    """Sequence, number of notes and of losses of each report that control got."""
    audit = InvocationAudit(backlog, control, "http://c:1", "secret", ManualClock())

    async def main() -> None:
        for _ in range(sends):
            await audit.finish()

    asyncio.run(main())
    return [(it.sequence, len(it.notes), it.num_lost) for it in control.reports]


@cases(
    "statuses, notes, found",
    case("control takes all", [], 3, [(1, 3, 0)]),
    case("none", [], 0, []),
    case("many go in parts", [], MAX_NOTES + 5, [(1, MAX_NOTES, 0), (2, 5, 0)]),
    case("control is away at first", [None], 3, [(1, 3, 0)]),
    case("its disk is full at first", [507], 3, [(1, 3, 0), (1, 3, 0)]),
    case("it refuses the report", [400], 3, [(1, 3, 0), (2, 0, 3)]),
    case("it refuses all", [400, 400], 3, [(1, 3, 0), (2, 0, 3)]),
    case("more than wait are counted", [], 2007, [(1, 1000, 7), (2, 1000, 0)]),
)  # fmt: skip
def test_reports_reach_control(
    statuses: Sequence[int | None], notes: int, found: list[tuple[int, int, int]]
) -> None:
    backlog = InvocationBacklog("gateway-1", 1.0, max_waiting=2000)
    for number in range(notes):
        backlog.add(note(number))
    assert reports_after(Control(*statuses), backlog, 2) == found


def test_notes_keep_their_order_and_their_ids() -> None:
    backlog, control = InvocationBacklog("gateway-1", 1.0), Control(None)
    for number in range(3):
        backlog.add(note(number))
    reports_after(control, backlog, 1)
    assert control.reports == []
    backlog.add(note(3))
    reports_after(control, backlog, 1)
    assert [[it.event_id for it in report.notes] for report in control.reports] == [
        ["e0", "e1", "e2"],
        ["e3"],
    ]


@cases(
    "path, operation, endpoint",
    case("asynchronous", "/endpoints/e/async-invocations", "InvokeEndpointAsync", "e"),
    case("a call that was refused early", "/endpoints/e/invocations", "InvokeEndpoint", "e"),
    case("a file of OpenAI's API", "/v1/files", "/v1/files", ""),
)  # fmt: skip
def test_a_request_without_a_trace_has_its_operation(
    path: str, operation: str, endpoint: str
) -> None:
    assert find_operation(HttpRequest("POST", path)) == operation
    assert find_endpoint(path) == endpoint
