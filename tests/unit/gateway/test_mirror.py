"""The mirror: requests that it sends to a shadow or drops, and its counts."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest
from tests.cases import case, cases
from tests.unit.dataplane.routes_sample import COPIES, HERE

from hostelry.dataplane.fake import FakeReplyConnection
from hostelry.dataplane.metering.meter import Meter
from hostelry.dataplane.route_table import Shadow
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.load import LoadKey, SecondLoad
from hostelry.domain.routes import CopyRoute
from hostelry.gateway.mirror import MirrorLimits, ShadowMirror
from hostelry.http1.reply import BrokenError, ConnectError, Reply
from hostelry.http1.upstream import Timeouts

KEY = LoadKey(scope=HERE, endpoint_name="e", variant_name="shadow")
TIMES = Timeouts(total_s=1.0)
BODY = b"0123456789"
ONE = COPIES[:1]
Answer = Callable[[Reply], Awaitable[None]]


async def ok(reply: Reply) -> None:
    reply.set_head(200, {})
    reply.add_chunk(b"12345")
    reply.end(reusable=True)


async def fails(reply: Reply) -> None:
    reply.set_head(500, {})
    reply.end(reusable=True)


async def hangs(reply: Reply) -> None:
    await asyncio.Event().wait()


async def ends(reply: Reply) -> None:
    reply.fail(BrokenError("closed"))


async def breaks(reply: Reply) -> None:
    reply.set_head(200, {})
    reply.add_chunk(b"1")
    reply.fail(BrokenError("gone"))


async def refuses(reply: Reply) -> None:
    raise ConnectError("no")


async def floods(reply: Reply) -> None:
    reply.set_head(200, {})
    for _ in range(10):
        reply.add_chunk(b"x" * 1000)
    reply.end(reusable=True)


class Tap:
    """A tap that records one answer."""

    def __init__(self) -> None:
        self.received: list[object] = []

    def add(self, chunk: bytes) -> None:
        self.received.append(chunk)

    def finish(self, answered: Mapping[str, str]) -> None:
        self.received.append("whole")

    def close(self) -> None:
        self.received.append("closed")


class Rig:
    """A mirror whose copies answer as `answer` says, with a manual clock and no sleep."""

    def __init__(
        self,
        answer: Answer,
        copies: Sequence[CopyRoute] = ONE,
        delay_s: float = 0.0,
        *,
        is_kept: bool = False,
    ) -> None:
        self.answer = answer
        self.is_kept = is_kept  # whether a connection to a copy is there already
        self._answers: set[asyncio.Task[None]] = set()
        self.now_s = 50.0
        self.sent: list[tuple[str, tuple[bytes, bytes]]] = []
        self.lines: list[FakeReplyConnection] = []
        self.slept_s = 0.0
        self.meter = Meter(lambda: self.now_s, lambda: int(self.now_s * 1e9))
        limits = MirrorLimits(
            delay_s=delay_s,
            max_in_flight=2,
            max_in_flight_all=3,
            max_bytes=35,
            read_bytes_per_s=1000.0,
            max_answer_bytes=8000,
            whole=TIMES,
            stream=TIMES,
        )
        self.mirror = ShadowMirror(
            self, self.meter, limits, lambda: 0.0, lambda: self.now_s, self._sleep
        )
        self.shadow = Shadow(
            key=KEY,
            share=1.0,
            routing=RoutingStrategy.LEAST_OUTSTANDING_REQUESTS,
            copies=tuple(copies),
        )

    def send_now(
        self, address: str, parts: tuple[bytes, bytes], timeouts: Timeouts
    ) -> Reply | None:
        if not self.is_kept:
            return None
        self.sent.append((address, parts))
        self.lines.append(FakeReplyConnection())
        reply = Reply(self.lines[-1])
        self._answers.add(asyncio.ensure_future(self._answer_kept(reply, self.lines[-1])))
        return reply

    async def _answer_kept(self, reply: Reply, line: FakeReplyConnection) -> None:
        """A copy that refuses had closed its connection before it read anything."""
        try:
            await self.answer(reply)
        except ConnectError:
            line.may_repeat = True
            reply.fail(BrokenError("closed"))

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        self.sent.append((address, parts))
        self.lines.append(FakeReplyConnection())
        reply = Reply(self.lines[-1])
        await self.answer(reply)
        return reply

    def offer(
        self,
        num: int = 1,
        body: bytes = BODY,
        taps: Sequence[Tap] = (),
        *,
        is_stream: bool = False,
    ) -> None:
        for _ in range(num):
            self.mirror.offer(self.shadow, b"POST / \r\n", body, taps, is_stream=is_stream)

    async def _sleep(self, duration_s: float) -> None:
        self.slept_s += duration_s

    def load(self) -> SecondLoad:
        """The counts so far."""
        self.now_s += 1
        (closed,) = self.meter.take_closed()
        (found,) = closed.loads
        assert found.key == KEY
        return found


async def let_run() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("is_kept", [False, True], ids=["fresh", "kept"])
@cases(
    "answer, is_stream, counted",
    case("an answer", ok, False, {"finished": 1, "bytes_out": 5}),
    case("a stream", ok, True, {"finished": 1, "bytes_out": 5}),
    case("an error", fails, False, {"errors_5xx": 1, "model_errors": 1}),
    case("an error of a stream", fails, True, {"errors_5xx": 1, "model_errors": 1}),
    case("no connection", refuses, False, {"errors_5xx": 1, "model_errors": 1}),
    case("a broken answer", breaks, False, {"errors_5xx": 1, "model_errors": 1}),
    case("a broken stream", breaks, True, {"broken_streams": 1, "errors_5xx": 0}),
    case("no answer", ends, False, {"errors_5xx": 1, "model_errors": 1}),
    case("no stream", ends, True, {"errors_5xx": 1, "broken_streams": 0}),
    case("an answer too large", floods, False, {"errors_5xx": 1, "bytes_out": 0}),
    case("a large stream", floods, True, {"errors_5xx": 0, "bytes_out": 10_000}),
)
async def test_an_outcome_is_counted_for_the_shadow(
    answer: Answer, is_stream: bool, counted: dict[str, int], is_kept: bool
) -> None:
    rig = Rig(answer, is_kept=is_kept)
    rig.offer(is_stream=is_stream)
    assert not rig.sent, "it is sent once the caller waits"
    await let_run()
    num_sent = 2 if is_kept and answer is refuses else 1  # unread requests are sent again
    assert rig.sent == [(ONE[0].address, (b"POST / \r\n\r\n", BODY))] * num_sent
    assert rig.sent[0][1][1] is BODY, "a body is shared"
    load = rig.load()
    assert (load.arrivals, load.finished, load.dropped, load.bytes_in) == (1, 1, 0, len(BODY))
    assert {name: getattr(load, name) for name in counted} == counted
    assert rig.mirror.num_in_flight == 0
    assert all(len(line.released) == 1 for line in rig.lines[: answer is not refuses])


@pytest.mark.parametrize("is_kept", [False, True], ids=["fresh", "kept"])
@cases(
    "answer, is_stream, received",
    case("an answer", ok, False, [b"12345", "whole", "closed"]),
    case("a stream", ok, True, [b"12345", "whole", "closed"]),
    case("nothing of an error", fails, False, ["closed"]),
    case("nothing without an answer", refuses, False, ["closed"]),
    case("what came of a broken stream", breaks, True, [b"1", "closed"]),
)
async def test_taps_get_an_answer_as_it_is_read(
    answer: Answer, is_stream: bool, received: list[object], is_kept: bool
) -> None:
    rig, taps = Rig(answer, is_kept=is_kept), (Tap(), Tap())
    rig.offer(taps=taps, is_stream=is_stream)
    await let_run()
    assert [it.received for it in taps] == [received, received]


def test_taps_receive_nothing_of_a_request_that_is_dropped() -> None:
    rig, tap = Rig(ok, ()), Tap()
    rig.offer(taps=(tap,))
    assert (rig.load().dropped, tap.received) == (1, [])


@pytest.mark.parametrize("is_kept", [False, True], ids=["fresh", "kept"])
@cases(
    "copies, body, num_sent",
    case("no copy", (), BODY, 0),
    case("as many as one copy takes", ONE, BODY, 2),
    case("as many as the worker takes", COPIES, b"", 3),
    case("as many bytes as the worker takes", ONE, b"x" * 20, 1),
    case("more bytes than the worker takes", ONE, b"x" * 36, 0),
)
async def test_what_a_hanging_shadow_cannot_take_is_dropped_and_counted(
    copies: Sequence[CopyRoute], body: bytes, num_sent: int, is_kept: bool
) -> None:
    rig = Rig(hangs, copies, is_kept=is_kept)
    rig.offer(10, body)
    await let_run()
    assert len(rig.sent) == num_sent
    await rig.mirror.close()
    rig.answer = ok
    rig.sent.clear()
    rig.offer(1, b"")
    await let_run()
    assert len(rig.sent) == min(1, len(copies)), "there is room again"
    assert rig.load().dropped == 10 - num_sent + (not copies)


async def test_what_is_not_sent_yet_takes_up_room_until_the_end() -> None:
    rig = Rig(ok, delay_s=1000.0)
    rig.offer(3)
    await let_run()
    assert (rig.mirror.num_in_flight, len(rig.sent)) == (2, 0)
    await rig.mirror.close()
    assert rig.mirror.num_in_flight == 0
    rig.offer(3)
    assert rig.mirror.num_in_flight == 2, "there is room again"
    await rig.mirror.close()
    assert rig.load().dropped == 2


async def test_a_copy_that_refuses_is_left_alone_for_a_while() -> None:
    rig = Rig(refuses)
    for _ in range(5):
        rig.offer()
        await let_run()
    assert len(rig.sent) == 1
    rig.answer = ok
    rig.now_s += 1.0
    for _ in range(3):
        rig.offer()
        await let_run()
    assert len(rig.sent) == 4


async def test_a_shadow_that_floods_is_read_at_the_rate() -> None:
    rig = Rig(floods)
    rig.offer(is_stream=True)
    await let_run()
    # Each wait is for all that was read beyond the burst, as the clock stands still.
    assert rig.slept_s == pytest.approx(sum(number - 0.5 for number in range(1, 11)))


async def test_an_answer_that_is_whole_at_once_counts_for_the_rate() -> None:
    rig = Rig(ok, is_kept=True)
    for _ in range(4):  # each counts as 512 bytes, of 1000 a second
        rig.offer()
        await let_run()
    # The first ends just beyond the burst, and those after it wait for all beyond it.
    assert rig.slept_s == pytest.approx(sum(number * 0.512 - 0.5 for number in (2, 3, 4)))


async def test_a_defect_is_logged_and_takes_nothing_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def defect(reply: Reply) -> None:
        raise ZeroDivisionError

    rig = Rig(defect)
    rig.offer()
    await let_run()
    assert rig.mirror.num_in_flight == 0
    assert "a mirrored request failed" in caplog.text
    assert rig.load().finished == 1
