"""Messages of gateway workers to the mirror process: frames on a Unix stream socket.

A frame is two little-endian 32-bit numbers, the bytes of its head and of its body, and then both.
The head is a message in MessagePack; the body is the request's, or production's answer.
"""

import struct
from collections.abc import Iterator

import msgspec

from hostelry.base.errors import HostelryError
from hostelry.domain.load import LoadKey

SIZES = struct.Struct("<II")
MAX_HEAD_BYTES = 1024 * 1024  # clients' heads have 64 KiB at most
ShadowAddress = tuple[str, str, str, str]  # account, region, endpoint, variant


class FrameError(HostelryError):
    """The bytes are no frame of these messages."""


class MirroredInvocation(
    msgspec.Struct, array_like=True, tag=1, kw_only=True, forbid_unknown_fields=True
):
    """A request for a shadow; `head` lacks the end, which is the copy's.

    `offered_at_s` is on the clock that all processes of the machine share. `pair` is the number
    that production's answer will have on this line; 0: it will not come. `captured` are the content
    type, inference id and custom attributes of a request whose answers are captured.
    """

    shadow: ShadowAddress
    head: bytes
    request_id: str
    is_stream: bool
    captured: tuple[str | None, str | None, str | None] | None = None
    offered_at_s: float = 0.0
    pair: int = 0


class ProductionAnswer(
    msgspec.Struct, array_like=True, tag=2, kw_only=True, forbid_unknown_fields=True
):
    """Production's answer of a pair; without `is_whole` there is none."""

    pair: int
    is_whole: bool


Message = MirroredInvocation | ProductionAnswer
ENCODER = msgspec.msgpack.Encoder()
DECODER = msgspec.msgpack.Decoder(Message)


def to_shadow_address(key: LoadKey) -> ShadowAddress:
    """The address of a shadow variant, from the name that it is counted under."""
    return key.scope.account, key.scope.region, key.endpoint_name, key.variant_name


def frame_start(message: Message, body: bytes) -> bytes:
    """The frame of a message up to its body."""
    head = ENCODER.encode(message)
    return SIZES.pack(len(head), len(body)) + head


class FrameReader:
    """Frames from the bytes of one connection; bodies have `max_body_bytes` at most."""

    def __init__(self, max_body_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._unread = bytearray()

    def frames(self, received: bytes) -> Iterator[tuple[Message, bytes]]:
        """The frames that are whole with what was `received`; raises FrameError."""
        self._unread += received
        at, end = 0, len(self._unread)
        try:
            while end - at >= SIZES.size:
                head_bytes, body_bytes = SIZES.unpack_from(self._unread, at)
                self._check(head_bytes, body_bytes)
                head_at = at + SIZES.size
                body_at = head_at + head_bytes
                if end < body_at + body_bytes:
                    break
                at = body_at + body_bytes
                message = decode_message(self._unread[head_at:body_at])
                yield message, bytes(self._unread[body_at:at])
        finally:
            del self._unread[:at]

    def _check(self, head_bytes: int, body_bytes: int) -> None:
        if head_bytes > MAX_HEAD_BYTES or body_bytes > self._max_body_bytes:
            raise FrameError(
                f"a frame of {head_bytes} and {body_bytes} bytes; its head has {MAX_HEAD_BYTES} at "
                f"most, its body {self._max_body_bytes}"
            )


def decode_message(head: bytearray) -> Message:
    """The message of a frame's head; raises FrameError."""
    try:
        message: Message = DECODER.decode(head)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FrameError(f"no message: {error}") from error
    return message
