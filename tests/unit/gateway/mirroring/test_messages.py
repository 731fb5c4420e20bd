"""Frames to the mirror process: whole ones however they come, and none from other bytes."""

import random

import pytest

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


@pytest.mark.parametrize(
    "received",
    [
        pytest.param(SIZES.pack(10, 101), id="a body that is too large"),
        pytest.param(SIZES.pack(MAX_HEAD_BYTES + 1, 0), id="a head that is too large"),
        pytest.param(SIZES.pack(0, 0), id="no message"),
        pytest.param(SIZES.pack(4, 0) + b"\xff\xfe\x00\x01", id="noise"),
        pytest.param(SIZES.pack(len(HEAD) - 1, 0) + HEAD, id="a message that is cut"),
        pytest.param(SIZES.pack(len(HEAD) + 1, 0) + HEAD + b"\0", id="bytes after the message"),
        pytest.param(SIZES.pack(2, 0) + ENCODER.encode([3]), id="an unknown message"),
        pytest.param(SIZES.pack(3, 0) + ENCODER.encode([2, 7]), id="a message with too little"),
        pytest.param(
            SIZES.pack(5, 0) + ENCODER.encode([2, 7, True, 1]), id="a message with too much"
        ),
        pytest.param(SIZES.pack(4, 0) + ENCODER.encode([2, "7", 1]), id="values of other types"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", id="another protocol"),
    ],
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
