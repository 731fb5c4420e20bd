"""Steps as captured graphs: one launch per step instead of hundreds.

A graph is made for a number of rows (a bucket), for steps with or without adapters, and for decode
steps or steps with prompts. A step takes the smallest bucket that holds it. Steps without adapters
omit their kernels altogether. The inputs that differ between steps of a bucket (tokens, pages, each
row's adapter and its ranks) lie in the bucket's block of words, which is filled again before each
replay. `prepare` captures all graphs before the first request, within bounds of memory and time.
Without it a graph is captured when its bucket is used again. Other steps are computed launch by
launch: long prompts, whose products take longer than the launches.

Adapters are copied into the pool on a separate stream (`lora.uploads`). The copy waits for an
event that the engine's thread records on its current stream, on which graphs are replayed too, so
that no replay reads a page while it is given to another adapter. The engine uses an adapter only
once its copy has ended, so that replays that read it are queued later. Captures allow other threads
to call CUDA meanwhile.

# B sequences, each with one row, S logit rows, V vocabulary
"""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import numpy
import torch

from hostelry.base.clock import Clock
from hostelry.engine.kernels.batch import ForwardBatch, LoraSegment
from hostelry.engine.kernels.decoder import Decoder, LogitsDecoder
from hostelry.engine.kernels.pool import PoolLayout, PoolTensor
from hostelry.engine.kernels.triton.availability import why_unavailable
from hostelry.engine.kernels.triton.step import (
    LORA_TILE_ROWS,
    DeviceStep,
    StepBlock,
    StepSizes,
    is_decode,
)
from hostelry.engine.kernels.triton.tables import StepAdapters
from hostelry.engine.kernels.weights import DecoderWeights
from hostelry.engine.layers.decoder import TorchDecoder

LOG = logging.getLogger(__name__)

_USES_BEFORE_CAPTURE = 2

Compute = Callable[[], torch.Tensor]
"""Queues the same work at each call, on tensors at fixed addresses. Returns the result tensor."""


class GraphableDecoder(Decoder, Protocol):
    """A decoder whose steps can be captured, such as `layers.cuda_decoder.CudaDecoder`."""

    device: torch.device
    max_len: int

    def adapters(self, segments: Sequence[LoraSegment]) -> StepAdapters:
        """The tables of a step's adapters, on the device."""
        ...

    def tile_rows(self, layout: PoolLayout) -> int:
        """The most rows of a prompt's tile."""
        ...

    def compute(self, step: DeviceStep, pool: PoolTensor) -> torch.Tensor:
        """Logits (S, V) of a step. Only queues work."""
        ...


class Capture(Protocol):
    """Turns work into a graph."""

    def __call__(self, compute: Compute) -> Compute:
        """A function that replays the work, which has run once. Raises RuntimeError on failure."""
        ...

    def num_bytes(self) -> int:
        """Memory that the graphs take."""
        ...


class CudaCapture:
    """Captures CUDA graphs that share their scratch memory, since one runs at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._memory = torch.cuda.graph_pool_handle()
        self._results: torch.Tensor | None = None  # of all graphs: read before the next replay

    def __call__(self, compute: Compute) -> Compute:
        """A function that replays the work, which has run once. Raises RuntimeError on failure."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            like = compute()  # kernels are compiled and libraries allocate outside the capture
        current.wait_stream(self._stream)
        if self._results is None or self._results.numel() < like.numel():
            self._results = torch.empty_like(like).flatten()
        result = self._results[: like.numel()].view(like.shape)
        del like
        graph = torch.cuda.CUDAGraph()
        # Other threads copy adapters and pin memory meanwhile, which is not part of the graph.
        with torch.cuda.graph(
            graph, pool=self._memory, stream=self._stream, capture_error_mode="thread_local"
        ):
            result.copy_(compute())

        def replay() -> torch.Tensor:
            graph.replay()
            return result

        return replay

    def num_bytes(self) -> int:
        """Memory that the graphs' tensors take, without other processes' memory."""
        segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
        own = tuple(self._memory)
        return sum(it["total_size"] for it in segments if tuple(it["segment_pool_id"]) == own)


class GraphLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of at most `max_batch_size` rows, adapters of at most `max_lora_rank` in any module.

    Capturing stops once the graphs take `max_bytes`, or took `max_capture_s` to capture.
    """

    max_batch_size: int
    max_lora_rank: int
    max_bytes: int = 1 << 30
    max_capture_s: float = 60.0
    mixed_buckets: tuple[int, ...] = (16, 32, 64, 128, 192, 256, 384, 512)

    @property
    def buckets(self) -> tuple[int, ...]:
        """Powers of two to 32, then multiples of 32, then the largest batch."""
        sizes = [1, 2, 4, 8, 16, *range(32, self.max_batch_size, 32)]
        return (*(it for it in sizes if it < self.max_batch_size), self.max_batch_size)

    def bucket(self, num_rows: int, *, is_mixed: bool = False) -> int | None:
        """The smallest bucket that holds `num_rows` rows. None if no bucket does."""
        buckets = self.mixed_buckets if is_mixed else self.buckets
        return next((it for it in buckets if it >= num_rows), None)

    def list_kinds(self) -> "list[GraphKind]":
        """All kinds of steps that can have a graph, the most frequent ones first.

        Of these the larger buckets come first, because smaller ones fit into their memory.
        """
        sizes = ((False, self.buckets), (True, self.mixed_buckets))
        return [
            GraphKind(bucket, has_adapters, is_aligned, is_mixed)
            for is_aligned in (True, False)
            for is_mixed, buckets in sizes
            for has_adapters in ((False, True) if is_aligned else (True,))
            for bucket in reversed(buckets)
        ]


class GraphKind(msgspec.Struct, frozen=True):
    """The steps that a graph was captured for. A mixed step has rows of prompts."""

    bucket: int
    has_adapters: bool
    is_aligned: bool
    is_mixed: bool = False


class GraphedDecoder(LogitsDecoder):
    """A decoder that replays steps and passes all others to the decoder that it wraps.

    `warnings` says what could not be captured, and why. It serves one pool, the pool of the first
    step.
    """

    def __init__(
        self, decoder: GraphableDecoder, limits: GraphLimits, capture: Capture, clock: Clock
    ) -> None:
        self._decoder = decoder
        self._limits = limits
        self._capture = capture
        self._clock = clock
        self._pool: PoolTensor | None = None
        self._blocks: dict[tuple[int, bool], StepBlock] = {}
        self._graphs: dict[GraphKind, Compute] = {}
        self._uses: dict[GraphKind, int] = {}
        self._is_closed = False  # no more captures
        self._is_prepared = False
        self.max_graph_bytes = limits.max_bytes
        self._capture_s = 0.0

    @property
    def kinds(self) -> frozenset[GraphKind]:
        """The kinds of steps that have a graph."""
        return frozenset(self._graphs)

    @torch.inference_mode()
    def prepare(self, pool: PoolTensor) -> None:
        """Capture the graphs of all kinds of steps, so that no request waits for a capture."""
        self._pool = pool
        idle, adapters = _build_idle_batch(), self._decoder.adapters(())
        for kind in self._limits.list_kinds():
            if self._is_closed:
                break
            block = self._get_block(kind, pool.layout)
            block.send(idle, adapters, tile_rows=self._decoder.tile_rows(pool.layout))
            self._capture_graph(kind, block, pool)
        self._is_prepared = True
        LOG.info("%d graphs were captured in %.1f s", len(self._graphs), self._capture_s)

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch, pool: PoolTensor) -> torch.Tensor:
        """Logits (S, V) fp32 of `batch.logit_rows_S`. Writes the rows' keys and values."""
        if self._pool is None:
            self._pool = pool
        adapters = self._decoder.adapters(batch.segments)
        kind = self._find_kind(batch, adapters, pool)
        if kind is None or not self._is_due(kind):
            return self._decoder.forward(batch, pool)
        block = self._get_block(kind, pool.layout)
        block.send(batch, adapters, tile_rows=self._decoder.tile_rows(pool.layout))
        graph = self._graphs.get(kind) or self._capture_graph(kind, block, pool)
        if graph is None:
            return self._decoder.forward(batch, pool)
        return graph()[: len(batch.logit_rows_S)]

    def _find_kind(
        self, batch: ForwardBatch, adapters: StepAdapters, pool: PoolTensor
    ) -> GraphKind | None:
        """The kind of graph that computes the step. None if no graph can."""
        is_mixed = not is_decode(batch)
        bucket = self._limits.bucket(batch.num_rows, is_mixed=is_mixed)
        longest = self._count_pages(pool.layout)
        if (
            bucket is None
            or len(batch.lengths_B) > self._count_sequences(bucket, is_mixed=is_mixed)
            or len(batch.logit_rows_S) > self._count_sequences(bucket, is_mixed=is_mixed)
            or batch.pages_BP.shape[1] > longest
            or adapters.has_wide
            or adapters.max_rank > self._limits.max_lora_rank
            or pool is not self._pool
        ):
            return None
        return GraphKind(bucket, adapters.has_linear, adapters.is_aligned, is_mixed)

    def _is_due(self, kind: GraphKind) -> bool:
        """True if there is a graph, or one is worth capturing now."""
        if kind in self._graphs or self._is_prepared:
            return kind in self._graphs
        uses = self._uses.get(kind, 0) + 1
        self._uses[kind] = uses
        return uses >= _USES_BEFORE_CAPTURE and not self._is_closed

    def _capture_graph(self, kind: GraphKind, block: StepBlock, pool: PoolTensor) -> Compute | None:
        """Capture the graph. After a failure returns None, and nothing more is captured."""
        step = block.view(
            max_rank=self._limits.max_lora_rank if kind.has_adapters else 0,
            is_aligned=kind.is_aligned,
            is_tiled=kind.is_mixed,
        )
        started_at = self._clock.now()
        try:
            graph = self._capture(lambda: self._decoder.compute(step, pool))
        except RuntimeError as error:
            reason = f"{type(error).__name__}: {error}"
            self._close(f"a step of {kind.bucket} rows could not be captured ({reason})")
            return None
        self._graphs[kind] = graph
        self._capture_s += self._clock.now() - started_at
        limits, num_bytes = self._limits, self._capture.num_bytes()
        if num_bytes > limits.max_bytes:
            self._close(f"graphs take {num_bytes} bytes of at most {limits.max_bytes}")
        elif self._capture_s > limits.max_capture_s:
            self._close(
                f"captures took {self._capture_s:.1f} s of at most {limits.max_capture_s:.1f} s"
            )
        return graph

    def _close(self, reason: str) -> None:
        self._is_closed = True
        there = len(self._graphs)
        message = f"steps beyond {there} graphs are computed launch by launch: {reason}"
        self.warnings = (*self.warnings, message)
        LOG.warning(message)

    def _get_block(self, kind: GraphKind, layout: PoolLayout) -> StepBlock:
        """The block of all graphs of a bucket, with room for the most tiles that it can need."""
        key = (kind.bucket, kind.is_mixed)
        block = self._blocks.get(key)
        if block is not None:
            return block
        sequences = self._count_sequences(kind.bucket, is_mixed=kind.is_mixed)
        prompt_tiles = lora_tiles = 0
        if kind.is_mixed:  # each prompt and each adapter may leave one tile in part empty
            tile_rows = self._decoder.tile_rows(layout)
            prompt_tiles = kind.bucket // tile_rows + min(sequences, kind.bucket // 2)
            lora_tiles = kind.bucket // LORA_TILE_ROWS + sequences
        sizes = StepSizes(
            num_rows=kind.bucket,
            num_sequences=sequences,
            num_pages=self._count_pages(layout),
            num_logits=sequences,
            num_decode_tiles=sequences,
            num_prefill_tiles=prompt_tiles,
            num_lora_tiles=lora_tiles,
        )
        block = self._blocks[key] = StepBlock(sizes, self._decoder.device)
        return block

    def _count_sequences(self, bucket: int, *, is_mixed: bool) -> int:
        """The most sequences of a bucket's step."""
        return min(bucket, self._limits.max_batch_size) if is_mixed else bucket

    def _count_pages(self, layout: PoolLayout) -> int:
        return -(-self._decoder.max_len // layout.page_tokens)


def _build_idle_batch() -> ForwardBatch:
    """A step without rows: the kernels skip every entry of its block."""
    empty = numpy.zeros(0, numpy.int32)
    return ForwardBatch(
        token_ids_T=empty,
        positions_T=empty,
        row_starts_B1=numpy.zeros(1, numpy.int32),
        lengths_B=empty,
        pages_BP=numpy.zeros((0, 1), numpy.int32),
        logit_rows_S=empty,
        segments=(),
    )


def choose_cuda_kernels(device: torch.device) -> tuple[str, str | None]:
    """Choose triton or torch for the device. Returns a warning with torch."""
    reason = why_unavailable(device)
    if reason is None:
        return "triton", None
    return "torch", f"steps are computed by torch, launch by launch and slower: {reason}"


def build_cuda_decoder(
    weights: DecoderWeights, kernels: str, *, limits: GraphLimits, clock: Clock
) -> Decoder:
    """The decoder that computes with `kernels`, as `choose_cuda_kernels` chose them."""
    if kernels == "torch":
        return TorchDecoder(weights)
    # Importing triton takes seconds. Only a process that computes with it waits for that.
    from hostelry.engine.layers.cuda_decoder import CudaDecoder

    decoder = CudaDecoder(weights)
    return GraphedDecoder(decoder, limits, CudaCapture(decoder.device), clock)
