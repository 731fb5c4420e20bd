"""The native decoder against the torch one that defines it, and against itself in other company.

# T rows, B sequences, P pages a sequence, V vocabulary, H hidden, I intermediate, D head dimension,
# O output columns, M modules, R ranks
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hostelry.engine.kernels.batch import (
    MODULES,
    AdapterIndex,
    ForwardBatch,
    LoraSegment,
    WideRows,
)
from hostelry.engine.kernels.native.decoder import PHASES, NativeDecoder
from hostelry.engine.kernels.native.library import available_variants
from hostelry.engine.kernels.pool import PoolLayout, PoolTensor
from hostelry.engine.kernels.weights import (
    DecoderWeights,
    LayerWeights,
    Projection,
    RopeTables,
)
from hostelry.engine.layers.decoder import TorchDecoder

VOCABULARY, MAX_LEN = 199, 160
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
VARIANTS = available_variants()
DTYPES = [
    pytest.param(torch.float32, id="in fp32"),
    pytest.param(torch.bfloat16, id="in bf16"),
]
ALL_RANKS = dict.fromkeys(MODULES, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A small model."""

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
    """Two layers of random weights, the window in the first one only."""
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
        ropes=[rope_tables(shape.head_dim, theta) for theta in (100.0, 10000.0)],
        layer=layers.__getitem__,
        dtype=dtype,
    )


def rope_tables(head_dim: int, theta: float) -> RopeTables:
    """Angles of a plain rope."""
    frequencies = theta ** -(torch.arange(0, head_dim, 2) / head_dim)
    angles_PD = torch.outer(torch.arange(MAX_LEN), frequencies)
    return RopeTables(cos_PD=angles_PD.cos(), sin_PD=angles_PD.sin())


def native(weights: DecoderWeights, **options: Any) -> NativeDecoder:
    """A decoder of some hundred rows."""
    return NativeDecoder(
        weights, **{"max_rows": 320, "num_threads": 2, "pin_threads": False, **options}
    )


class Memory:
    """A pool whose first pages belong to sequences and whose last ones to adapters."""

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
        """Pages of one of six sequences, in no order."""
        first = sequence * self.pages_each
        return [int(page) for page in self._order[first : first + self.pages_each]]

    def place(self, row: torch.Tensor) -> int:
        """Write a row somewhere; where it begins."""
        self._at += 3  # rows begin anywhere
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
        """A random adapter of these ranks in every layer."""
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
    """A sequence's tokens."""
    drawn = numpy.random.default_rng(sequence).integers(0, VOCABULARY, MAX_LEN)
    return [int(token) for token in drawn]


def step(memory: Memory, parts: Sequence[Part]) -> ForwardBatch:
    """The parts one after another, with logits of every row."""
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


def check_against_torch(
    weights: DecoderWeights, memory: Memory, steps: Sequence[Sequence[Part]], **options: Any
) -> None:
    """The steps' logits in native code are those of torch, each on its own keys and values."""
    twin = Memory(weights, memory.layout.page_tokens)
    twin.pool.elements.copy_(torch.nan_to_num(memory.pool.elements))
    decoder, reference = native(weights, **options), TorchDecoder(weights)
    for parts in steps:
        batch = step(memory, parts)
        logits_SV = decoder.forward(batch, memory.pool)
        wanted_SV = reference.forward(batch, twin.pool)
        error = (logits_SV - wanted_SV).abs().max() / wanted_SV.abs().max()
        assert error <= TOLERANCES[weights.dtype]
        assert numpy.array_equal(decoder.last_greedy_S, logits_SV.argmax(1).numpy())
        assert decoder.last_finite_S.all()


