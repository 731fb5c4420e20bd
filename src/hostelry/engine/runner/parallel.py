"""Tensor parallelism: rank 0 plans and sends each step, the other ranks compute it with rank 0.

All ranks have pools of equally many pages. A page holds each rank's part of the same tokens or of
the same adapter, so one list of pages serves all. A rank that dies ends the others: their next
operation raises. Ranks exchange steps, low-rank and hidden-sized tensors, never weights. Adapters
are placed over a separate channel, read by another thread, so that no step waits for them.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy
import torch
from numpy.typing import NDArray
from torch import distributed

from hostelry.engine.kernels.batch import AdapterIndex, ForwardBatch, Int32, LoraSegment
from hostelry.engine.kernels.decoder import Decoder, LogitsDecoder
from hostelry.engine.kernels.pool import PoolTensor
from hostelry.engine.kernels.shard import Shard
from hostelry.engine.layers.parallel import TorchCollective
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.reader import AdapterReader
from hostelry.engine.lora.share import AdapterShare, plan_share
from hostelry.engine.lora.targets import TargetModules


class StepMessage(msgspec.Struct, tag="step", array_like=True):
    """A ForwardBatch. Arrays are bytes of int32, segments (row start, row end, placement)."""

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
    """Forget a placement, whose pages will hold something else."""

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


def to_message(batch: ForwardBatch, placements: Mapping[AdapterIndex, int]) -> StepMessage:
    """The step as a message. `placements` are numbers by the adapters' indexes on rank 0."""
    return StepMessage(
        token_ids=_pack(batch.token_ids_T),
        positions=_pack(batch.positions_T),
        row_starts=_pack(batch.row_starts_B1),
        lengths=_pack(batch.lengths_B),
        pages=_pack(batch.pages_BP),
        logit_rows=_pack(batch.logit_rows_S),
        segments=[(it.row_start, it.row_end, placements[it.index]) for it in batch.segments],
    )


def from_message(message: StepMessage, indexes: Mapping[int, AdapterIndex]) -> ForwardBatch:
    """The step of a message. `indexes` are this rank's, by placement."""
    lengths_B = _unpack(message.lengths)
    return ForwardBatch(
        token_ids_T=_unpack(message.token_ids),
        positions_T=_unpack(message.positions),
        row_starts_B1=_unpack(message.row_starts),
        lengths_B=lengths_B,
        pages_BP=_unpack(message.pages).reshape(len(lengths_B), -1),
        logit_rows_S=_unpack(message.logit_rows),
        segments=[
            LoraSegment(row_start=start, row_end=end, index=indexes[placement])
            for start, end, placement in message.segments
        ],
    )


def _pack(values: NDArray[Any]) -> bytes:
    return numpy.ascontiguousarray(values, numpy.int32).tobytes()


def _unpack(content: bytes) -> Int32:
    return numpy.frombuffer(bytearray(content), numpy.int32)


# A follower may wait for a step as long as the server is idle. If rank 0 dies, its connection
# closes and ends the wait at once.
_IDLE = timedelta(days=365)
_REASON_BYTES = 300


class ParallelError(Exception):
    """A rank could not carry out a message of rank 0. Names the rank and its reason."""


class RankChannel(Protocol):
    """Messages from rank 0 to the other ranks, and their answers."""

    def send(self, content: bytes) -> None:
        """Send to all others. Only for rank 0."""
        ...

    def receive(self) -> bytes:
        """The next message of rank 0, for the others. Raises RuntimeError once it has died."""
        ...

    def exchange_reasons(self, own: str) -> list[str]:
        """Exchange with all ranks why each of them failed. Empty for a rank without failure."""
        ...


