"""Triton's kernels on a CPU, compared with plain torch, for Triton's interpreter.

Run in a process with TRITON_INTERPRET=1 before Triton is imported. The interpreter truncates fp32
to bf16, a device rounds to the nearest. So tolerances for bf16 are larger here than on a device.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import torch
from msgspec.structs import replace
from tests.unit.engine.native_model import Memory, Part, Shape, model, step

from hostelry.engine.kernels.batch import MODULES, AdapterIndex, ForwardBatch, LoraSegment
from hostelry.engine.kernels.pool import PoolLayout, PoolTensor
from hostelry.engine.kernels.triton.attention import AttentionShape, attend
from hostelry.engine.kernels.triton.lora import FusedModules, add_lora
from hostelry.engine.kernels.triton.rows import add_and_norm, gate
from hostelry.engine.kernels.triton.step import DeviceStep, StepBlock, StepSizes, get_step_sizes
from hostelry.engine.kernels.triton.tables import AdapterTables
from hostelry.engine.layers import attention_paged
from hostelry.engine.layers.cuda_decoder import CudaDecoder
from hostelry.engine.layers.decoder import TorchDecoder
from hostelry.engine.layers.parallel import Alone
from hostelry.engine.layers.segmented_lora import SegmentedLora

CPU = torch.device("cpu")
TOLERANCES = {torch.float32: 5e-6, torch.float16: 3e-3, torch.bfloat16: 6e-2}
STEPS = (
    (Part(sequence=0, start=0, end=9), Part(sequence=1, start=0, end=2)),
    (Part(sequence=1, start=2, end=3), Part(sequence=2, start=0, end=2)),
    tuple(Part(sequence=n, start=at, end=at + 1) for n, at in ((0, 9), (1, 3), (2, 2))),
)


def check_near(found: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    """Assert that the largest difference, relative to the largest value, is within tolerance."""
    assert found.shape == wanted.shape
    error = float((found.float() - wanted).abs().max() / wanted.abs().max())
    assert error <= TOLERANCES[dtype], f"off by {error:.2e} of the largest value"


def decoder_case(
    fields: Mapping[str, Any], dtype: torch.dtype, page_tokens: int, adapters: Mapping[str, Any]
) -> None:
    """Prompt, mixed and decoding steps of a decoder. `adapters` belong to the first sequence."""
    weights = model(Shape(hidden=40, inner=48, **fields), dtype)
    # Contents of former owners, including nan, must not be in any result.
    memory = Memory(weights, page_tokens, content=float("nan"))
    owners: list[AdapterIndex | None] = [None, None, None]
    if adapters:
        other = memory.adapter({"q_proj": 8, "down_proj": 1}, 2)
        owners = [memory.adapter(seed=1, **adapters), None, other]
    twin = Memory(weights, page_tokens)
    twin.pool.elements.copy_(torch.nan_to_num(memory.pool.elements))
    decoder, reference = CudaDecoder(weights), TorchDecoder(weights)
    for parts in STEPS:
        batch = step(memory, [dataclasses.replace(it, index=owners[it.sequence]) for it in parts])
        batch = replace(batch, logit_rows_S=batch.logit_rows_S[::-2].copy())
        found = decoder.forward(batch, memory.pool)
        assert found.dtype is torch.float32
        check_near(found, reference.forward(batch, twin.pool), dtype)


def mixed_replay_case(dtype: torch.dtype) -> None:
    """A step with a prompt gives nearly the same logits in a block of a larger bucket."""
    weights = model(Shape(hidden=40, inner=48), dtype)
    memory = Memory(weights)
    owner = memory.adapter({"q_proj": 8, "k_proj": 2, "down_proj": 17}, 1)
    decoder = CudaDecoder(weights)
    parts = [
        Part(sequence=0, start=0, end=1, index=owner),
        Part(sequence=1, start=0, end=7, index=None),
        Part(sequence=2, start=0, end=5, index=owner),
    ]
    batch = step(memory, parts)
    batch = replace(batch, logit_rows_S=(batch.row_starts_B1[1:] - 1).astype(numpy.int32))
    sizes = StepSizes(
        num_rows=16, num_sequences=4, num_pages=10, num_logits=4, num_decode_tiles=4,
        num_prefill_tiles=12, num_lora_tiles=5,
    )  # fmt: skip
    block = StepBlock(sizes, CPU)
    adapters = decoder.adapters(batch.segments)
    block.send(batch, adapters, tile_rows=decoder.tile_rows(memory.layout))
    bucket = block.view(max_rank=32, is_aligned=adapters.is_aligned, is_tiled=True)
    alone = Memory(weights)
    alone.pool.elements.copy_(memory.pool.elements)
    found = decoder.compute(bucket, memory.pool)[:3]
    check_near(found, decoder.forward(batch, alone.pool), dtype)
    check_near(memory.pool.elements, alone.pool.elements, dtype)


def replay_case(dtype: torch.dtype) -> None:
    """A decode step in a block of a larger bucket gives the same bits as the step by itself."""
    weights = model(Shape(hidden=40, inner=48), dtype)
    memory = Memory(weights)
    owner = memory.adapter({"q_proj": 8, "k_proj": 2, "down_proj": 17}, 1)
    decoder = CudaDecoder(weights)
    parts = [Part(sequence=n, start=0, end=1, index=owner if n else None) for n in range(2)]
    batch = step(memory, parts)
    sizes = StepSizes(num_rows=3, num_sequences=3, num_pages=10, num_logits=3, num_decode_tiles=3)
    block = StepBlock(sizes, CPU)
    adapters = decoder.adapters(batch.segments)
    block.send(batch, adapters, tile_rows=decoder.tile_rows(memory.layout))
    bucket = block.view(max_rank=32, is_aligned=adapters.is_aligned, is_tiled=False)
    before = memory.pool.elements.clone()
    found = decoder.compute(bucket, memory.pool)[:2]
    alone = Memory(weights)
    alone.pool.elements.copy_(before)
    torch.testing.assert_close(found, decoder.forward(batch, alone.pool), rtol=0, atol=0)
    assert torch.equal(memory.pool.elements, alone.pool.elements)


def lora_case(
    counts: Sequence[int],
    ranks: Sequence[Sequence[int] | None],
    widths: Sequence[int],
    in_features: int,
    dtype: torch.dtype,
    is_tiled: bool,
) -> None:
    """Sequences of `counts` rows, with ranks of their modules or no adapter, in layer two."""
    generator = torch.Generator().manual_seed(0)
    elements = (torch.randn(200_000, generator=generator) * 0.1).to(dtype)
    first = {3: 0, 2: 4, 1: 6}[len(widths)]
    random = numpy.random.default_rng(1)
    starts = numpy.cumsum([0, *counts])
    segments = []
    for start, count, of_modules in zip(starts, counts, ranks, strict=False):
        if of_modules is None:
            continue
        ranks_M = numpy.zeros(2 * len(MODULES), numpy.int32)
        ranks_M[len(MODULES) + first :][: len(widths)] = of_modules
        index = AdapterIndex(
            ranks_M=ranks_M,
            scales_M=random.random(len(ranks_M), numpy.float32),
            firsts_M=(numpy.cumsum(ranks_M) - ranks_M).astype(numpy.int32),
            down_offsets_R=random.integers(0, 200_000 - in_features, int(ranks_M.sum())),
            up_offsets_R=random.integers(0, 200_000 - max(widths), int(ranks_M.sum())),
        )
        segments.append(LoraSegment(row_start=int(start), row_end=int(start) + count, index=index))
    batch = _batch(counts, [list(range(it)) for it in counts], segments=segments)
    x_TI = torch.randn(int(starts[-1]), in_features, generator=generator).to(dtype)
    found = torch.randn(int(starts[-1]), sum(widths), generator=generator)
    wanted = found.clone()
    names = MODULES[first : first + len(widths)]
    twin = SegmentedLora(segments, elements, Alone())
    twin.add_to_columns(x_TI.float(), wanted, 1, list(zip(names, widths, strict=True)))
    assert not torch.equal(found, wanted)
    warn_about_absent = [n for n in range(len(found)) if torch.equal(found[n], wanted[n])]
    fused = FusedModules(first=first, widths=tuple(widths), in_features=in_features)
    before = found.clone()
    add_lora(
        x_TI, found, elements, _device_step(batch, is_tiled), fused,
        first_module=len(MODULES) + first,
    )  # fmt: skip
    check_near(found, wanted, torch.float32)
    assert torch.equal(found[warn_about_absent], before[warn_about_absent])


def shared_lora_case(is_tiled: bool) -> None:
    """Two ranks with alternate rows of A, and every column, as a part of wider rows of y."""
    in_features, width, rank = 2100, 70, 7  # more in-features than one program takes
    generator = torch.Generator().manual_seed(4)
    elements = torch.randn(200_000, generator=generator) * 0.1
    x_TI = torch.randn(3, in_features, generator=generator)
    random = numpy.random.default_rng(5)
    ranks_M = numpy.array([0, 0, 0, rank, 0, 0, 0], numpy.int32)
    whole = AdapterIndex(
        ranks_M=ranks_M,
        scales_M=numpy.full(len(MODULES), 0.5, numpy.float32),
        firsts_M=numpy.zeros(len(MODULES), numpy.int32),
        down_offsets_R=random.integers(0, 200_000 - in_features, rank),
        up_offsets_R=random.integers(0, 200_000 - width, rank),
    )
    wanted = torch.randn(3, width, generator=generator)
    before = torch.nn.functional.pad(wanted, (3, 5))

    def segments(index: AdapterIndex) -> list[LoraSegment]:
        return [LoraSegment(row_start=0, row_end=2, index=index)]

    SegmentedLora(segments(whole), elements, Alone()).add_to_columns(
        x_TI, wanted, 0, [("o_proj", width)]
    )
    fused = FusedModules(first=3, widths=(width,), in_features=in_features)
    own_rows = [numpy.arange(rank) % 2 == number for number in range(2)]
    lows: list[torch.Tensor] = []

    def add(own_R: Any, sum_low: Any) -> torch.Tensor:
        index = replace(whole, down_offsets_R=numpy.where(own_R, whole.down_offsets_R, -1))
        batch = _batch((2, 1), ([0, 1], [0]), segments=segments(index))
        y_TO = before.clone()
        add_lora(
            x_TI, y_TO[:, 3 : 3 + width], elements, _device_step(batch, is_tiled), fused,
            first_module=3, sum_low=sum_low,
        )  # fmt: skip
        return y_TO

    def keep(low: torch.Tensor) -> torch.Tensor:
        lows.append(low.clone())
        return low

    for own_R in own_rows:
        add(own_R, keep)
    for own_R in own_rows:
        found = add(own_R, lambda low: low.copy_(lows[0] + lows[1]))
        check_near(found[:, 3 : 3 + width], wanted, torch.float32)
        assert torch.equal(found[:, :3], before[:, :3])
        assert torch.equal(found[:, 3 + width :], before[:, 3 + width :])


def attention_case(
    spans: Sequence[tuple[int, int]],
    heads: tuple[int, int],
    head_dim: int,
    page_tokens: int,
    window: int | None,
    dtype: torch.dtype,
) -> None:
    """Rows [start, end) of each sequence over the stored keys. All other elements are nan."""
    layout = PoolLayout(
        num_layers=2,
        num_kv_heads=heads[1],
        head_dim=head_dim,
        page_tokens=page_tokens,
        dtype=dtype,
    )
    most = -(-max(end for _, end in spans) // page_tokens)
    pool = PoolTensor(layout, most * len(spans) + 1, CPU)
    pool.elements.fill_(float("nan"))
    generator = torch.Generator().manual_seed(2)
    order = torch.randperm(pool.num_pages, generator=generator).numpy().astype(numpy.int32)
    pages_BP = numpy.full((len(spans), most), -1, numpy.int32)
    for sequence, (_, end) in enumerate(spans):
        needed = -(-end // page_tokens)
        pages_BP[sequence, :needed] = order[sequence * most : sequence * most + needed]
        for position in range(end):
            page, slot = pages_BP[sequence, position // page_tokens], position % page_tokens
            for stored in (pool.keys(1)[page, :, :, slot], pool.values(1)[page, :, slot]):
                stored.copy_(torch.randn(stored.shape, generator=generator))
    batch = _batch(
        [end - start for start, end in spans], [list(range(*it)) for it in spans], pages_BP
    )
    width = (heads[0] + 2 * heads[1]) * head_dim
    qkv_TO = torch.randn(batch.num_rows, width, generator=generator)
    q_THD = qkv_TO[:, : heads[0] * head_dim].reshape(-1, heads[0], head_dim)
    rows = attention_paged.group_rows(batch, page_tokens, CPU)
    wanted = attention_paged.attend(q_THD, pool, 1, rows, window=window, scale=0.3)
    shape = AttentionShape(num_heads=heads[0], layout=layout, scale=0.3, max_len=512)
    device_step = _device_step(batch, False, shape.tile_rows)
    check_near(attend(qkv_TO, pool, 1, device_step, shape, window), wanted, dtype)


def norm_case(width: int, dtype: torch.dtype) -> None:
    """Norms of the sum of a residual and a normed update, with and without each of them."""
    generator = torch.Generator().manual_seed(3)
    hidden, update = (torch.randn(3, width, generator=generator) for _ in range(2))
    first, second = (torch.randn(width, generator=generator).to(dtype) for _ in range(2))

    def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-5) * weight

    for added, added_norm in ((None, None), (update, None), (update, first)):
        residual = hidden.clone()
        x = add_and_norm(residual, added, added_norm, second, eps=1e-5, dtype=dtype)
        summed = hidden
        if added is not None:
            summed = hidden + (added if added_norm is None else normed(added, added_norm))
        check_near(residual, summed, torch.float32)
        assert x.dtype is dtype
        check_near(x, normed(summed, second), dtype)


def gate_case(dtype: torch.dtype) -> None:
    """Gates from far below to far above zero."""
    gate_up = torch.cat([torch.linspace(-90, 90, 70), torch.linspace(1, 2, 70)]).view(1, 140)
    gates, ups = gate_up.chunk(2, 1)
    check_near(gate(gate_up, "silu", dtype), torch.nn.functional.silu(gates) * ups, dtype)
    activated = torch.nn.functional.gelu(gates, approximate="tanh")
    check_near(gate(gate_up, "gelu_tanh", dtype), activated * ups, dtype)


def _batch(
    counts: Sequence[int],
    positions: Sequence[Sequence[int]],
    pages_BP: Any = None,
    segments: Sequence[LoraSegment] = (),
) -> ForwardBatch:
    starts_B1 = numpy.cumsum([0, *counts]).astype(numpy.int32)
    return ForwardBatch(
        token_ids_T=numpy.zeros(starts_B1[-1], numpy.int32),
        positions_T=numpy.concatenate(positions).astype(numpy.int32),
        row_starts_B1=starts_B1,
        lengths_B=numpy.array([it[-1] + 1 for it in positions], numpy.int32),
        pages_BP=numpy.zeros((len(counts), 1), numpy.int32) if pages_BP is None else pages_BP,
        logit_rows_S=numpy.zeros(1, numpy.int32),
        segments=segments,
    )


_KEPT: list[Any] = []  # tables whose addresses are in steps


def _device_step(batch: ForwardBatch, is_tiled: bool, tile_rows: int = 4) -> DeviceStep:
    tables = AdapterTables(CPU)
    _KEPT.append(tables)
    adapters = tables.get(batch.segments)
    block = StepBlock(get_step_sizes(batch, tile_rows=tile_rows, is_tiled=is_tiled), CPU)
    block.send(batch, adapters, tile_rows=tile_rows)
    return block.view(max_rank=adapters.max_rank, is_aligned=adapters.is_aligned, is_tiled=is_tiled)
