"""Messages between the server and the process of an author's code, and their frames.

JSON values are sent as text, so that a side does not parse values that it only passes on.
"""

import struct
from collections.abc import Mapping

import msgspec

LENGTH = struct.Struct("!I")
MAX_REPLY_BYTES = 16 << 20


class LoadCode(msgspec.Struct, frozen=True, tag=True):
    """Confine the process (unless `readable` is empty), then load model.py of `folder`.

    `options` and `tokenizer_folder` are the model's. The first call of `handle` gets the options.
    `packages` is the folder of the packages in the code's requirements.
    """

    folder: str
    model_dir: str
    tokenizer_folder: str
    options: Mapping[str, str]
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    packages: str | None = None


class Handle(msgspec.Struct, frozen=True, tag=True):
    """Call `handle` with headers and contents. The answer is `Replied` or `Raised`."""

    id: int
    properties: Mapping[str, str]
    contents: tuple[tuple[str, bytes], ...]


class FormatInput(msgspec.Struct, frozen=True, tag=True):
    """Call the input formatter with a payload."""

    id: int
    payload: bytes


class FormatOutput(msgspec.Struct, frozen=True, tag=True):
    """Call the output formatter with a response, or with an event of a stream.

    `lmi` is the response in LMI's form, if it has one.
    """

    id: int
    response: bytes
    lmi: bytes | None = None
    is_event: bool = False


class NextItem(msgspec.Struct, frozen=True, tag=True):
    """Give the next item of the stream of call `of`."""

    id: int
    of: int


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """End a call or its stream, without an answer."""

    id: int


class Where(msgspec.Struct, frozen=True, tag=True):
    """Report the line of a call. The answer is `At`."""

    id: int


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """The code is loaded and has these hooks."""

    hooks: tuple[str, ...]


class Broken(msgspec.Struct, frozen=True, tag=True):
    """The code cannot be loaded. The process ends."""

    error: str


class Replied(msgspec.Struct, frozen=True, tag=True):
    """The result of a call.

    With `is_nothing` the server itself must answer the request. With `is_stream` the items follow,
    up to an item with `is_last`.
    """

    id: int
    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = {}
    is_nothing: bool = False
    is_stream: bool = False
    is_last: bool = False


class Raised(msgspec.Struct, frozen=True, tag=True):
    """The call failed."""

    id: int
    error: str


class At(msgspec.Struct, frozen=True, tag=True):
    """The line of model.py of a call. None if it is unknown."""

    id: int
    place: str | None


CodeCall = Handle | FormatInput | FormatOutput | NextItem
ToCode = LoadCode | CodeCall | Cancel | Where
FromCode = Loaded | Broken | Replied | Raised | At

ENCODER = msgspec.msgpack.Encoder()
TO_CODE: msgspec.msgpack.Decoder[ToCode] = msgspec.msgpack.Decoder(ToCode)
FROM_CODE: msgspec.msgpack.Decoder[FromCode] = msgspec.msgpack.Decoder(FromCode)


def framed_message(message: ToCode | FromCode) -> bytes:
    """The bytes of `message` on the wire."""
    body = ENCODER.encode(message)
    return LENGTH.pack(len(body)) + body
