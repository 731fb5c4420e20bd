"""What the HTTP process and the engine process say to each other, and how it is framed.

A frame is a four-byte big-endian length and that many bytes of MessagePack. The engine process
sends at most one `Stepped` a step, whatever the number of running requests.
"""

import struct
from typing import Literal

import msgspec

from hostelry.containers.lmi.backend import BackendStats, ModelFacts
from hostelry.engine.request import Output, Request

LENGTH = struct.Struct(">I")


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the engine is loaded; None leaves the choice to the engine."""

    folder: str
    dtype: str = "auto"
    max_batch_size: int = 32
    max_batched_tokens: int | None = None
    max_model_len: int | None = None
    num_threads: int | None = None
    max_lora_rank: int = 64
    max_loras: int | None = None
    use_accelerators: bool = True


class Start(msgspec.Struct, frozen=True, tag=True):
    """The first message: load the model, then these adapters (name, folder)."""

    settings: EngineSettings
    adapters: tuple[tuple[str, str], ...]


class Add(msgspec.Struct, frozen=True, tag=True):
    """Run these requests, all or none."""

    requests: tuple[Request, ...]


class Abort(msgspec.Struct, frozen=True, tag=True):
    """End these requests; ids that are finished or unknown are skipped."""

    request_ids: tuple[str, ...]


class LoadAdapter(msgspec.Struct, frozen=True, tag=True):
    """Answered by `Done`."""

    call: int
    name: str
    folder: str


class UnloadAdapter(msgspec.Struct, frozen=True, tag=True):
    """Answered by `Done`."""

    call: int
    name: str


class AskStats(msgspec.Struct, frozen=True, tag=True):
    """Answered by `Done` with stats."""

    call: int


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """The model and the adapters of `Start` are loaded."""

    facts: ModelFacts


class Stepped(msgspec.Struct, frozen=True, tag=True):
    """Everything one step gave."""

    outputs: tuple[Output, ...]


Fault = Literal["request", "adapter_missing", "adapter_refused", "adapter_exists", "capacity"]


class Refused(msgspec.Struct, frozen=True, tag=True):
    """None of the requests of one `Add` runs."""

    request_ids: tuple[str, ...]
    fault: Fault
    message: str


class Done(msgspec.Struct, frozen=True, tag=True):
    """The answer to the call of that number; `fault` None is success."""

    call: int
    fault: Fault | None = None
    message: str = ""
    stats: BackendStats | None = None


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The engine process ends now, and why."""

    message: str


ToEngine = Start | Add | Abort | LoadAdapter | UnloadAdapter | AskStats
FromEngine = Loaded | Stepped | Refused | Done | Failed

ENCODER = msgspec.msgpack.Encoder()
TO_ENGINE: msgspec.msgpack.Decoder[ToEngine] = msgspec.msgpack.Decoder(ToEngine)
FROM_ENGINE: msgspec.msgpack.Decoder[FromEngine] = msgspec.msgpack.Decoder(FromEngine)


def frame(message: ToEngine | FromEngine) -> bytes:
    """The bytes of `message` on the wire."""
    body = ENCODER.encode(message)
    return LENGTH.pack(len(body)) + body


class Unframer:
    """Collects bytes and gives back whole message bodies."""

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