STEPS = (
    (Part(sequence=0, start=0, end=70), Part(sequence=1, start=0, end=5)),
    (
        Part(sequence=1, start=5, end=6),
        Part(sequence=2, start=0, end=130),
        Part(sequence=0, start=70, end=71),
    ),
    tuple(Part(sequence=n, start=at, end=at + 1) for n, at in ((0, 71), (1, 6), (2, 130))),
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "page_tokens"),
    [
        pytest.param(Shape(), 16, id="plain"),
        pytest.param(Shape(), 1, id="pages of one token"),
        pytest.param(Shape(), 4, id="pages of four tokens"),
        pytest.param(Shape(), 5, id="pages of five tokens"),
        pytest.param(Shape(), 32, id="pages of two vectors"),
        pytest.param(Shape(kv_heads=4), 16, id="every head its own keys"),
        pytest.param(Shape(heads=6, kv_heads=2), 16, id="three heads a key-value head"),
        pytest.param(Shape(heads=7, kv_heads=1), 16, id="seven heads, one key-value head"),
        pytest.param(Shape(heads=50, kv_heads=1, head_dim=2), 16, id="fifty heads share keys"),
        pytest.param(Shape(head_dim=8), 16, id="heads of 8"),
        pytest.param(Shape(head_dim=6), 4, id="heads of 6, of no whole vector"),
        pytest.param(Shape(head_dim=40), 16, id="heads of 40"),
        pytest.param(Shape(head_dim=80), 5, id="heads of 80 in odd pages"),
        pytest.param(Shape(heads=2, kv_heads=1, head_dim=256), 16, id="heads of 256"),
        pytest.param(Shape(hidden=72, inner=44), 16, id="widths of no whole vector"),
        pytest.param(Shape(window=1), 16, id="window of one token"),
        pytest.param(Shape(window=7), 16, id="window within a block"),
        pytest.param(Shape(window=70), 5, id="window over blocks in odd pages"),
        pytest.param(Shape(has_bias=True), 16, id="biases"),
        pytest.param(Shape(has_head_norms=True), 16, id="norms of queries and keys"),
        pytest.param(Shape(has_out_norms=True), 16, id="norms after attention and mlp"),
        pytest.param(Shape(is_gelu=True), 16, id="gelu"),
        pytest.param(Shape(is_tied=False), 16, id="own lm_head"),
        pytest.param(Shape(embedding_scale=8.0), 16, id="scaled embedding"),
    ],
)
def test_models_give_the_logits_of_torch(
    shape: Shape, page_tokens: int, dtype: torch.dtype
) -> None:
    weights = model(shape, dtype)
    # What former owners left, nan included, is in no result.
    memory = Memory(weights, page_tokens, content=float("nan"))
    check_against_torch(weights, memory, STEPS)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("ranks", "options"),
    [
        pytest.param(dict.fromkeys(MODULES, 1), {}, id="rank 1"),
        pytest.param(dict.fromkeys(MODULES, 3), {}, id="rank 3"),
        pytest.param(dict.fromkeys(MODULES, 16), {}, id="rank 16"),
        pytest.param(dict.fromkeys(MODULES, 64), {"scale": 0.05}, id="rank 64"),
        pytest.param({"q_proj": 8, "v_proj": 8}, {}, id="queries and values only"),
        pytest.param({"up_proj": 5}, {}, id="one module of a fused product"),
        pytest.param({"o_proj": 4, "down_proj": 9}, {}, id="outputs only"),
        pytest.param(dict(zip(MODULES, (3, 0, 9, 1, 0, 17, 2), strict=True)), {}, id="mixed"),
        pytest.param(ALL_RANKS, {"scale": 2.0 / 8**0.5}, id="scale of rank-stabilized lora"),
        pytest.param(ALL_RANKS, {"embedding": 3}, id="embedding too"),
        pytest.param(ALL_RANKS, {"lm_head": 19}, id="lm_head too"),
        pytest.param({}, {"embedding": 2, "lm_head": 2}, id="vocabulary only"),
    ],
)
def test_adapters_give_the_logits_of_torch(
    ranks: dict[str, int], options: dict[str, Any], dtype: torch.dtype
) -> None:
    weights = model(Shape(hidden=72, inner=100), dtype)
    memory = Memory(weights)
    first = memory.adapter(ranks, 1, **options)
    other = memory.adapter(ALL_RANKS, 2)
    owners = (first, None, other)
    steps = [[replace(part, index=owners[part.sequence]) for part in parts] for parts in STEPS]
    check_against_torch(weights, memory, steps)


@pytest.mark.parametrize("dtype", DTYPES)
def test_int8_weights_are_near_the_logits_of_torch(dtype: torch.dtype) -> None:
    weights = model(Shape(hidden=72), dtype)
    memory, twin = Memory(weights), Memory(weights)
    index = memory.adapter(ALL_RANKS, 1)
    twin.pool.elements.copy_(memory.pool.elements)
    batch = step(memory, [Part(sequence=0, start=0, end=40, index=index)])
    decoder = native(weights, weight_kind="int8")
    logits_SV = decoder.forward(batch, memory.pool)
    wanted_SV = TorchDecoder(weights).forward(batch, twin.pool)
    assert (logits_SV - wanted_SV).abs().max() / wanted_SV.abs().max() < 0.1
    assert decoder.weight_bytes < native(weights).weight_bytes * 0.6


