"""Small models, pools and steps for tests of the native decoder.

# T rows, B sequences, P pages a sequence, V vocabulary, H hidden, I intermediate, D head dimension,
# O output columns, M modules, R ranks
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from msgspec.structs import replace

from hostelry.engine.kernels.batch import (
    MODULES,
    AdapterIndex,
    ForwardBatch,
    LoraSegment,
    WideRows,
)
from hostelry.engine.kernels.native.decoder import NativeDecoder
from hostelry.engine.kernels.pool import PoolLayout, PoolTensor
from hostelry.engine.kernels.weights import (
    DecoderWeights,
    LayerWeights,
    Projection,
    RopeTables,
)

VOCABULARY, MAX_LEN = 199, 160
ALL_RANKS = dict.fromkeys(MODULES, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes of a small model."""

    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    hidden: int = 64
    inner: int = 112
    has_bias: bool = False
    has_head_norms: bool = False
    has_out_norms: bool = False
    is_gelu: bool = False
    is_tied: bool = True
    window: int | None = None
    embedding_scale: float = 1.0


def model(shape: Shape, dtype: torch.dtype, seed: int = 0) -> DecoderWeights:
    """Two layers of random weights. Only the first has a window."""
    generator = torch.Generator().manual_seed(seed)

    def random(*size: int) -> torch.Tensor:
        return (torch.randn(*size, generator=generator) * 0.2).to(dtype)

    def norm(size: int) -> torch.Tensor:
        return 1 + random(size) / 2

    def projection(columns: int, width: int) -> Projection:
        return Projection(
            weight_OI=random(columns, width), bias_O=random(columns) if shape.has_bias else None
        )

    columns = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    layers = [
        LayerWeights(
            input_norm_H=norm(shape.hidden),
            qkv=projection(columns, shape.hidden),
            q_norm_D=norm(shape.head_dim) if shape.has_head_norms else None,
            k_norm_D=norm(shape.head_dim) if shape.has_head_norms else None,
            o=projection(shape.hidden, shape.heads * shape.head_dim),
            attn_out_norm_H=norm(shape.hidden) if shape.has_out_norms else None,
            mlp_norm_H=norm(shape.hidden),
            gate_up=projection(2 * shape.inner, shape.hidden),
            down=projection(shape.hidden, shape.inner),
            mlp_out_norm_H=norm(shape.hidden) if shape.has_out_norms else None,
            window=window,
            rope=number,
        )
        for number, window in enumerate((shape.window, None))
    ]
    embedding_VH = random(VOCABULARY, shape.hidden)
    return DecoderWeights(
        num_layers=len(layers),
        num_heads=shape.heads,
        num_kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        norm_eps=1e-5,
        attention_scale=shape.head_dim**-0.5,
        activation="gelu_tanh" if shape.is_gelu else "silu",
        embedding_scale=shape.embedding_scale,
        embedding_VH=embedding_VH,
        lm_head_VH=embedding_VH if shape.is_tied else random(VOCABULARY, shape.hidden),
        final_norm_H=norm(shape.hidden),
        ropes=[build_rope_tables(shape.head_dim, theta) for theta in (100.0, 10000.0)],
        layer=layers.__getitem__,
        dtype=dtype,
    )


def build_rope_tables(head_dim: int, theta: float) -> RopeTables:
    """The angles of a plain rotary embedding."""
    frequencies = theta ** -(torch.arange(0, head_dim, 2) / head_dim)
    angles_PD = torch.outer(torch.arange(MAX_LEN), frequencies)
    return RopeTables(cos_PD=angles_PD.cos(), sin_PD=angles_PD.sin())


def native(weights: DecoderWeights, **options: Any) -> NativeDecoder:
    """A decoder for as many rows as the largest test needs."""
    return NativeDecoder(
        weights, **{"max_rows": 512, "num_threads": 2, "pin_threads": False, **options}
    )


