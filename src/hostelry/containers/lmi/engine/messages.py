"""Messages between the HTTP process and the engine process, and their framing.

A frame is a four-byte big-endian length and that many bytes of MessagePack. The engine process
sends at most one `Stepped` a step, whatever the number of running requests.
"""

import os
import struct
from typing import Literal

import msgspec

from hostelry.containers.lmi.engine.backend import (
    AdapterView,
    BackendStats,
    CacheView,
    ModelFacts,
)
from hostelry.containers.lmi.settings.engine_settings import EngineSettings
from hostelry.engine.request import Output, Request

LENGTH = struct.Struct(">I")


class StartEngine(msgspec.Struct, frozen=True, tag=True):
    """The first message: load the model in `folder`, then these adapters (name, folder)."""

    folder: str
    settings: EngineSettings
    adapters: tuple[tuple[str, str], ...]


class Add(msgspec.Struct, frozen=True, tag=True):
    """Run these requests, all or none."""

    requests: tuple[Request, ...]


class Abort(msgspec.Struct, frozen=True, tag=True):
    """End these requests. Ids that are finished or unknown are skipped."""

    request_ids: tuple[str, ...]


class RegisterAdapter(msgspec.Struct, frozen=True, tag=True):
    """Read the adapter at `src` and register it as `name`. Answered by `Done`.

    With `replace` a registered name gets a new version.
    """

    call: int
    name: str
    src: str
    pin: bool = False
    replace: bool = False


class CancelRegistration(msgspec.Struct, frozen=True, tag=True):
    """Abandon a registration that takes too long: unless it is done, its `Done` says so now."""

    call: int


class PinAdapter(msgspec.Struct, frozen=True, tag=True):
    """Pin an adapter in the pool, or unpin it. Answered by `Done`."""

    call: int
    name: str
    pin: bool


class UnloadAdapter(msgspec.Struct, frozen=True, tag=True):
    """Unregister an adapter. Answered by `Done`."""

    call: int
    name: str


class AskAdapter(msgspec.Struct, frozen=True, tag=True):
    """Ask for an adapter's state. Answered by `Done` with `adapter`."""

    call: int
    name: str


class AskStats(msgspec.Struct, frozen=True, tag=True):
    """Ask for the load. Answered by `Done` with `stats`."""

    call: int


class AskCache(msgspec.Struct, frozen=True, tag=True):
    """Ask for the caches' contents, with at most `limit` adapters. Answered by `Done`."""

    call: int
    limit: int


class ModelLoaded(msgspec.Struct, frozen=True, tag=True):
    """The model and the adapters of `StartEngine` are loaded."""

    facts: ModelFacts


class Stepped(msgspec.Struct, frozen=True, tag=True):
    """All outputs of one step. Empty as a heartbeat of an engine that waits for an adapter."""

    outputs: tuple[Output, ...]


Fault = Literal[
    "request", "adapter_missing", "adapter_refused", "adapter_exists", "capacity", "quota", "full",
    "failed",
]  # fmt: skip


class Refused(msgspec.Struct, frozen=True, tag=True):
    """None of the requests of one `Add` runs."""

    request_ids: tuple[str, ...]
    fault: Fault
    message: str
    retry_after_s: float = 0.0


class Done(msgspec.Struct, frozen=True, tag=True):
    """The result of the call with that number. A success has no `fault`."""

    call: int
    fault: Fault | None = None
    message: str = ""
    stats: BackendStats | None = None
    adapter: AdapterView | None = None
    cache: CacheView | None = None


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The engine process exits because of `message`. `is_unsupported`: it cannot run this model."""

    message: str
    is_unsupported: bool = False


EngineCall = RegisterAdapter | UnloadAdapter | PinAdapter | AskAdapter | AskStats | AskCache
ToEngine = StartEngine | Add | Abort | CancelRegistration | EngineCall
FromEngine = ModelLoaded | Stepped | Refused | Done | Failed

ENCODER = msgspec.msgpack.Encoder(enc_hook=os.fspath)
TO_ENGINE: msgspec.msgpack.Decoder[ToEngine] = msgspec.msgpack.Decoder(
    ToEngine, dec_hook=lambda kind, path: kind(path)
)
FROM_ENGINE: msgspec.msgpack.Decoder[FromEngine] = msgspec.msgpack.Decoder(FromEngine)


def frame(message: ToEngine | FromEngine) -> bytes:
    """The bytes of `message` on the wire."""
    body = ENCODER.encode(message)
    return LENGTH.pack(len(body)) + body


class Unframer:
    """Splits received bytes into message bodies."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that `data` completes, in order."""
        self._buffer += data
        bodies: list[bytes] = []
        start = 0
        while len(self._buffer) - start >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._buffer, start)
            end = start + LENGTH.size + size
            if len(self._buffer) < end:
                break
            bodies.append(bytes(self._buffer[start + LENGTH.size : end]))
            start = end
        del self._buffer[:start]
        return bodies
