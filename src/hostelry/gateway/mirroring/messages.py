"""Messages of gateway workers to the mirror process: frames on a Unix stream socket.

A frame has two little-endian 32-bit numbers, which are the sizes of head and body in bytes. The
head and the body follow. The head is a message in MessagePack. The body is the body of the request,
or production's answer.
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
    """The bytes are not a valid frame."""


class MirroredInvocation(
    msgspec.Struct, array_like=True, tag=1, kw_only=True, forbid_unknown_fields=True
):
    """A request for a shadow. `head` lacks its last lines, which depend on the copy.

    `offered_at_s` is on the clock that all processes of the machine share. `pair` is the number of
    production's answer on this line. 0 means that the answer is not sent. `captured` are the
    content type, inference id and custom attributes of a request whose answers are captured.
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
    """Production's answer of a pair. Without `is_whole` the pair is given up."""

    pair: int
    is_whole: bool


Message = MirroredInvocation | ProductionAnswer
ENCODER = msgspec.msgpack.Encoder()
DECODER = msgspec.msgpack.Decoder(Message)


def to_shadow_address(key: LoadKey) -> ShadowAddress:
    """Build the address of a shadow variant from the key that counts its requests."""
    return key.scope.account, key.scope.region, key.endpoint_name, key.variant_name


def frame_start(message: Message, body: bytes) -> bytes:
    """Encode the frame of a message up to its body."""
    head = ENCODER.encode(message)
    return SIZES.pack(len(head), len(body)) + head


class FrameReader:
    """Reads the frames of one connection. Bodies have at most `max_body_bytes`."""

    def __init__(self, max_body_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._unread = bytearray()

    def frames(self, received: bytes) -> Iterator[tuple[Message, bytes]]:
        """Yield the frames that the `received` bytes complete. Raises FrameError."""
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
    """Decode the message in a frame's head. Raises FrameError."""
    try:
        message: Message = DECODER.decode(head)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FrameError(f"no message: {error}") from error
    return message
