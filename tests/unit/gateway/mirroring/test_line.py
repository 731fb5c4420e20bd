"""The mirror process's end of a line: requests at their time, and pairs of answers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.dataplane.capture.capture_sample import AT, CAPTURE, all_records, spool
from tests.unit.dataplane.routes_sample import HERE, variant
from tests.unit.gateway.mirroring.mirror_sample import KEY, asked

from hostelry.base.clock import ManualClock
from hostelry.dataplane.capture.capture import RequestCapture
from hostelry.dataplane.capture.spool import SpoolLimits
from hostelry.dataplane.fake import FakeReplyConnection, FakeTransport
from hostelry.dataplane.metering.meter import Meter
from hostelry.dataplane.routes import FixedRoutes
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.load import SecondLoad
from hostelry.domain.routes import CopyRoute, EndpointRoute, RouteSnapshot, ShadowRoute
from hostelry.gateway.answer_pairs import AnswerPairs, PairLimits
from hostelry.gateway.mirror import MirrorLimits, ShadowMirror
from hostelry.gateway.mirroring import line as line_module
from hostelry.gateway.mirroring.line import MirrorEnd, MirrorIntake, MirrorLine
from hostelry.gateway.mirroring.messages import (
    Message,
    ProductionAnswer,
    frame_start,
)
from hostelry.gateway.mirroring.port import TapDefects
from hostelry.http1.reply import Reply
from hostelry.http1.upstream import Timeouts

TIMES = Timeouts(total_s=1.0)
NOISE = b"\xff" * 64


class Copy:
    """A shadow's copy that answers each request with `b"2"`, at once."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, bytes]] = []

    def send_now(self, address: str, parts: tuple[bytes, bytes], timeouts: Timeouts) -> None:
        return None

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        self.sent.append(parts)
        reply = Reply(FakeReplyConnection())
        reply.set_head(200, {})
        reply.add_chunk(b"2")
        reply.end(reusable=True)
        return reply


class Rig:
    """A mirror process without sockets."""

    def __init__(self, folder: Path, delay_s: float = 0.0) -> None:
        self.now_s = 50.0
        self.held: list[tuple[float, Callable[[], None]]] = []
        self.copy = Copy()
        self.meter = Meter(lambda: self.now_s, lambda: int(self.now_s * 1e9))
        route = ShadowRoute(
            name="shadow",
            share=0.5,
            routing=RoutingStrategy.RANDOM,
            copies=(CopyRoute(id="c-shadow", address="http://127.0.0.1:9"),),
            capture=CAPTURE,
        )
        endpoint = EndpointRoute(
            scope=HERE,
            name="e",
            takes_components=False,
            variants=(variant("v", 1.0),),
            shadow=route,
        )
        limits = MirrorLimits(delay_s=0.0, whole=TIMES, stream=TIMES)
        self.capture = RequestCapture(
            spool(folder, SpoolLimits(min_free_bytes=0)), lambda: 0.0, ManualClock(AT)
        )
        pairs = AnswerPairs(
            self.meter, lambda: self.now_s, PairLimits(), lambda _: asyncio.sleep(0)
        )
        copy: Any = self.copy
        mirror = ShadowMirror(copy, self.meter, limits, lambda: 0.0, lambda: self.now_s)
        self.end = MirrorEnd(
            routes=FixedRoutes(RouteSnapshot(version="v", endpoints=(endpoint,))),
            intake=MirrorIntake(mirror, self.capture, pairs),
            dropped=self.meter.count_dropped,
            defects=TapDefects(lambda: self.now_s),
            max_body_bytes=1000,
            now_s=lambda: self.now_s,
            call_later=lambda delay_s, call: self.held.append((self.now_s + delay_s, call)),
            delay_s=delay_s,
        )
        self.line, self.transport = self.connected()

    def connected(self) -> tuple[MirrorLine, FakeTransport]:
        """One more line."""
        line, transport = MirrorLine(self.end), FakeTransport()
        line.connection_made(transport)
        return line, transport

    def send(self, message: Message, body: bytes = b"") -> None:
        """A frame arrives on the first line."""
        self.line.data_received(frame_start(message, body) + body)

    async def at(self, now_s: float) -> None:
        """Move the time, and do everything that is due then."""
        self.now_s = now_s
        due = [it for it in self.held if it[0] <= now_s]
        self.held = [it for it in self.held if it[0] > now_s]
        for _, call in due:
            call()
        await let_run()

    def load(self) -> SecondLoad:
        """The counts so far."""
        self.now_s += 1
        (load,) = (load for span in self.meter.take_closed() for load in span.loads)
        assert load.key == KEY
        return load


