"""An adapter divided over ranks: every number on some rank, and no row across a page's end."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostelry.engine.kernels.batch import Int64
from hostelry.engine.kernels.shard import Shard, share_module
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.layout import AdapterRanks
from hostelry.engine.lora.share import SharePlan, count_share_pages, plan_share
from hostelry.engine.lora.targets import TargetModule, decoder_targets


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


TARGETS = decoder_targets(Sizes())
COUNT = len(TARGETS.linears)
RANKS = st.one_of(st.just(0), st.integers(1, 9))


@st.composite
def mixed_ranks(draw: st.DrawFn) -> AdapterRanks:
    linears = draw(st.lists(RANKS, min_size=COUNT, max_size=COUNT))
    return AdapterRanks(linears=tuple(linears), embedding=draw(RANKS), lm_head=draw(RANKS))


def rows_of(plan: SharePlan, ranks: AdapterRanks) -> list[tuple[int, int]]:
    """(first element, width) of every row of a rank."""
    found: list[tuple[int, int]] = []

    def add(places: Int64, width: int) -> None:
        found.extend((int(place), width) for place in places if place >= 0)

    def share(target: TargetModule, rank: int) -> tuple[int, int]:
        name = target.path.rsplit(".", 1)[-1]
        sizes = {"in_features": target.in_features, "out_features": target.out_features}
        part = share_module(plan.shard, name, rank=rank, **sizes)
        columns = part.down_columns.stop - part.down_columns.start
        return columns, part.up_rows.stop - part.up_rows.start

    for target, rank, places in zip(TARGETS.linears, ranks.linears, plan.linears, strict=True):
        columns, outputs = share(target, rank)
        add(places.first, columns)
        add(places.second, outputs)
    add(plan.embedding.first, ranks.embedding)
    add(plan.embedding.second, 24)
    add(plan.lm_head.first, ranks.lm_head)
    add(plan.lm_head.second, 24)
    return found


def owners(parts: Sequence[Int64]) -> Int64:
    """On how many ranks each row is."""
    total: Int64 = numpy.sum([part >= 0 for part in parts], axis=0, dtype=numpy.int64)
    return total


@settings(max_examples=100, deadline=None)
@given(ranks=mixed_ranks(), world_size=st.sampled_from([1, 2, 4]), size=st.integers(64, 300))
def test_rows_lie_apart_within_pages(ranks: AdapterRanks, world_size: int, size: int) -> None:
    pages = count_share_pages(TARGETS, ranks, world_size, size)
    for rank in range(world_size):
        plan = plan_share(TARGETS, ranks, Shard(rank, world_size), size)
        assert plan.num_pages <= pages
        end = 0
        for start, width in sorted(rows_of(plan, ranks)):
            assert start >= end, "two rows overlap"
            end = start + width
            assert start // size == (end - 1) // size, "a row crosses the end of a page"
        assert -(-end // size) == plan.num_pages


@settings(max_examples=50, deadline=None)
@given(ranks=mixed_ranks(), world_size=st.sampled_from([1, 2, 4]))
def test_every_row_is_somewhere(ranks: AdapterRanks, world_size: int) -> None:
    plans = [plan_share(TARGETS, ranks, Shard(it, world_size), 256) for it in range(world_size)]
    for number, (target, rank) in enumerate(zip(TARGETS.linears, ranks.linears, strict=True)):
        everywhere = target.path.endswith(("o_proj", "down_proj"))
        first = owners([plan.linears[number].first for plan in plans])
        assert first.tolist() == [world_size if everywhere else 1] * rank
        second = owners([plan.linears[number].second for plan in plans])
        assert second.tolist() == [world_size] * rank
    tokens = 53 if ranks.embedding else 0
    assert owners([plan.embedding.first for plan in plans]).tolist() == [1] * tokens
    assert (
        owners([plan.embedding.second for plan in plans]).tolist() == [world_size] * ranks.embedding
    )
    tokens = 53 if ranks.lm_head else 0
    assert owners([plan.lm_head.first for plan in plans]).tolist() == [1] * tokens
    assert owners([plan.lm_head.second for plan in plans]).tolist() == [1] * ranks.lm_head


def test_two_ranks_hold_no_more_than_one_and_the_filling() -> None:
    ranks = AdapterRanks(linears=(8,) * COUNT)
    one = count_share_pages(TARGETS, ranks, 1, 512)
    assert count_share_pages(TARGETS, ranks, 2, 256) <= one + 1


def test_a_row_longer_than_a_page_is_refused() -> None:
    ranks = AdapterRanks(linears=(4,) * COUNT)
    with pytest.raises(AdapterError, match="q_proj has rows of 24 numbers; a page holds 16; raise"):
        plan_share(TARGETS, ranks, Shard(0, 2), 16)
