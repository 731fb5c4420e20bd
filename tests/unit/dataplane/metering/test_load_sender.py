"""Load reports over HTTP are repeated until control takes them, or dropped if it never will."""

import asyncio
from collections.abc import Callable, Iterator

import msgspec
from tests.cases import case, cases
from tests.unit.metrics.sagemaker.load_sample import CHAT

from hostelry.base.clock import ManualClock
from hostelry.dataplane.fake import FakeReplyConnection, FakeUpstream
from hostelry.dataplane.metering.load_sender import LoadBacklog, LoadSender
from hostelry.dataplane.metering.meter import Meter
from hostelry.domain.load import LoadReport
from hostelry.http1.reply import ConnectError, Reply
from hostelry.http1.upstream import Timeouts

SECOND_NS = 1_000_000_000


class Control(FakeUpstream):
    """Answers with these statuses in turn. None means that control is down."""

    def __init__(self, *statuses: int | None) -> None:
        super().__init__()
        self.statuses = list(statuses)
        self.reported: list[LoadReport] = []
        self.head = b""

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        status = self.statuses.pop(0) if self.statuses else 204
        if status is None:
            raise ConnectError("refused")
        self.head = parts[0]
        self.reported.append(msgspec.json.decode(parts[1], type=LoadReport))
        reply = Reply(FakeReplyConnection())
        reply.set_head(status, {})
        reply.end(reusable=True)
        return reply


class Worker:
    """A sender whose clocks are one, for a number of seconds."""

    def __init__(self, control: Control) -> None:
        self.clock = ManualClock(1_700_000_000.0)
        self.meter = Meter(self.clock.now, lambda: int(self.clock.now() * SECOND_NS))
        backlog = LoadBacklog("gateway-1", self.clock.now())
        self.sender = LoadSender(self.meter, backlog, control, "http://c:1", "key", self.clock)

    def run(self, requests: Iterator[int], until: Callable[[], bool]) -> None:
        """Let `count` requests come each second, until `condition` holds."""

        async def main() -> None:
            running = asyncio.create_task(self.sender.run())
            for count in requests:
                for _ in range(count):
                    self.meter.begin(CHAT).end()
                await asyncio.sleep(0)
                if until():
                    break
            running.cancel()
            await self.sender.finish()

        asyncio.run(main())


@cases(
    "statuses, sequences, arrivals",
    case("each second is reported once", [204, 204], [1, 2], 10),
    case("what control was away for is reported later", [None, 204], [1, 2], 10),
    case("what it could not take is reported again", [500, 204], [1, 1, 2], 10),
    case("what it refuses is not reported again", [400], [1, 2], 10),
)
def test_control_hears_of_every_request(
    statuses: list[int | None], sequences: list[int], arrivals: int
) -> None:
    control = Control(*statuses)
    worker = Worker(control)
    worker.run(iter([0, 3, 3, 4]), lambda: False)
    reported = {it.sequence: it for it in control.reported}
    assert [it.sequence for it in control.reported][: len(sequences)] == sequences
    assert sum(it.arrivals for one in reported.values() for it in one.seconds) == arrivals
    assert b"X-Hostelry-Key: key\r\n" in control.head
    assert control.reported[-1].worker == "gateway-1"


async def test_a_process_without_requests_is_silent_and_reports_at_once_when_one_comes() -> None:
    control = Control()
    worker = Worker(control)
    running = asyncio.create_task(worker.sender.run())
    for _ in range(5):
        await asyncio.sleep(0)
    assert [it.idle_s for it in control.reported] == [5.0]
    worker.clock.advance(3.25)
    worker.meter.begin(CHAT)
    for _ in range(20):
        await asyncio.sleep(0)
    running.cancel()
    idle, begun, load = control.reported[:3]
    assert (begun.idle_s, begun.seconds, begun.through) == (0.0, (), idle.through + 3)
    assert (load.idle_s, load.first) == (0.0, begun.through + 1)
    assert load.seconds[0].arrivals == 1
