"""Refusals of the native decoder before it computes."""

from typing import Any

import numpy
import pytest
import torch
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

from hostelry.engine.kernels.native import structures


def changed(values: Any, at: Any, value: int) -> Any:
    """A copy with one value changed."""
    copy = values.copy()
    copy[at] = value
    return copy


@cases(
    "field, change, message",
    case("token -1", "token_ids_T", lambda a: changed(a, 3, -1), r"token_ids_T\[3\] is -1"),
    case("token 199", "token_ids_T", lambda a: changed(a, 3, 199), "is 199; the vocabulary"),
    case("int64", "token_ids_T", lambda a: a.astype(numpy.int64), "token_ids_T is int64"),
    case("every other element", "token_ids_T", lambda a: numpy.repeat(a, 2)[::2], "not contiguous"),
    case("short", "positions_T", lambda a: a[:-1], r"positions_T is int32 \(11,\)"),
    case("position", "positions_T", lambda a: changed(a, 2, 9), r"positions_T\[2\] is 9"),
    case("start 1", "row_starts_B1", lambda a: changed(a, 0, 1), r"row_starts_B1\[0\] is 1"),
    case("no row", "row_starts_B1", lambda a: changed(a, 1, 0), r"row_starts_B1\[1\] is 0"),
    case("row left out", "row_starts_B1", lambda a: changed(a, 2, 11), r"positions_T\[4\] is 0"),
    case("far row", "row_starts_B1", lambda a: changed(a, 1, 99), r"row_starts_B1\[1\] is 99"),
    case("length too small", "lengths_B", lambda a: changed(a, 0, 3), r"lengths_B\[0\] is 3"),
    case("length too large", "lengths_B", lambda a: changed(a, 0, 161), "160 positions"),
    case("no pages", "pages_BP", lambda a: a[:, :0], r"lengths_B\[0\]"),
    case("flat pages", "pages_BP", lambda a: a[0], "pages_BP"),
    case("page -1", "pages_BP", lambda a: changed(a, (1, 0), -1), r"pages_BP\[1\] has page -1"),
    case("far page", "pages_BP", lambda a: changed(a, (1, 0), 10**6), "has page 1000000"),
    case("logit row", "logit_rows_S", lambda a: changed(a, 1, 12), r"logit_rows_S\[1\] is 12"),
    case(
        "segment too long",
        "segments",
        lambda a: [replace(a[0], row_end=13)],
        r"segments\[0\] has the row bound 13",
    ),
    case("segments overlap", "segments", lambda a: [a[0], a[0]], r"segments\[1\] has"),
    case("empty segment", "segments", lambda a: [replace(a[0], row_start=4)], r"bound 4"),
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


@cases(
    "field, change, message",
    case("modules", "ranks_M", lambda a: a[:-1], r"ranks_M is int32 \(13,\)"),
    case("rank -1", "ranks_M", lambda a: changed(a, 4, -1), "ranks_M -1"),
    case("rank 99", "ranks_M", lambda a: changed(a, 13, 99), "ranks_M 99"),
    case("first -1", "firsts_M", lambda a: changed(a, 0, -1), "firsts_M -1"),
    case("type", "scales_M", lambda a: a.astype(numpy.float64), "scales_M is float64"),
    case("offset -5", "down_offsets_R", lambda a: changed(a, 7, -5), "down_offsets_R has -5"),
    case("far offset", "up_offsets_R", lambda a: changed(a, 7, 2**50), "up_offsets_R has"),
    case("offsets missing", "up_offsets_R", lambda a: a[:-1], "up_offsets_R is"),
    case("wide rank", "lm_head", lambda a: replace(a, rank=5), r"lm_head.hidden_offsets_R is"),
    case("wide rank 0", "embedding", lambda a: replace(a, rank=0), "has rank 0"),
    case(
        "wide offset",
        "embedding",
        lambda a: replace(a, vocab_offsets_V=changed(a.vocab_offsets_V, 9, -2)),
        r"embedding.vocab_offsets_V has -2",
    ),
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


@cases(
    "change, message",
    case("a dtype without kernels", {"dtype": torch.float16}, "float16"),
    case("heads too wide", {"head_dim": 258}, "head_dim is 258"),
    case("heads of odd width", {"head_dim": 15}, "head_dim is 15"),
    case("uneven groups", {"num_kv_heads": 3}, "share 3 key-value heads"),
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


def test_an_adapter_in_use_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structures, "_MOST", 2)
    memory = Memory(model(Shape(), torch.float32))
    hot, *others = (memory.adapter(ALL_RANKS, seed) for seed in range(4))
    checked: list[object] = []
    known = structures.AdapterStructures((), 0, 64, VOCABULARY)
    monkeypatch.setattr(known, "_check", lambda index, _: checked.append(index))
    for index in others:
        known.get(hot, 10**6)
        known.get(index, 10**6)
    assert [it is hot for it in checked] == [True, False, False, False]
