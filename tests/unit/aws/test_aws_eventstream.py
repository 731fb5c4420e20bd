"""Frames, read back by botocore."""

import json

import pytest
from botocore.eventstream import EventStreamBuffer, EventStreamMessage
from hypothesis import given, settings
from hypothesis import strategies as st

from hostelry.aws.eventstream import MAX_PAYLOAD_BYTES, payload_part, stream_exception


def read(*chunks: bytes) -> list[EventStreamMessage]:
    buffer = EventStreamBuffer()
    frames = []
    for chunk in chunks:
        buffer.add_data(chunk)
        frames.extend(buffer)
    return frames


@settings(deadline=None)
@given(payloads=st.lists(st.binary(max_size=64), min_size=1, max_size=3))
def test_every_payload_comes_back_whatever_the_split(payloads: list[bytes]) -> None:
    stream = b"".join(payload_part(payload) for payload in payloads)
    for at in range(len(stream) + 1):
        frames = read(stream[:at], stream[at:])
        assert [frame.payload for frame in frames] == payloads
    assert frames[0].headers == {
        ":message-type": "event",
        ":event-type": "PayloadPart",
        ":content-type": "application/octet-stream",
    }


@settings(deadline=None)
@given(message=st.text(max_size=200), code=st.none() | st.text(max_size=30))
def test_an_exception_carries_its_members(message: str, code: str | None) -> None:
    (frame,) = read(stream_exception("ModelStreamError", message, code))
    members = {"Message": message} | ({} if code is None else {"ErrorCode": code})
    assert json.loads(frame.payload) == members
    assert frame.headers[":exception-type"] == "ModelStreamError"
    assert frame.headers[":message-type"] == "exception"


@pytest.mark.parametrize("extra", [0, 1, MAX_PAYLOAD_BYTES])
def test_a_payload_over_the_limit_travels_in_several_frames(extra: int) -> None:
    data = bytes(MAX_PAYLOAD_BYTES) + b"x" * extra
    frames = read(payload_part(data))
    assert len(frames) == (2 if extra else 1)
    assert b"".join(frame.payload for frame in frames) == data
