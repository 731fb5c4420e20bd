"""Frames to the mirror process are whole, however their bytes arrive. Other bytes are refused."""

import random

import pytest
from tests.cases import case, cases

from hostelry.gateway.mirroring.messages import (
    ENCODER,
    MAX_HEAD_BYTES,
    SIZES,
    FrameError,
    FrameReader,
    Message,
    MirroredInvocation,
    ProductionAnswer,
    frame_start,
)

REQUEST = MirroredInvocation(
    shadow=("111122223333", "us-west-2", "e", "shadow"),
    head=b"POST /invocations HTTP/1.1\r\n",
    request_id="r-1",
    is_stream=True,
    captured=("text/csv", None, "a=1"),
    pair=7,
)
SENT: list[tuple[Message, bytes]] = [
    (REQUEST, b"1,2"),
    (ProductionAnswer(pair=7, is_whole=True), b"x" * 100),
    (ProductionAnswer(pair=8, is_whole=False), b""),
]
HEAD = ENCODER.encode(REQUEST)
BYTES = b"".join(frame_start(message, body) + body for message, body in SENT)


@pytest.mark.parametrize("step", [1, 7, 50, len(BYTES)])
def test_frames_are_read_in_whatever_parts_they_come(step: int) -> None:
    reader = FrameReader(100)
    parts = [BYTES[at : at + step] for at in range(0, len(BYTES), step)]
    assert [frame for part in parts for frame in reader.frames(part)] == SENT


@cases(
    "received",
    case("a body that is too large", SIZES.pack(10, 101)),
    case("a head that is too large", SIZES.pack(MAX_HEAD_BYTES + 1, 0)),
    case("no message", SIZES.pack(0, 0)),
    case("noise", SIZES.pack(4, 0) + b"\xff\xfe\x00\x01"),
    case("a message that is cut", SIZES.pack(len(HEAD) - 1, 0) + HEAD),
    case("bytes after the message", SIZES.pack(len(HEAD) + 1, 0) + HEAD + b"\0"),
    case("an unknown message", SIZES.pack(2, 0) + ENCODER.encode([3])),
    case("a message with too little", SIZES.pack(3, 0) + ENCODER.encode([2, 7])),
    case("a message with too much", SIZES.pack(5, 0) + ENCODER.encode([2, 7, True, 1])),
    case("values of other types", SIZES.pack(4, 0) + ENCODER.encode([2, "7", 1])),
    case("another protocol", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
)
def test_other_bytes_are_refused(received: bytes) -> None:
    with pytest.raises(FrameError):
        list(FrameReader(100).frames(received))


def test_any_bytes_are_frames_or_are_refused() -> None:
    chance = random.Random(20)
    for _ in range(2000):
        damaged = bytearray(BYTES)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            list(FrameReader(100).frames(bytes(damaged)))
        except FrameError:
            continue
