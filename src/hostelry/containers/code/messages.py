"""Messages between the server and the process of an author's code, and their frames.

Values of JSON travel as their text, so that neither side reads what it only passes on.
"""

import struct
from collections.abc import Mapping

import msgspec

LENGTH = struct.Struct("!I")
MAX_REPLY_BYTES = 16 << 20


class LoadCode(msgspec.Struct, frozen=True, tag=True):
    """Confine yourself (unless `readable` is empty), then load model.py of `folder`.

    `options` are the model's, for the first call of `handle`. `tokenizer_folder` is the model's;
    `packages` holds those that its requirements name.
    """

    folder: str
    model_dir: str
    tokenizer_folder: str
    options: Mapping[str, str]
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    packages: str | None = None


class Handle(msgspec.Struct, frozen=True, tag=True):
    """Call `handle` with headers and contents; answered by `Replied` or `Raised`."""

    id: int
    properties: Mapping[str, str]
    contents: tuple[tuple[str, bytes], ...]


class FormatInput(msgspec.Struct, frozen=True, tag=True):
    """Call the input formatter with a payload."""

    id: int
    payload: bytes


class FormatOutput(msgspec.Struct, frozen=True, tag=True):
    """Call the output formatter with a response, or with an event of a stream.

    `lmi` is the response in LMI's own form, where it has that.
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
    """End a call or its stream; not answered."""

    id: int


class Where(msgspec.Struct, frozen=True, tag=True):
    """Say at which line the call is; answered by `At`."""

    id: int


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """The hooks that model.py has."""

    hooks: tuple[str, ...]


class Broken(msgspec.Struct, frozen=True, tag=True):
    """The code cannot be loaded, for the reason `error`; the process ends."""

    error: str


class Replied(msgspec.Struct, frozen=True, tag=True):
    """The result of a call.

    With `is_nothing` the handler left the request to the server; with `is_stream` its items
    follow, and an item with `is_last` is the end.
    """

    id: int
    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = {}
    is_nothing: bool = False
    is_stream: bool = False
    is_last: bool = False


class Raised(msgspec.Struct, frozen=True, tag=True):
    """The call failed, by `error`."""

    id: int
    error: str


class At(msgspec.Struct, frozen=True, tag=True):
    """The line of model.py at which a call is; None where it is not known."""

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
