"""The gateway's HTTP reader: whole requests or a refusal, however the bytes are cut."""

from collections.abc import Iterable
from random import Random

from tests.fuzz.conftest import Cases
from tests.fuzz.mutation import cuts, mutated

from hostelry.dataplane.http.reader import HttpLimits, HttpRefusedError, Received, RequestReader

WIDE = HttpLimits(max_head_bytes=1 << 20, max_headers=1000, max_body_bytes=1 << 20)
NARROW = HttpLimits(max_head_bytes=200, max_headers=6, max_body_bytes=40, max_waiting_requests=4)
HOST = b"Host: door\r\n"
FRAMES = (
    b"GET /ping HTTP/1.1\r\n" + HOST + b"\r\n",
    b"POST /a?b=c HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n\r\nhello",
    b"POST /a HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"PUT / HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nab",
    b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;e=1\r\na\r\n0\r\nT: t\r\n"
    b"\r\n",
)
WORDS = (
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b":",
    b"\x00",
    b"\xff",
    b"0",
    b"9",
    b"-1",
    b"+1",
    b"ffffffffffffffff",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip\r\n",
    HOST,
    b"Connection: close\r\n",
    b"Connection: upgrade\r\nUpgrade: h2c\r\n",
    b"HTTP/1.1",
    b"HTTP/9.9",
    b"%",
    b"GET / HTTP/1.1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"0\r\n\r\n",
    b"7f\r\n",
    b"X: y\r\n",
    b",",
    b";",
)


def outcome(limits: HttpLimits, pieces: Iterable[bytes]) -> tuple[list[Received], int]:
    """The requests that were read, and the status that refuses the rest. 0 without a refusal."""
    reader = RequestReader(limits)
    most_bytes = 2 * limits.max_head_bytes + limits.max_body_bytes
    for piece in pieces:
        try:
            reader.feed(piece)
        except HttpRefusedError as refusal:
            return list(reader.requests), refusal.status
        assert reader.held_bytes <= most_bytes + len(piece)
        assert len(reader.requests) <= limits.max_waiting_requests
    return list(reader.requests), 0


def stream(random: Random) -> bytes:
    """One to three requests in a row, most of them malformed."""
    frames = [random.choice(FRAMES) for _ in range(random.choice((1, 1, 2, 3)))]
    return mutated(b"".join(frames), random, WORDS)


def test_a_malformed_frame_is_read_or_refused_the_same_however_it_is_cut(cases: Cases) -> None:
    for random in cases(15_000):
        sent = stream(random)
        read = outcome(WIDE, [sent])
        assert outcome(WIDE, cuts(sent, random)) == read
        assert read[1] in (0, 400, 413, 431)
        for received in read[0]:
            assert received.request.path.startswith("/")


def test_a_malformed_frame_takes_no_more_room_than_the_limits(cases: Cases) -> None:
    for random in cases(15_000):
        received, status = outcome(NARROW, cuts(stream(random), random))
        assert status in (0, 400, 413, 429, 431)
        for each in received:
            assert len(each.request.body) <= NARROW.max_body_bytes
            assert len(each.request.headers) <= NARROW.max_headers