async def let_run() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def ending(rig: Rig) -> AsyncIterator[Rig]:
    yield rig
    await rig.end.intake.close()


async def test_a_request_is_sent_and_its_answer_captured_under_its_event_id(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with ending(rig):
        rig.send(asked("event-7"), b"[1]")
        await let_run()
        await rig.capture.write()
    assert rig.copy.sent == [(b"POST / \r\n\r\n", b"[1]")], "the share is the worker's to decide"
    (record,) = all_records(tmp_path)
    assert (record.head.event_id, record.input, record.output) == ("event-7", b"[1]", b"2")
    load = rig.load()
    assert (load.arrivals, load.finished, load.dropped) == (1, 1, 0)


async def test_a_shadow_that_is_not_in_the_routes_gets_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with ending(rig):
        request = asked()
        request.shadow = ("111122223333", "us-west-2", "e", "gone")
        rig.send(request)
        await let_run()
    rig.now_s += 1
    (load,) = (load for span in rig.meter.take_closed() for load in span.loads)
    assert (load.key.variant_name, load.dropped, rig.copy.sent) == ("gone", 1, [])


async def test_requests_are_sent_as_far_apart_as_they_were_offered(tmp_path: Path) -> None:
    async with ending(Rig(tmp_path, delay_s=0.1)) as rig:
        for request_id, ago_s in (("old", 0.2), ("due", 0.1), ("young", 0.07)):
            rig.send(asked(request_id, offered_at_s=rig.now_s - ago_s), request_id.encode())
        await let_run()
        assert [body for _, body in rig.copy.sent] == [b"old", b"due"]
        await rig.at(50.029)
        assert len(rig.copy.sent) == 2
        await rig.at(50.031)
        assert [body for _, body in rig.copy.sent] == [b"old", b"due", b"young"]


@cases(
    "sent, counts",
    case("equal", [(True, b"2")], (1, 1, 1)),
    case("other", [(True, b"3")], (1, 0, 0)),
    case("production has failed", [(False, b"")], None),
    case("production's never comes", [], None),
    case("the first one counts", [(True, b"2"), (True, b"3")], (1, 1, 1)),
)
@pytest.mark.parametrize("is_first", [False, True], ids=["after the shadow's", "before it"])
async def test_answers_are_compared(
    tmp_path: Path,
    sent: list[tuple[bool, bytes]],
    counts: tuple[int, int, int] | None,
    is_first: bool,
) -> None:
    rig = Rig(tmp_path, delay_s=0.05)
    async with ending(rig):
        rig.send(asked(pair=7, offered_at_s=rig.now_s if is_first else 0.0))
        if not is_first:
            await let_run()
        for is_whole, body in sent:
            rig.send(ProductionAnswer(pair=7, is_whole=is_whole), body)
        await rig.at(50.1)
    divergence = rig.load().divergence
    assert (divergence.counts if divergence.pairs else None) == counts


async def test_open_pairs_are_bounded_and_end_with_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_module, "MAX_OPEN_PAIRS", 2)
    rig = Rig(tmp_path)
    async with ending(rig):
        for pair in (1, 2, 3):
            rig.send(asked(pair=pair))
        for pair in (1, 2):
            rig.send(ProductionAnswer(pair=pair, is_whole=True), b"2")
        rig.line.connection_lost(None)
        rig.send(ProductionAnswer(pair=3, is_whole=True), b"2")
        await let_run()
    load = rig.load()
    assert (load.finished, load.divergence.pairs) == (3, 1), "that of pair 2"


async def test_a_malformed_frame_ends_its_line_and_no_other(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with ending(rig):
        rig.send(asked("before"))
        other, transport = rig.connected()
        other.data_received(NOISE)
        assert (transport.closed, rig.transport.closed) == (True, False)
        rig.send(asked("after"))
        await let_run()
    assert len(rig.copy.sent) == 2


async def test_a_defect_costs_its_request_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(tmp_path)
    async with ending(rig):
        with monkeypatch.context() as patched:
            patched.setattr(rig.capture, "begin", lambda *_: 1 / 0)
            rig.send(asked())
        rig.send(asked())
        await let_run()
    assert (len(rig.copy.sent), rig.load().dropped, rig.transport.closed) == (1, 1, False)
    assert caplog.text.count("a tap of requests failed") == 1
