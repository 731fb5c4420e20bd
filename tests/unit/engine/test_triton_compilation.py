"""Triton's kernels compile for devices that are not here, within their means."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.cases import case, cases
from tests.unit.engine.native_model import Shape
from tests.unit.engine.triton_worker import Run, worker

KERNELS = {
    "add_norm_rows",
    "attend_tiles",
    "expand_rows",
    "expand_tiles",
    "gate_rows",
    "merge_splits",
    "shrink_rows",
    "shrink_tiles",
    "store_rows",
}
SHARED_BYTES = {80: 163 << 10, 90: 227 << 10}  # of one program, CUDA C++ Programming Guide


@pytest.fixture(scope="module")
def compiling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    cache = str(tmp_path_factory.mktemp("triton"))
    with worker({"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": cache}) as run:
        yield run


@pytest.mark.slow
@cases(
    "shape, dtype, capability, is_shared",
    case(
        "a Llama of 7B on an H200",
        Shape(heads=32, kv_heads=32, head_dim=128, hidden=4096, inner=11008),
        torch.bfloat16,
        90,
        False,
    ),
    case(
        "a rank of two of that Llama",
        Shape(heads=32, kv_heads=32, head_dim=128, hidden=4096, inner=11008),
        torch.bfloat16,
        90,
        True,
        marks=pytest.mark.thorough,
    ),
    case(
        "a Gemma of 4B on an A100",
        Shape(
            heads=8,
            kv_heads=4,
            head_dim=256,
            hidden=2560,
            inner=10240,
            has_head_norms=True,
            has_out_norms=True,
            is_gelu=True,
            window=512,
        ),
        torch.float16,
        80,
        False,
        marks=pytest.mark.thorough,
    ),
)
def test_kernels_compile(
    compiling: Run,
    shape: Shape,
    dtype: torch.dtype,
    capability: int,
    is_shared: bool,
    tmp_path: Path,
) -> None:
    kernels = compiling(
        "triton_launches.compile_all", shape, dtype, capability, tmp_path, is_shared
    )
    assert {it.name for it in kernels} == KERNELS
    for kernel in kernels:
        assert kernel.num_spilled_bytes == 0, kernel
        assert kernel.num_shared_bytes <= SHARED_BYTES[capability], kernel
        # Weights, keys and values are read as vectors, whose elements are of 16 bits here.
        if kernel.name != "store_rows":
            assert not any("b16" in load for load in kernel.loads), kernel
