"""The native decoder against the torch one that defines it, and against itself in other company."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.engine.native_model import (
    ALL_RANKS,
    VOCABULARY,
    Memory,
    Part,
    Shape,
    model,
    native,
    step,
)

from hostelry.engine.kernels.batch import MODULES, AdapterIndex
from hostelry.engine.kernels.native.decoder import PHASES
from hostelry.engine.kernels.native.library import available_variants
from hostelry.engine.kernels.weights import DecoderWeights
from hostelry.engine.layers.decoder import TorchDecoder

TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
VARIANTS = available_variants()
DTYPES = [
    pytest.param(torch.float32, id="in fp32"),
    pytest.param(torch.bfloat16, id="in bf16"),
]


def check_against_torch(
    weights: DecoderWeights, memory: Memory, steps: Sequence[Sequence[Part]], **options: Any
) -> None:
    """Assert that native steps give torch's logits, each with its own keys and values."""
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


SHAPES = [
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
]


@pytest.mark.parametrize(
    ("shape", "page_tokens", "dtype"),
    [
        pytest.param(
            *it.values,
            dtype,
            id=f"{it.id} in {name}",
            marks=[pytest.mark.thorough] if number % 3 and name == "bf16" else [],
        )
        for number, it in enumerate(SHAPES)
        for dtype, name in ((torch.float32, "fp32"), (torch.bfloat16, "bf16"))
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
@cases(
    "ranks, options",
    case("rank 1", dict.fromkeys(MODULES, 1), {}),
    case("rank 3", dict.fromkeys(MODULES, 3), {}),
    case("rank 16", dict.fromkeys(MODULES, 16), {}),
    case("rank 64", dict.fromkeys(MODULES, 64), {"scale": 0.05}),
    case("queries and values only", {"q_proj": 8, "v_proj": 8}, {}),
    case("one module of a fused product", {"up_proj": 5}, {}),
    case("outputs only", {"o_proj": 4, "down_proj": 9}, {}),
    case("mixed", dict(zip(MODULES, (3, 0, 9, 1, 0, 17, 2), strict=True)), {}),
    case("scale of rank-stabilized lora", ALL_RANKS, {"scale": 2.0 / 8**0.5}),
    case("embedding too", ALL_RANKS, {"embedding": 3}),
    case("lm_head too", ALL_RANKS, {"lm_head": 19}),
    case("vocabulary only", {}, {"embedding": 2, "lm_head": 2}),
)
def test_adapters_give_the_logits_of_torch(
    ranks: dict[str, int], options: dict[str, Any], dtype: torch.dtype
) -> None:
    weights = model(Shape(hidden=72, inner=100), dtype)
    memory = Memory(weights)
    first = memory.adapter(ranks, 1, **options)
    other = memory.adapter(ALL_RANKS, 2)
    owners = (first, None, other)
    steps = [
        [dataclasses.replace(part, index=owners[part.sequence]) for part in parts]
        for parts in STEPS
    ]
    check_against_torch(weights, memory, steps)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_library_gives_the_logits_of_torch(variant: str, dtype: torch.dtype) -> None:
    shape = Shape(heads=6, head_dim=24, hidden=72, inner=100, window=40, has_head_norms=True)
    weights = model(shape, dtype)
    memory = Memory(weights, page_tokens=5)
    owners = [memory.adapter(dict.fromkeys(MODULES, rank), rank, lm_head=2) for rank in (3, 8, 17)]
    steps = [
        [dataclasses.replace(part, index=owners[part.sequence]) for part in parts]
        for parts in STEPS
    ]
    check_against_torch(weights, memory, steps, variant=variant)


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
        """The logits of each token, computed one token per step on one thread."""
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
@settings(max_examples=10, deadline=None)
def test_a_row_has_the_same_bits_in_any_company(
    variant: str, dtype: torch.dtype, chunks: list[tuple[int, int]], seed: int
) -> None:
    if (dtype, variant) not in COMPANIES:
        shape = Shape(heads=6, hidden=72, window=40, has_bias=True, has_out_norms=True)
        COMPANIES[dtype, variant] = Company(dtype, variant, shape)
    COMPANIES[dtype, variant].check(chunks, seed)


def test_a_result_that_is_not_finite_is_marked_and_stays_with_its_sequence() -> None:
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


def test_the_time_of_each_phase_is_measured() -> None:
    weights = model(Shape(), torch.float32)
    memory = Memory(weights)
    decoder = native(weights)
    batch = step(memory, [Part(sequence=0, start=0, end=9)])
    decoder.forward(batch, memory.pool)
    seconds = decoder.phase_seconds
    assert tuple(seconds) == PHASES
    assert all((seconds[name] > 0) == (name != "shrink") for name in PHASES)
