"""Adapters in pages: every row once, no row across a page's end, and nothing lost."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.engine.kernels.batch import MODULES, AdapterIndex, Int64, WideRows
from hostelry.engine.kernels.pool import PoolLayout, PoolTensor
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.image import PageImage
from hostelry.engine.lora.layout import (
    AdapterLayout,
    AdapterRanks,
    AdapterScales,
    build_index,
    plan_layout,
)
from hostelry.engine.lora.targets import TargetModules, decoder_targets

# I in-features, O out-features, R rank, V vocabulary, H hidden


@dataclass(frozen=True, kw_only=True)
class Sizes:
    num_layers: int = 2
    hidden_size: int = 24
    intermediate_size: int = 40
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 8
    vocab_size: int = 53
    tie_embeddings: bool = True


SIZES = Sizes()
TARGETS = decoder_targets(SIZES)
NUM_LINEARS = len(TARGETS.linears)
RANKS = st.one_of(st.just(0), st.integers(1, 7))


@st.composite
def mixed_ranks(draw: st.DrawFn) -> AdapterRanks:
    linears = draw(st.lists(RANKS, min_size=NUM_LINEARS, max_size=NUM_LINEARS))
    embedding, lm_head = draw(RANKS), draw(RANKS)
    if not (any(linears) or embedding or lm_head):
        lm_head = 1
    return AdapterRanks(linears=tuple(linears), embedding=embedding, lm_head=lm_head)


def pool_of(page_elements: int, num_pages: int, dtype: torch.dtype) -> PoolTensor:
    layout = PoolLayout(
        num_layers=1, num_kv_heads=1, head_dim=1, page_tokens=page_elements // 2, dtype=dtype
    )
    pool = PoolTensor(layout, num_pages, torch.device("cpu"))
    pool.elements.fill_(float("nan"))
    return pool


def all_rows(layout: AdapterLayout) -> list[tuple[int, int, int]]:
    """(page, element, width) of every row, in order."""
    halves = [half for module in layout.linears for half in (module.first, module.second)]
    for wide in (layout.embedding, layout.lm_head):
        if wide is not None:
            halves += [wide.runs.first, wide.runs.second]
    return [
        (run.page, run.element + step * run.width, run.width)
        for half in halves
        for run in half
        for step in range(run.count)
    ]


@settings(max_examples=100, deadline=None)
@given(ranks=mixed_ranks(), page_elements=st.integers(20, 300).map(lambda n: 2 * n))
def test_every_row_has_a_place_of_its_own_in_one_page(
    ranks: AdapterRanks, page_elements: int
) -> None:
    layout = plan_layout(TARGETS, ranks, page_elements)
    taken = numpy.zeros((layout.num_pages, page_elements), numpy.int32)
    for page, element, width in all_rows(layout):
        assert element + width <= layout.fills_P[page] <= page_elements
        taken[page, element : element + width] += 1
    assert taken.max() == 1
    wanted = sum(
        rank * (target.in_features + target.out_features)
        for target, rank in zip(TARGETS.linears, ranks.linears, strict=True)
    )
    wanted += (ranks.embedding + ranks.lm_head) * (SIZES.vocab_size + SIZES.hidden_size)
    assert taken.sum() == wanted
    longest = max(width for _, _, width in all_rows(layout))
    assert all(fill > page_elements - longest for fill in layout.fills_P[:-1])


@settings(max_examples=40, deadline=None)
@given(
    ranks=mixed_ranks(),
    page_elements=st.integers(20, 300).map(lambda n: 2 * n),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    data=st.data(),
)
def test_what_is_written_is_found_through_the_index(
    ranks: AdapterRanks, page_elements: int, dtype: torch.dtype, data: st.DataObject
) -> None:
    layout = plan_layout(TARGETS, ranks, page_elements)
    halves = random_halves(TARGETS, ranks, dtype)
    image = PageImage(layout, dtype)
    for module, (first, second) in zip(layout.linears, halves.linears, strict=True):
        image.fill(module, first, second)
    for wide, half in ((layout.embedding, halves.embedding), (layout.lm_head, halves.lm_head)):
        if wide is not None:
            image.fill(wide.runs, *half)
    num_pages = layout.num_pages + 3
    numbers = data.draw(st.permutations(range(num_pages)))[: layout.num_pages]
    pool = pool_of(page_elements, num_pages, dtype)
    image.write(pool, numbers)
    index = build_index(layout, halves.scales, numbers)
    check_index(index, pool, halves, ranks)
    warn_about_absent = sorted(set(range(num_pages)) - set(numbers))
    assert pool.elements.view(num_pages, -1)[warn_about_absent].isnan().all()


@dataclass(frozen=True)
class Halves:
    linears: Sequence[tuple[torch.Tensor, torch.Tensor]]
    embedding: tuple[torch.Tensor, torch.Tensor]
    lm_head: tuple[torch.Tensor, torch.Tensor]
    scales: AdapterScales


def random_halves(targets: TargetModules, ranks: AdapterRanks, dtype: torch.dtype) -> Halves:
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    vocab, hidden = SIZES.vocab_size, SIZES.hidden_size
    return Halves(
        linears=[
            (random(rank, target.in_features), random(target.out_features, rank).T)
            for target, rank in zip(targets.linears, ranks.linears, strict=True)
        ],
        embedding=(random(ranks.embedding, vocab).T, random(hidden, ranks.embedding).T),
        lm_head=(random(vocab, ranks.lm_head), random(ranks.lm_head, hidden)),
        scales=AdapterScales(
            linears=tuple(0.5 + module for module in range(len(targets.linears))),
            embedding=0.25,
            lm_head=0.125,
        ),
    )


def rows_at(pool: PoolTensor, offsets: Int64, width: int) -> torch.Tensor:
    places = torch.from_numpy(offsets)[:, None] + torch.arange(width)
    return pool.elements[places]


def check_index(index: AdapterIndex, pool: PoolTensor, halves: Halves, ranks: AdapterRanks) -> None:
    assert tuple(index.ranks_M) == ranks.linears
    assert tuple(index.scales_M) == halves.scales.linears
    for number, target in enumerate(TARGETS.linears):
        first = index.firsts_M[number]
        rows = slice(first, first + index.ranks_M[number])
        down, up = halves.linears[number]
        assert torch.equal(rows_at(pool, index.down_offsets_R[rows], target.in_features), down)
        assert torch.equal(rows_at(pool, index.up_offsets_R[rows], target.out_features), up)
    assert len(index.down_offsets_R) == len(index.up_offsets_R) == sum(ranks.linears)
    check_wide(index.embedding, pool, halves.embedding, ranks.embedding, 0.25)
    check_wide(index.lm_head, pool, halves.lm_head, ranks.lm_head, 0.125)


def check_wide(
    wide: WideRows | None,
    pool: PoolTensor,
    half: tuple[torch.Tensor, torch.Tensor],
    rank: int,
    scale: float,
) -> None:
    if wide is None:
        assert rank == 0
        return
    assert (wide.rank, wide.scale) == (rank, scale)
    assert torch.equal(rows_at(pool, wide.vocab_offsets_V, rank), half[0])
    assert torch.equal(rows_at(pool, wide.hidden_offsets_R, SIZES.hidden_size), half[1])


def test_modules_are_numbered_as_in_a_step() -> None:
    names = [target.path.rsplit(".", 1)[-1] for target in TARGETS.linears]
    assert names == [*MODULES, *MODULES]
    assert TARGETS.linears[len(MODULES) + 6].path == "model.layers.1.mlp.down_proj"
    assert TARGETS.num_layers == 2


@cases(
    "ranks, message",
    case(
        "a row of B longer than a page",
        AdapterRanks(linears=(1,) * NUM_LINEARS),
        "gate_proj has rows of 40 numbers; a page holds 38; raise page_tokens",
    ),
    case(
        "a token's values longer than a page",
        AdapterRanks(linears=(0,) * NUM_LINEARS, embedding=39),
        "model.embed_tokens has rows of 39 numbers; a page holds 38",
    ),
)
def test_a_row_longer_than_a_page_is_refused(ranks: AdapterRanks, message: str) -> None:
    with pytest.raises(AdapterError, match=message):
        plan_layout(TARGETS, ranks, 38)


def test_the_number_of_pages_must_be_the_layouts() -> None:
    layout = plan_layout(TARGETS, AdapterRanks(linears=(2,) * NUM_LINEARS), 100)
    scales = AdapterScales(linears=(1.0,) * NUM_LINEARS)
    with pytest.raises(ValueError, match="1 pages; the adapter has"):
        build_index(layout, scales, [0])


def test_little_is_lost_at_the_sizes_of_a_real_model() -> None:
    smollm2 = Sizes(
        num_layers=30,
        hidden_size=576,
        intermediate_size=1536,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        vocab_size=49152,
    )
    targets = decoder_targets(smollm2)
    page_elements = 2 * 30 * 3 * 64 * 16
    ranks = AdapterRanks(linears=(16,) * len(targets.linears))
    layout = plan_layout(targets, ranks, page_elements)
    assert layout.num_pages == 27
    inner = layout.num_pages - 1
    assert sum(page_elements - fill for fill in layout.fills_P[:-1]) < 0.005 * inner * page_elements
    wide = plan_layout(
        targets, AdapterRanks(linears=(16,) * len(targets.linears), lm_head=5), page_elements
    )
    assert wide.num_pages == 28
