"""Triton's kernels without a GPU, run by its interpreter against their twins in torch."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.cases import case, cases
from tests.selection import thorough
from tests.unit.engine.triton_worker import Run, worker

MIXED = {"q_proj": 3, "v_proj": 9, "o_proj": 1, "up_proj": 17, "down_proj": 2}
FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16


@pytest.fixture(scope="module")
def interpreted() -> Iterator[Run]:
    with worker({"TRITON_INTERPRET": "1"}) as run:
        yield run


@pytest.mark.parametrize(
    ("fields", "dtype", "page_tokens", "adapters"),
    [
        pytest.param({}, FP32, 16, {}, id="plain"),
        pytest.param({}, FP16, 5, {"ranks": MIXED}, id="fp16 in odd pages, with adapters"),
        thorough({}, BF16, 16, {}, id="bf16"),
        pytest.param(
            {
                "heads": 6,
                "has_bias": True,
                "has_head_norms": True,
                "has_out_norms": True,
                "is_gelu": True,
                "is_tied": False,
                "window": 7,
                "embedding_scale": 8.0,
            },
            FP32,
            4,
            {"ranks": MIXED},
            id="all that a model may have, and adapters of mixed ranks",
        ),
        pytest.param(
            {"head_dim": 24, "kv_heads": 1},
            FP32,
            16,
            {"ranks": {"q_proj": 4}, "embedding": 3, "lm_head": 2},
            id="an adapter of the vocabulary",
        ),
    ],
)
def test_the_decoder_gives_the_logits_of_torch(
    interpreted: Run, fields: Any, dtype: torch.dtype, page_tokens: int, adapters: Any
) -> None:
    interpreted("triton_cases.decoder_case", fields, dtype, page_tokens, adapters)


def test_a_bucket_gives_the_bits_of_the_step_alone(interpreted: Run) -> None:
    interpreted("triton_cases.replay_case", FP16)


def test_a_bucket_of_a_mixed_step_gives_the_logits_of_the_step_alone(interpreted: Run) -> None:
    interpreted("triton_cases.mixed_replay_case", FP16)


@pytest.mark.parametrize("is_tiled", [False, True], ids=["row by row", "in tiles"])
@cases(
    "counts, ranks, widths, in_features, dtype",
    case(
        "decoding rows of mixed ranks",
        (1, 1, 1, 1),
        ([16, 16, 16], None, [1, 0, 5], [0, 33, 16]),
        (40, 16, 16),
        72,
        FP32,
    ),
    case("a prompt among others", (19, 2, 1), ([4, 20], None, [8, 0]), (300, 300), 40, FP32),
    case("more in-features than one program takes", (2, 1), ([7], [64]), (70,), 2100, FP32),
    case("bf16", (2, 1), ([7], [3]), (64,), 48, BF16),
    case("fp16", (2, 1), ([7], [3]), (64,), 48, FP16),
)
def test_adapters_are_added_as_torch_does(
    interpreted: Run,
    counts: Any,
    ranks: Any,
    widths: Any,
    in_features: int,
    dtype: torch.dtype,
    is_tiled: bool,
) -> None:
    interpreted("triton_cases.lora_case", counts, ranks, widths, in_features, dtype, is_tiled)


@pytest.mark.parametrize("is_tiled", [False, True], ids=["row by row", "in tiles"])
def test_ranks_that_share_an_adapter_add_what_one_rank_adds(
    interpreted: Run, is_tiled: bool
) -> None:
    interpreted("triton_cases.shared_lora_case", is_tiled)


@cases(
    "spans, heads, head_dim, page_tokens, window, dtype",
    case("decoding rows", [(199, 200), (0, 1), (64, 65)], (4, 2), 16, 16, None, FP32),
    case("decoding rows with a window", [(130, 131), (70, 71)], (3, 3), 16, 16, 70, FP32),
    case("prompts in chunks", [(0, 21), (90, 95), (9, 10)], (6, 2), 24, 5, None, FP32),
    case("prompts with a window", [(0, 30), (75, 80)], (2, 1), 8, 4, 9, FP32),
    case("a window of one", [(0, 9), (3, 4)], (2, 2), 16, 1, 1, FP32),
    case("bf16, seven heads", [(0, 5), (70, 71)], (7, 1), 16, 16, None, BF16),
    case("fp16", [(0, 5), (70, 71)], (2, 1), 16, 16, None, FP16),
    case("wide heads", [(0, 3), (40, 41)], (2, 1), 256, 16, None, FP32),
)
def test_attention_is_that_of_torch(
    interpreted: Run,
    spans: Any,
    heads: Any,
    head_dim: int,
    page_tokens: int,
    window: int | None,
    dtype: torch.dtype,
) -> None:
    interpreted("triton_cases.attention_case", spans, heads, head_dim, page_tokens, window, dtype)


@pytest.mark.parametrize(("width", "dtype"), [(64, FP32), (100, FP16), (100, BF16)])
def test_norms_are_those_of_torch(interpreted: Run, width: int, dtype: torch.dtype) -> None:
    interpreted("triton_cases.norm_case", width, dtype)


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16])
def test_activations_are_those_of_torch(interpreted: Run, dtype: torch.dtype) -> None:
    interpreted("triton_cases.gate_case", dtype)