class Company:
    """Random schedules of the same sequences must give the same bits."""

    def __init__(self, dtype: torch.dtype, variant: str, shape: Shape) -> None:
        self.weights = model(shape, dtype)
        self.decoders = [
            native(self.weights, num_threads=count, variant=variant) for count in (1, 2)
        ]
        self.alone = [self._alone(sequence) for sequence in range(SEQUENCES)]

    def memory(self, seed: int) -> tuple[Memory, list[AdapterIndex | None]]:
        """Memory with the sequences' adapters."""
        memory = Memory(self.weights, seed=seed)
        ranks = dict(zip(MODULES, (3, 0, 9, 1, 8, 17, 16), strict=True))
        return memory, [
            memory.adapter(ranks, 1, lm_head=3, embedding=2),
            None,
            memory.adapter(ALL_RANKS, 2),
            memory.adapter({"v_proj": 33, "down_proj": 2}, 3),
            memory.adapter(dict.fromkeys(MODULES, 5), 4),
        ]

    def _alone(self, sequence: int) -> torch.Tensor:
        """Logits of each token, one token a step, on one thread."""
        memory, indices = self.memory(seed=0)
        rows = [
            self.decoders[0]
            .forward(
                step(
                    memory,
                    [Part(sequence=sequence, start=at, end=at + 1, index=indices[sequence])],
                ),
                memory.pool,
            )
            .clone()
            for at in range(LENGTH)
        ]
        return torch.cat(rows)

    def check(self, chunks: Sequence[tuple[int, int]], seed: int) -> None:
        """Run the chunks (sequence, tokens), as many together as name different sequences."""
        memory, indices = self.memory(seed)
        done = [0] * SEQUENCES
        decoder = self.decoders[seed % 2]
        while chunks:
            parts: list[Part] = []
            for sequence, count in chunks:
                if any(part.sequence == sequence for part in parts):
                    break
                end = min(done[sequence] + count, LENGTH)
                parts.append(
                    Part(
                        sequence=sequence,
                        start=done[sequence],
                        end=end,
                        index=indices[sequence],
                    )
                )
            chunks = chunks[len(parts) :]
            parts = [part for part in parts if part.end > part.start]
            if not parts:
                continue
            logits_SV = decoder.forward(step(memory, parts), memory.pool)
            row = 0
            for part in parts:
                count = part.end - part.start
                wanted_SV = self.alone[part.sequence][part.start : part.end]
                assert torch.equal(logits_SV[row : row + count], wanted_SV)
                row += count
                done[part.sequence] = part.end