class TorchChannel:
    """A RankChannel over a torch.distributed group of CPU tensors (gloo)."""

    def __init__(
        self,
        group: distributed.ProcessGroup,
        answer_timeout: timedelta,
        send_timeout: timedelta,
    ) -> None:
        """`reasons` and `send` raise RuntimeError if they take longer than these times."""
        self._group = group
        self._answer_timeout = answer_timeout
        self._send_timeout = send_timeout

    def send(self, content: bytes) -> None:
        """Broadcast the length, then the bytes.

        Raises RuntimeError if a rank is too slow. In a thread, because gloo's broadcast ignores its
        own time-out.
        """
        ended = threading.Event()
        failures: list[RuntimeError] = []

        def broadcast() -> None:
            try:
                self._broadcast(torch.tensor([len(content)]))
                self._broadcast(torch.frombuffer(bytearray(content), dtype=torch.uint8))
            except RuntimeError as error:
                failures.append(error)
            finally:
                ended.set()

        threading.Thread(target=broadcast, name="send-to-ranks", daemon=True).start()
        if not ended.wait(self._send_timeout.total_seconds()):
            raise RuntimeError(f"a rank took no message within {self._send_timeout}")
        if failures:
            raise failures[0]

    def receive(self) -> bytes:
        """The bytes of rank 0's next message."""
        length = torch.zeros(1, dtype=torch.int64)
        self._broadcast(length)
        content = torch.empty(int(length), dtype=torch.uint8)
        self._broadcast(content)
        return content.numpy().tobytes()

    def exchange_reasons(self, own: str) -> list[str]:
        """Every rank's reason, cut to 300 bytes."""
        text = own.encode()[:_REASON_BYTES].ljust(_REASON_BYTES)
        mine = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        all_ranks = [torch.empty_like(mine) for _ in range(self._group.size())]
        work = distributed.all_gather(all_ranks, mine, group=self._group, async_op=True)
        assert work is not None, "this rank is in the group"
        work.wait(self._answer_timeout)
        return [it.numpy().tobytes().decode(errors="replace").strip() for it in all_ranks]

    def _broadcast(self, tensor: torch.Tensor) -> None:
        distributed.broadcast(tensor, group=self._group, group_src=0)


class RankConnections(msgspec.Struct, frozen=True):
    """A process' connections to the other ranks. Steps and adapters have separate channels."""

    collective: TorchCollective
    channel: TorchChannel
    placements: TorchChannel


def join(
    init_method: str, rank: int, world_size: int, *, device: torch.device, step_timeout_s: float
) -> RankConnections:
    """Join the other ranks.

    Returns when all have joined. `init_method` is as for torch.distributed: "tcp://127.0.0.1:PORT"
    or "file:///PATH". Steps use NCCL on a CUDA device and gloo on a CPU. An operation that takes
    longer than `step_timeout_s` raises RuntimeError. Connections stay on this machine, unless
    GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME name another interface.
    """
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(name, "lo")
    step_timeout = timedelta(seconds=step_timeout_s)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=init_method,
        rank=rank,
        world_size=world_size,
        timeout=step_timeout,
    )
    steps = distributed.group.WORLD
    control = distributed.new_group(backend="gloo", timeout=_IDLE)
    placements = distributed.new_group(backend="gloo", timeout=_IDLE)
    assert steps is not None, "the process group was just made"
    return RankConnections(
        TorchCollective(steps),
        TorchChannel(control, _IDLE, step_timeout),
        TorchChannel(placements, step_timeout, step_timeout),
    )


def leave() -> None:
    """Close the connections to the other ranks."""
    distributed.destroy_process_group()