class Memory:
    """A pool. Its first pages belong to sequences, its last pages to adapters."""

    def __init__(
        self, weights: DecoderWeights, page_tokens: int = 16, seed: int = 0, content: float = 0.0
    ) -> None:
        self.layout = PoolLayout(
            num_layers=weights.num_layers,
            num_kv_heads=weights.num_kv_heads,
            head_dim=weights.head_dim,
            page_tokens=page_tokens,
            dtype=weights.dtype,
        )
        self.pages_each = -(-MAX_LEN // page_tokens)
        self._adapter_pages = 1 + (1 << 20) // self.layout.page_elements
        self._sequence_pages = 6 * self.pages_each
        num_pages = self._sequence_pages + self._adapter_pages
        self.pool = PoolTensor(self.layout, num_pages, torch.device("cpu"))
        self.pool.elements.fill_(content)
        self._weights = weights
        self._at = self._sequence_pages * self.layout.page_elements
        self._order = numpy.random.default_rng(seed).permutation(self._sequence_pages)

    def pages(self, sequence: int) -> list[int]:
        """The pages of one of six sequences, in random order."""
        first = sequence * self.pages_each
        return [int(page) for page in self._order[first : first + self.pages_each]]

    def place(self, row: torch.Tensor) -> int:
        """Write a row to some place, and return its first element."""
        self._at += 3  # so that rows begin anywhere
        left = self.layout.page_elements - self._at % self.layout.page_elements
        if len(row) > left:
            self._at += left
        start = self._at
        self.pool.elements[start : start + len(row)] = row.to(self.layout.dtype)
        self._at += len(row)
        return start

    def adapter(
        self,
        ranks: dict[str, int],
        seed: int,
        *,
        scale: float = 0.5,
        embedding: int = 0,
        lm_head: int = 0,
    ) -> AdapterIndex:
        """A random adapter with these ranks in every layer."""
        generator = torch.Generator().manual_seed(seed)
        weights = self._weights
        query = weights.num_heads * weights.head_dim
        key = weights.num_kv_heads * weights.head_dim
        hidden, inner = weights.hidden_size, weights.intermediate_size
        widths = dict(
            zip(
                MODULES,
                (
                    (hidden, query),
                    (hidden, key),
                    (hidden, key),
                    (query, hidden),
                    (hidden, inner),
                    (hidden, inner),
                    (inner, hidden),
                ),
                strict=True,
            )
        )
        ranks_M, firsts_M = [], []
        down: list[int] = []
        up: list[int] = []
        for _ in range(weights.num_layers):
            for module in MODULES:
                rank = ranks.get(module, 0)
                ranks_M.append(rank)
                firsts_M.append(len(down))
                for _ in range(rank):
                    for width, offsets in zip(widths[module], (down, up), strict=True):
                        row = torch.randn(width, generator=generator) * 0.2
                        offsets.append(self.place(row))
        return AdapterIndex(
            ranks_M=numpy.array(ranks_M, numpy.int32),
            scales_M=numpy.full(len(ranks_M), scale, numpy.float32),
            firsts_M=numpy.array(firsts_M, numpy.int32),
            down_offsets_R=numpy.array(down, numpy.int64),
            up_offsets_R=numpy.array(up, numpy.int64),
            embedding=self._wide(embedding, scale, generator),
            lm_head=self._wide(lm_head, scale, generator),
        )

    def _wide(self, rank: int, scale: float, generator: torch.Generator) -> WideRows | None:
        if rank == 0:
            return None
        hidden = self._weights.hidden_size
        return WideRows(
            rank=rank,
            scale=scale,
            vocab_offsets_V=numpy.array(
                [
                    self.place(torch.randn(rank, generator=generator) * 0.2)
                    for _ in range(VOCABULARY)
                ],
                numpy.int64,
            ),
            hidden_offsets_R=numpy.array(
                [self.place(torch.randn(hidden, generator=generator) * 0.2) for _ in range(rank)],
                numpy.int64,
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Tokens [start, end) of a sequence, as a share of a step."""

    sequence: int
    start: int
    end: int
    index: AdapterIndex | None = None


def tokens(sequence: int) -> list[int]:
    """The tokens of a sequence."""
    drawn = numpy.random.default_rng(sequence).integers(0, VOCABULARY, MAX_LEN)
    return [int(token) for token in drawn]


def step(memory: Memory, parts: Sequence[Part]) -> ForwardBatch:
    """A step with these parts in order, and logits for every row."""
    starts = [0]
    for part in parts:
        starts.append(starts[-1] + part.end - part.start)
    segments: list[LoraSegment] = []
    for part, start in zip(parts, starts, strict=False):
        end = start + part.end - part.start
        if part.index is None:
            continue
        if segments and segments[-1].index is part.index and segments[-1].row_end == start:
            segments[-1] = replace(segments[-1], row_end=end)
        else:
            segments.append(LoraSegment(row_start=start, row_end=end, index=part.index))

    def int32(values: Any) -> Any:
        return numpy.array(values, numpy.int32)

    return ForwardBatch(
        token_ids_T=int32([t for p in parts for t in tokens(p.sequence)[p.start : p.end]]),
        positions_T=int32([position for p in parts for position in range(p.start, p.end)]),
        row_starts_B1=int32(starts),
        lengths_B=int32([part.end for part in parts]),
        pages_BP=int32([memory.pages(part.sequence) for part in parts]),
        logit_rows_S=int32(range(starts[-1])),
        segments=segments,
    )
