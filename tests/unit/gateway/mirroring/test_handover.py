"""A worker's end of the line sends or drops requests, and nothing waits for it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from tests.cases import case, cases
from tests.unit.gateway.mirroring.mirror_sample import KEY, SHADOW, asked

from hostelry.domain.load import LoadKey
from hostelry.gateway.mirroring.handover import HandoverLimits, MirrorHandover
from hostelry.gateway.mirroring.messages import (
    FrameReader,
    Message,
    MirroredInvocation,
    ProductionAnswer,
)
from hostelry.gateway.mirroring.port import ShadowTurns

MANY_BYTES = b"x" * 3_000_000  # more than a socket takes at once


class Peer:
    """The mirror process as a worker sees it. `is_there`: whether it accepts connections."""

    def __init__(self, **limits: float) -> None:
        self.is_there = True
        self.num_tries = 0
        self.lines: list[socket.socket] = []
        self.readers: list[FrameReader] = []
        self.dropped: list[LoadKey] = []
        self.now_s = 50.0
        settings = {"batch_s": 0.0, "max_unsent": 4, "max_unsent_bytes": 7_000_000, **limits}
        given = msgspec.convert(settings, HandoverLimits)
        self.handover = MirrorHandover(
            self._connect,
            ShadowTurns(lambda: 0.5),
            self.dropped.append,
            lambda: self.now_s,
            given,
        )

    def _connect(self) -> socket.socket:
        self.num_tries += 1
        if not self.is_there:
            raise ConnectionRefusedError("no process")
        mine, other = socket.socketpair()
        mine.setblocking(False)
        other.setblocking(False)
        self.lines.append(other)
        self.readers.append(FrameReader(10_000_000))
        return mine

    def received(self) -> list[tuple[Message, bytes]]:
        """The frames on the newest line since the last call."""
        found: list[tuple[Message, bytes]] = []
        try:
            while data := self.lines[-1].recv(1 << 18):
                found += self.readers[-1].frames(data)
        except BlockingIOError:
            pass
        return found

    def ids(self) -> list[str]:
        """The requests since the last call."""
        return [it.request_id for it, _ in self.received() if isinstance(it, MirroredInvocation)]

    def close(self) -> None:
        for line in self.lines:
            line.close()


@asynccontextmanager
async def open_peer(**limits: float) -> AsyncIterator[Peer]:
    peer = Peer(**limits)
    yield peer
    await peer.handover.close()
    peer.close()


async def let_run() -> None:
    for _ in range(5):
        await asyncio.sleep(0.001)


def offer(peer: Peer, *request_ids: str, body: bytes = b"[1]") -> None:
    for request_id in request_ids:
        peer.handover.offer(SHADOW, asked(request_id), body)


async def test_requests_are_sent_together_once_the_caller_waits() -> None:
    async with open_peer() as peer:
        offer(peer, "a", "b")
        assert (peer.num_tries, peer.handover.num_in_flight) == (0, 2)
        await let_run()
        found = peer.received()
        assert [body for _, body in found] == [b"[1]", b"[1]"]
        assert [it.offered_at_s for it, _ in found if isinstance(it, MirroredInvocation)] == [
            50
        ] * 2
        assert peer.handover.num_in_flight == 0
    assert peer.dropped == []


async def test_without_a_process_requests_are_dropped_and_it_is_tried_again_later() -> None:
    async with open_peer() as peer:
        peer.is_there = False
        for request_id in ("a", "b"):
            offer(peer, request_id)
            await let_run()
        assert (peer.num_tries, peer.dropped) == (1, [KEY, KEY])
        peer.is_there = True
        peer.now_s += 0.25
        offer(peer, "c")
        await let_run()
        assert peer.ids() == ["c"]


async def test_a_line_that_breaks_costs_what_was_not_sent() -> None:
    async with open_peer() as peer:
        offer(peer, "a")
        await let_run()
        peer.lines[-1].close()
        offer(peer, "b", "c")
        await let_run()
        assert peer.dropped == [KEY, KEY]
        peer.now_s += 0.25
        offer(peer, "d")
        await let_run()
        assert (len(peer.lines), peer.ids()) == (2, ["d"])


async def test_a_process_that_hangs_is_sent_what_there_is_room_for_and_gets_all_of_it_later() -> (
    None
):
    async with open_peer() as peer:
        offer(peer, "a", "b", body=MANY_BYTES)
        await let_run()
        offer(peer, "c", "d", "e", "f", body=b"[1]")
        await let_run()
        assert peer.dropped == [KEY, KEY], "there is room for four requests"
        found: list[tuple[Message, bytes]] = []
        while len(found) < 4:
            found += peer.received()
            await let_run()
        assert [body for _, body in found] == [MANY_BYTES, MANY_BYTES, b"[1]", b"[1]"]
        assert peer.handover.num_in_flight == 0
        offer(peer, "g")
        await let_run()
        assert peer.ids() == ["g"]


@cases(
    "bodies, num_dropped",
    case("too many requests", [b""] * 6, 2),
    case("too many bytes", [MANY_BYTES] * 3, 1),
    case("a body that is too large alone", [b"x" * 7_000_001, b""], 1),
)
async def test_what_finds_no_room_is_dropped(bodies: list[bytes], num_dropped: int) -> None:
    async with open_peer() as peer:
        for body in bodies:
            offer(peer, "a", body=body)
        assert len(peer.dropped) == num_dropped


async def test_production_s_answers_follow_at_the_rate_at_which_they_are_compared() -> None:
    async with open_peer(pairs_per_s=10.0, pairs_at_once=2, max_answer_bytes=10) as peer:
        answers = [peer.handover.offer(SHADOW, asked(), b"") for _ in range(3)]
        assert [it is not None for it in answers] == [True, True, False]
        peer.now_s += 0.1
        answers[2] = peer.handover.offer(SHADOW, asked(), b"")
        await let_run()
        whole, broken, large = (it for it in answers if it is not None)
        for part in (b"one", b" two"):
            whole.add(part)
        whole.finish({})
        for part in (b"12345", b"67890", b"!"):
            large.add(part)
        large.finish({})
        for answer in (whole, broken, large):
            answer.close()
        await let_run()
        found = peer.received()
        assert [it.pair for it, _ in found] == [1, 2, 0, 3, 1, 3, 2]
        assert [(it, body) for it, body in found if isinstance(it, ProductionAnswer)] == [
            (ProductionAnswer(pair=1, is_whole=True), b"one two"),
            (ProductionAnswer(pair=3, is_whole=False), b""),
            (ProductionAnswer(pair=2, is_whole=False), b""),
        ]


async def test_the_end_sends_what_the_socket_takes_and_drops_the_rest() -> None:
    peer = Peer(batch_s=60.0)
    offer(peer, "a")
    await peer.handover.close()
    assert (peer.ids(), peer.dropped) == (["a"], [])
    peer.close()
    peer = Peer(batch_s=60.0)
    offer(peer, "a", "b", body=MANY_BYTES)
    await peer.handover.close()
    assert peer.dropped == [KEY, KEY]
    peer.close()
