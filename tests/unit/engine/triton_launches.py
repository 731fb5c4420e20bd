"""Records the kernels that a decoder would launch, and compiles them for a missing device.

Needs Triton without its interpreter, and so a separate process.
"""

import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
import triton
from tests.unit.engine.native_model import Shape
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from hostelry.engine.kernels.batch import MODULES, AdapterIndex, ForwardBatch, LoraSegment
from hostelry.engine.kernels.pool import PoolLayout, PoolTensor
from hostelry.engine.kernels.shard import Shard
from hostelry.engine.kernels.weights import (
    DecoderWeights,
    LayerWeights,
    Projection,
    RopeTables,
)
from hostelry.engine.layers.cuda_decoder import CudaDecoder
from hostelry.engine.layers.parallel import shard_weights

VOCABULARY = 1000
META = torch.device("meta")
_TYPES = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
_OPTIONS = ("num_warps", "num_stages")


@dataclass(frozen=True)
class Launch:
    """A kernel with everything that determines its machine code."""

    name: str
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    divisible: tuple[int, ...]
    options: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Compiled:
    """The result of compiling a kernel."""

    name: str
    num_registers: int
    num_spilled_bytes: int
    num_shared_bytes: int
    loads: tuple[str, ...]


class Recorder:
    """Records launches instead of making them, as a context manager."""

    def __init__(self) -> None:
        self.launches: dict[Launch, Any] = {}
        self._original = JITFunction.__getitem__

    def __enter__(self) -> "Recorder":
        recorder = self

        def launcher(kernel: Any, grid: Sequence[int]) -> Callable[..., None]:
            assert 1 <= len(grid) <= 3
            assert all(0 < it < 65_536 for it in grid[1:]), "a grid's further sides are 16 bits"
            return lambda *values, **named: recorder._take(kernel, values, named)

        JITFunction.__getitem__ = launcher
        return self

    def __exit__(self, *_: object) -> None:
        JITFunction.__getitem__ = self._original

    def _take(self, kernel: Any, values: Sequence[Any], named: dict[str, Any]) -> None:
        options = {name: named.pop(name) for name in _OPTIONS if name in named}
        signature, constants, divisible = {}, {}, []
        given = {**dict(zip(kernel.arg_names, values, strict=False)), **named}
        assert set(given) == set(kernel.arg_names), "every parameter is given"
        for place, parameter in enumerate(kernel.params):
            value = given[parameter.name]
            if parameter.is_constexpr:
                signature[parameter.name] = "constexpr"
                constants[parameter.name] = value
            elif isinstance(value, torch.Tensor):
                signature[parameter.name] = _TYPES[value.dtype]
                divisible.append(place)  # torch's memory begins at multiples of 512 bytes
            elif isinstance(value, float):
                signature[parameter.name] = "fp32"
            else:
                signature[parameter.name] = "i32" if abs(value) < 1 << 31 else "i64"
                if value % 16 == 0 and not parameter.do_not_specialize:
                    divisible.append(place)
        launch = Launch(
            kernel.fn.__name__,
            tuple(signature.items()),
            tuple(constants.items()),
            tuple(divisible),
            tuple(options.items()),
        )
        self.launches[launch] = kernel


def compiled(launch: Launch, kernel: Any, capability: int, scratch: Path) -> Compiled:
    """Machine code for devices with this compute capability (90 is 9.0)."""
    source = ASTSource(
        kernel,
        dict(launch.signature),
        dict(launch.constants),
        {(place,): [["tt.divisibility", 16]] for place in launch.divisible},
    )
    result = triton.compile(
        source, target=GPUTarget("cuda", capability, 32), options=dict(launch.options)
    )
    cubin = scratch / "kernel.cubin"
    cubin.write_bytes(result.asm["cubin"])
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    usage = subprocess.run(
        [tool, "-res-usage", cubin], capture_output=True, text=True, check=True
    ).stdout
    registers, stack, local = (
        int(re.findall(rf"{name}:(\d+)", usage)[-1]) for name in ("REG", "STACK", "LOCAL")
    )
    loads = re.findall(r"(?:ld\.global|cp\.async)\S*", result.asm["ptx"])
    return Compiled(
        name=launch.name,
        num_registers=registers,
        num_spilled_bytes=stack + local,
        num_shared_bytes=int(result.metadata.shared),
        loads=tuple(loads),
    )


