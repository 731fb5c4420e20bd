"""Messages of rank 0 to the ranks that follow it, as bytes."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy
from numpy.typing import NDArray

from hostelry.engine.kernels.batch import AdapterIndex, ForwardBatch, Int32, LoraSegment


class StepMessage(msgspec.Struct, tag="step", array_like=True):
    """A ForwardBatch; arrays as bytes of int32, segments as (row start, row end, placement)."""

    token_ids: bytes
    positions: bytes
    row_starts: bytes
    lengths: bytes
    pages: bytes
    logit_rows: bytes
    segments: list[tuple[int, int, int]]


class PlaceMessage(msgspec.Struct, tag="place", array_like=True):
    """Put the adapter of content `key` into these pages, read from the folder `source`.

    `placement` names it in later messages: the same content may be placed again.
    """

    placement: int
    key: str
    pages: list[int]
    source: str


class RemoveMessage(msgspec.Struct, tag="remove", array_like=True):
    """Forget a placement, whose pages are used for something else from now on."""

    placement: int


class StopMessage(msgspec.Struct, tag="stop", array_like=True):
    """No more steps."""


Message = StepMessage | PlaceMessage | RemoveMessage | StopMessage
_DECODER: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def serialize(message: Message) -> bytes:
    """The message as bytes."""
    return msgspec.msgpack.encode(message)


def parse(content: bytes) -> Message:
    """The message in these bytes. Raises msgspec.DecodeError for anything else."""
    return _DECODER.decode(content)


def step_message(batch: ForwardBatch, placements: Mapping[AdapterIndex, int]) -> StepMessage:
    """The step as a message; `placements` are those of the adapters' indexes on rank 0."""
    return StepMessage(
        token_ids=_packed(batch.token_ids_T),
        positions=_packed(batch.positions_T),
        row_starts=_packed(batch.row_starts_B1),
        lengths=_packed(batch.lengths_B),
        pages=_packed(batch.pages_BP),
        logit_rows=_packed(batch.logit_rows_S),
        segments=[(it.row_start, it.row_end, placements[it.index]) for it in batch.segments],
    )


def step_batch(message: StepMessage, indexes: Mapping[int, AdapterIndex]) -> ForwardBatch:
    """The step of a message; `indexes` are this rank's, by placement."""
    lengths_B = _unpacked(message.lengths)
    return ForwardBatch(
        token_ids_T=_unpacked(message.token_ids),
        positions_T=_unpacked(message.positions),
        row_starts_B1=_unpacked(message.row_starts),
        lengths_B=lengths_B,
        pages_BP=_unpacked(message.pages).reshape(len(lengths_B), -1),
        logit_rows_S=_unpacked(message.logit_rows),
        segments=[
            LoraSegment(row_start=start, row_end=end, index=indexes[placement])
            for start, end, placement in message.segments
        ],
    )


def _packed(values: NDArray[Any]) -> bytes:
    return numpy.ascontiguousarray(values, numpy.int32).tobytes()


def _unpacked(content: bytes) -> Int32:
    return numpy.frombuffer(bytearray(content), numpy.int32)