class LeadingDecoder(LogitsDecoder):
    """Rank 0's Decoder: sends each step to the others, then computes its own part.

    See `kernels.decoder.Decoder`. An adapter must be placed before a step has rows of it. With a
    separate channel `placements`, `place` may run in another thread than the rest.
    """

    def __init__(
        self, decoder: Decoder, channel: RankChannel, placements: RankChannel | None = None
    ) -> None:
        self._decoder = decoder
        self._channel = channel
        self._adapters = placements or channel
        self._placements: dict[AdapterIndex, int] = {}
        self._removed: deque[int] = deque()  # sent with the next adapter
        self._num_placed = 0

    def forward(self, batch: ForwardBatch, pool: PoolTensor) -> torch.Tensor:
        """Logits (S, V) fp32. Raises RuntimeError if a rank has died."""
        self._channel.send(serialize(to_message(batch, self._placements)))
        return self._decoder.forward(batch, pool)

    def place(self, key: str, index: AdapterIndex, pages: list[int], source: str) -> None:
        """Have the others put their part of an adapter into `pages`.

        Rank 0's part is `index`. Returns when they have. Raises ParallelError if a rank could not.
        Then no rank has it.
        """
        while self._removed:
            self._send(RemoveMessage(self._removed.popleft()))
        self._num_placed += 1
        placement = self._num_placed
        self._send(PlaceMessage(placement, key, pages, source))
        failed = find_failed_ranks(self._adapters)
        if failed:
            self._send(RemoveMessage(placement))
            raise ParallelError(f"adapter {key} could not be placed; {failed}")
        self._placements[index] = placement

    def remove(self, index: AdapterIndex) -> None:
        """Release the adapter's pages.

        No step has rows of it any more. The others are notified with the next adapter. No effect if
        it was not placed.
        """
        placement = self._placements.pop(index, None)
        if placement is not None:
            self._removed.append(placement)

    def stop(self) -> None:
        """End the others' loops."""
        if self._adapters is not self._channel:
            self._send(StopMessage())
        self._channel.send(serialize(StopMessage()))

    def _send(self, message: Message) -> None:
        self._adapters.send(serialize(message))


def find_failed_ranks(channel: RankChannel, own: str = "") -> str:
    """Why other ranks failed, by number. Empty if all succeeded. All ranks call it at once."""
    reasons = enumerate(channel.exchange_reasons(own))
    return "; ".join(f"rank {rank}: {reason}" for rank, reason in reasons if reason)


class SharePlacer:
    """Puts this rank's part of an adapter into its pool: the `place` of `follow`."""

    def __init__(
        self, reader: AdapterReader, targets: TargetModules, shard: Shard, pool: PoolTensor
    ) -> None:
        self._reader = reader
        self._targets = targets
        self._shard = shard
        self._pool = pool

    def __call__(self, message: PlaceMessage) -> AdapterIndex:
        """Read the image of `message.key` from the folder where rank 0 saved it.

        Raises AdapterError if the image is damaged, of another content, or needs more pages than
        given, and OSError.
        """
        adapter = self._reader.restore(Path(message.source), message.key)
        size = self._pool.layout.page_elements
        plan = plan_share(self._targets, adapter.layout.ranks, self._shard, size)
        if plan.num_pages > len(message.pages):
            raise AdapterError(
                f"{message.source} takes {plan.num_pages} pages; {len(message.pages)} were given"
            )
        share = AdapterShare(adapter, self._targets, plan)
        share.write(self._pool, message.pages)
        return share.index(message.pages)


def follow(
    decoder: Decoder,
    pool: PoolTensor,
    channel: RankChannel,
    place: Callable[[PlaceMessage], AdapterIndex],
    indexes: dict[int, AdapterIndex] | None = None,
) -> None:
    """Carry out the messages of rank 0 until it sends a stop.

    Two threads may each follow a channel, one of them for adapters, and share `indexes` (by
    placement). `place` writes this rank's part of an adapter into the pool. Its ValueErrors and
    OSErrors are reported to rank 0. Raises RuntimeError if a rank has died.
    """
    indexes = {} if indexes is None else indexes
    while True:
        message = parse(channel.receive())
        match message:
            case StepMessage():
                decoder.forward(from_message(message, indexes), pool)
            case PlaceMessage():
                reason = ""
                try:
                    indexes[message.placement] = place(message)
                except (ValueError, OSError) as error:
                    reason = str(error) or type(error).__name__
                channel.exchange_reasons(reason)
            case RemoveMessage():
                indexes.pop(message.placement, None)
            case StopMessage():
                return