def meta_model(shape: Shape, dtype: torch.dtype) -> DecoderWeights:
    """One layer of a model without memory, for its shapes only."""

    def empty(*size: int, dtype: torch.dtype = dtype) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=META)

    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    head_norm = empty(shape.head_dim) if shape.has_head_norms else None
    layer = LayerWeights(
        input_norm_H=empty(shape.hidden),
        qkv=Projection(weight_OI=empty(query + 2 * key, shape.hidden)),
        q_norm_D=head_norm,
        k_norm_D=head_norm,
        o=Projection(weight_OI=empty(shape.hidden, query)),
        attn_out_norm_H=empty(shape.hidden) if shape.has_out_norms else None,
        mlp_norm_H=empty(shape.hidden),
        gate_up=Projection(weight_OI=empty(2 * shape.inner, shape.hidden)),
        down=Projection(weight_OI=empty(shape.hidden, shape.inner)),
        mlp_out_norm_H=None,
        window=shape.window,
        rope=0,
    )
    turns = empty(4096, shape.head_dim // 2, dtype=torch.float32)
    return DecoderWeights(
        num_layers=1,
        num_heads=shape.heads,
        num_kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        norm_eps=1e-5,
        attention_scale=shape.head_dim**-0.5,
        activation="gelu_tanh" if shape.is_gelu else "silu",
        embedding_scale=1.0,
        embedding_VH=empty(VOCABULARY, shape.hidden),
        lm_head_VH=empty(VOCABULARY, shape.hidden),
        final_norm_H=empty(shape.hidden),
        ropes=[RopeTables(cos_PD=turns, sin_PD=turns)],
        layer=lambda _: layer,
        dtype=dtype,
    )


class FirstOfTwo:
    """The collective of rank 0 of two, without the other."""

    shard = Shard(0, 2)

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tensor([2 * VOCABULARY]) if x.dtype is torch.int64 else x

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x, x])


def launches_of(
    weights: DecoderWeights, page_tokens: int, *, max_rank: int, is_shared: bool = False
) -> Recorder:
    """The launches of a decode step and a prefill step, with adapters of `rank` on all modules."""
    if is_shared:
        weights = shard_weights(weights, FirstOfTwo.shard)
    decoder = CudaDecoder(weights, FirstOfTwo() if is_shared else None)
    layout = PoolLayout(
        num_layers=weights.num_layers,
        num_kv_heads=weights.num_kv_heads,
        head_dim=weights.head_dim,
        page_tokens=page_tokens,
        dtype=weights.dtype,
    )
    pool = PoolTensor(layout, 64, META)
    num_modules = weights.num_layers * len(MODULES)
    rows = numpy.zeros(num_modules * max_rank, numpy.int64)
    index = AdapterIndex(
        ranks_M=numpy.full(num_modules, max_rank, numpy.int32),
        scales_M=numpy.ones(num_modules, numpy.float32),
        firsts_M=numpy.arange(num_modules, dtype=numpy.int32) * max_rank,
        down_offsets_R=rows,
        up_offsets_R=rows,
    )
    with Recorder() as recorder:
        for counts in ((1, 1, 1), (70,)):
            starts_B1 = numpy.cumsum([0, *counts]).astype(numpy.int32)
            num_rows = int(starts_B1[-1])
            positions_T = numpy.concatenate([numpy.arange(it) for it in counts])
            decoder.forward(
                ForwardBatch(
                    token_ids_T=numpy.zeros(num_rows, numpy.int32),
                    positions_T=positions_T.astype(numpy.int32),
                    row_starts_B1=starts_B1,
                    lengths_B=numpy.array(counts, numpy.int32),
                    pages_BP=numpy.zeros((len(counts), 9), numpy.int32),
                    logit_rows_S=numpy.zeros(1, numpy.int32),
                    segments=[LoraSegment(row_start=0, row_end=num_rows, index=index)],
                ),
                pool,
            )
    return recorder


def compile_all(
    shape: Shape, dtype: torch.dtype, capability: int, scratch: Path, is_shared: bool
) -> list[Compiled]:
    """Compile all kernels that such a model launches, at most two variants of each."""
    recorder = launches_of(meta_model(shape, dtype), 16, max_rank=64, is_shared=is_shared)
    variants: dict[str, int] = {}
    found = []
    for launch, kernel in recorder.launches.items():
        variants[launch.name] = variants.get(launch.name, 0) + 1
        if variants[launch.name] <= 2:
            found.append(compiled(launch, kernel, capability, scratch))
    return found