LENGTH, SEQUENCES = 90, 5
COMPANIES: dict[tuple[torch.dtype, str], Company] = {}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", DTYPES)
@given(
    chunks=st.lists(
        st.tuples(st.integers(0, SEQUENCES - 1), st.sampled_from((1, 2, 15, 30, 64, 90)))
    ),
    seed=st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
def test_a_row_has_the_same_bits_in_any_company(
    variant: str, dtype: torch.dtype, chunks: list[tuple[int, int]], seed: int
) -> None:
    if (dtype, variant) not in COMPANIES:
        shape = Shape(heads=6, hidden=72, window=40, has_bias=True, has_out_norms=True)
        COMPANIES[dtype, variant] = Company(dtype, variant, shape)
    COMPANIES[dtype, variant].check(chunks, seed)


def test_a_result_that_is_not_finite_is_told_and_stays_with_its_sequence() -> None:
    weights = model(Shape(), torch.float32)
    weights.embedding_VH[3, 5] = float("nan")
    weights = replace(weights, lm_head_VH=model(Shape(), torch.float32).lm_head_VH)
    memory = Memory(weights)
    batch = step(memory, [Part(sequence=n, start=0, end=20) for n in (0, 1)])
    ids_T = numpy.where(batch.token_ids_T == 3, 4, batch.token_ids_T).astype(numpy.int32)
    ids_T[25] = 3
    decoder = native(weights)
    decoder.forward(replace(batch, token_ids_T=ids_T), memory.pool)
    assert decoder.last_finite_S.tolist() == [True] * 25 + [False] * 15


def test_greedy_takes_the_first_of_equal_logits() -> None:
    weights = model(Shape(is_tied=False), torch.float32)
    weights.lm_head_VH.copy_(weights.lm_head_VH[:1].expand(VOCABULARY, -1).clone())
    memory = Memory(weights)
    decoder = native(weights)
    decoder.forward(step(memory, [Part(sequence=0, start=0, end=9)]), memory.pool)
    assert decoder.last_greedy_S.tolist() == [0] * 9


def test_a_step_without_rows_gives_no_logits() -> None:
    weights = model(Shape(), torch.float32)
    memory = Memory(weights)
    batch = replace(step(memory, []), pages_BP=numpy.zeros((0, 1), numpy.int32))
    assert native(weights).forward(batch, memory.pool).shape == (0, VOCABULARY)


def test_the_time_of_each_phase_is_told() -> None:
    weights = model(Shape(), torch.float32)
    memory = Memory(weights)
    decoder = native(weights)
    batch = step(memory, [Part(sequence=0, start=0, end=9)])
    decoder.forward(batch, memory.pool)
    seconds = decoder.phase_seconds
    assert tuple(seconds) == PHASES
    assert all((seconds[name] > 0) == (name != "shrink") for name in PHASES)


def changed(values: Any, at: Any, value: int) -> Any:
    """A copy with one value changed."""
    copy = values.copy()
    copy[at] = value
    return copy


@pytest.mark.parametrize(
    ("field", "change", "message"),
    [
        pytest.param(
            "token_ids_T", lambda a: changed(a, 3, -1), r"token_ids_T\[3\] is -1", id="token -1"
        ),
        pytest.param(
            "token_ids_T", lambda a: changed(a, 3, 199), "is 199; the vocabulary", id="token 199"
        ),
        pytest.param(
            "token_ids_T", lambda a: a.astype(numpy.int64), "token_ids_T is int64", id="int64"
        ),
        pytest.param(
            "token_ids_T",
            lambda a: numpy.repeat(a, 2)[::2],
            "not contiguous",
            id="every other element",
        ),
        pytest.param("positions_T", lambda a: a[:-1], r"positions_T is int32 \(11,\)", id="short"),
        pytest.param(
            "positions_T", lambda a: changed(a, 2, 9), r"positions_T\[2\] is 9", id="position"
        ),
        pytest.param(
            "row_starts_B1", lambda a: changed(a, 0, 1), r"row_starts_B1\[0\] is 1", id="start 1"
        ),
        pytest.param(
            "row_starts_B1", lambda a: changed(a, 1, 0), r"row_starts_B1\[1\] is 0", id="no row"
        ),
        pytest.param(
            "row_starts_B1",
            lambda a: changed(a, 2, 11),
            r"positions_T\[4\] is 0",
            id="row left out",
        ),
        pytest.param(
            "row_starts_B1", lambda a: changed(a, 1, 99), r"row_starts_B1\[1\] is 99", id="far row"
        ),
        pytest.param(
            "lengths_B", lambda a: changed(a, 0, 3), r"lengths_B\[0\] is 3", id="length too small"
        ),
        pytest.param(
            "lengths_B", lambda a: changed(a, 0, 161), "160 positions", id="length too large"
        ),
        pytest.param("pages_BP", lambda a: a[:, :0], r"lengths_B\[0\]", id="no pages"),
        pytest.param("pages_BP", lambda a: a[0], "pages_BP", id="flat pages"),
        pytest.param(
            "pages_BP", lambda a: changed(a, (1, 0), -1), r"pages_BP\[1\] has page -1", id="page -1"
        ),
        pytest.param(
            "pages_BP", lambda a: changed(a, (1, 0), 10**6), "has page 1000000", id="far page"
        ),
        pytest.param(
            "logit_rows_S", lambda a: changed(a, 1, 12), r"logit_rows_S\[1\] is 12", id="logit row"
        ),
        pytest.param(
            "segments",
            lambda a: [replace(a[0], row_end=13)],
            r"segments\[0\] has the row bound 13",
            id="segment too long",
        ),
        pytest.param(
            "segments", lambda a: [a[0], a[0]], r"segments\[1\] has", id="segments overlap"
        ),
        pytest.param(
            "segments", lambda a: [replace(a[0], row_start=4)], r"bound 4", id="empty segment"
        ),
    ],
)
def test_a_batch_that_breaks_a_rule_is_refused(field: str, change: Any, message: str) -> None:
    weights = model(Shape(), torch.float32)
    memory = Memory(weights)
    index = memory.adapter(ALL_RANKS, 1)
    parts = [Part(sequence=0, start=0, end=4, index=index), Part(sequence=1, start=0, end=8)]
    batch = step(memory, parts)
    decoder = native(weights)
    broken: Any = replace(batch, **{field: change(getattr(batch, field))})
    before = memory.pool.elements.clone()
    with pytest.raises(ValueError, match=message):
        decoder.forward(broken, memory.pool)
    assert torch.equal(memory.pool.elements, before)
    assert decoder.forward(batch, memory.pool).shape == (12, VOCABULARY)


@pytest.mark.parametrize(
    ("field", "change", "message"),
    [
        pytest.param("ranks_M", lambda a: a[:-1], r"ranks_M is int32 \(13,\)", id="modules"),
        pytest.param("ranks_M", lambda a: changed(a, 4, -1), "ranks_M -1", id="rank -1"),
        pytest.param("ranks_M", lambda a: changed(a, 13, 99), "ranks_M 99", id="rank 99"),
        pytest.param("firsts_M", lambda a: changed(a, 0, -1), "firsts_M -1", id="first -1"),
        pytest.param(
            "scales_M", lambda a: a.astype(numpy.float64), "scales_M is float64", id="type"
        ),
        pytest.param(
            "down_offsets_R", lambda a: changed(a, 7, -5), "down_offsets_R has -5", id="offset -5"
        ),
        pytest.param(
            "up_offsets_R", lambda a: changed(a, 7, 2**50), "up_offsets_R has", id="far offset"
        ),
        pytest.param("up_offsets_R", lambda a: a[:-1], "up_offsets_R is", id="offsets missing"),
        pytest.param(
            "lm_head", lambda a: replace(a, rank=5), r"lm_head.hidden_offsets_R is", id="wide rank"
        ),
        pytest.param("embedding", lambda a: replace(a, rank=0), "has rank 0", id="wide rank 0"),
        pytest.param(
            "embedding",
            lambda a: replace(a, vocab_offsets_V=changed(a.vocab_offsets_V, 9, -2)),
            r"embedding.vocab_offsets_V has -2",
            id="wide offset",
        ),
    ],
)
def test_an_adapter_outside_the_pool_is_refused(field: str, change: Any, message: str) -> None:
    weights = model(Shape(), torch.float32)
    memory = Memory(weights)
    index = memory.adapter(ALL_RANKS, 1, embedding=2, lm_head=2)
    broken: Any = replace(index, **{field: change(getattr(index, field))})
    decoder = native(weights)
    with pytest.raises(ValueError, match=message):
        decoder.forward(step(memory, [Part(sequence=0, start=0, end=4, index=broken)]), memory.pool)


def test_more_rows_than_the_decoder_was_made_for_are_refused() -> None:
    weights = model(Shape(), torch.float32)
    memory = Memory(weights)
    decoder = native(weights, max_rows=8)
    with pytest.raises(ValueError, match="9 rows; the decoder was made for at most 8"):
        decoder.forward(step(memory, [Part(sequence=0, start=0, end=9)]), memory.pool)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"dtype": torch.float16}, "float16", id="a dtype without kernels"),
        pytest.param({"head_dim": 258}, "head_dim is 258", id="heads too wide"),
        pytest.param({"head_dim": 15}, "head_dim is 15", id="heads of odd width"),
        pytest.param({"num_kv_heads": 3}, "share 3 key-value heads", id="uneven groups"),
    ],
)
def test_a_model_that_the_kernels_cannot_compute_is_refused(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        native(replace(model(Shape(), torch.float32), **change))


def test_a_pool_of_another_model_is_refused() -> None:
    weights = model(Shape(), torch.float32)
    other = Memory(model(Shape(kv_heads=4), torch.float32))
    batch = step(other, [Part(sequence=0, start=0, end=2)])
    with pytest.raises(ValueError, match="the model needs"):
        native(weights).forward(batch, other.pool)
