"""On a CUDA device: Triton's kernels and graphs against the plain decoder on the same device."""

import dataclasses
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy
import pytest
import torch
from msgspec.structs import asdict, replace
from tests.cases import case, cases
from tests.unit.engine.native_model import ALL_RANKS, Memory, Part, Shape, model, step

from hostelry.base.clock import SystemClock
from hostelry.engine.kernels.batch import MODULES, AdapterIndex
from hostelry.engine.kernels.pool import PoolTensor
from hostelry.engine.kernels.weights import DecoderWeights, LayerWeights, RopeTables
from hostelry.engine.layers.decoder import TorchDecoder
from hostelry.engine.runner.graphs import CudaCapture, GraphedDecoder, GraphKind, GraphLimits

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION"),
]

CUDA = torch.device("cuda")
# Relative to the largest logit. Rounding alone moves the plain decoder this far from its fp32
# result (3.7e-2 in bf16, 4.4e-3 in fp16 for these models). Other orders of sums round differently.
TOLERANCES = {torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 6e-3}
MIXED = dict(zip(MODULES, (3, 0, 9, 1, 0, 17, 2), strict=True))
STEPS = (
    (Part(sequence=0, start=0, end=70), Part(sequence=1, start=0, end=5)),
    (
        Part(sequence=1, start=5, end=6),
        Part(sequence=2, start=0, end=130),
        Part(sequence=0, start=70, end=71),
    ),
    *(
        tuple(Part(sequence=n, start=at + k, end=at + k + 1) for n, at in ((0, 71), (1, 6)))
        for k in range(4)
    ),
)


def cuda_decoder(weights: DecoderWeights) -> Any:
    from hostelry.engine.layers.cuda_decoder import CudaDecoder

    return CudaDecoder(weights)


def graphed(
    weights: DecoderWeights, max_batch_size: int = 8, mixed_buckets: tuple[int, ...] = ()
) -> GraphedDecoder:
    limits = GraphLimits(
        max_batch_size=max_batch_size, max_lora_rank=64, mixed_buckets=mixed_buckets
    )
    return GraphedDecoder(cuda_decoder(weights), limits, CudaCapture(CUDA), SystemClock())


def moved(value: Any) -> Any:
    """A tensor, or a value that holds tensors, on the device."""
    if isinstance(value, torch.Tensor):
        return value.to(CUDA)
    if isinstance(value, msgspec.Struct):
        return replace(value, **{name: moved(it) for name, it in asdict(value).items()})
    return value


def on_cuda(weights: DecoderWeights) -> DecoderWeights:
    layers: list[LayerWeights] = [moved(weights.layer(n)) for n in range(weights.num_layers)]
    ropes: list[RopeTables] = [moved(it) for it in weights.ropes]
    whole: DecoderWeights = moved(replace(weights, ropes=(), layer=layers.__getitem__))
    return replace(whole, ropes=ropes)


def twins(memory: Memory) -> tuple[PoolTensor, PoolTensor]:
    """Two pools on the device with the contents of the memory's pool."""
    pools = [PoolTensor(memory.layout, memory.pool.num_pages, CUDA) for _ in range(2)]
    for pool in pools:
        pool.elements.copy_(memory.pool.elements)
    return pools[0], pools[1]


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("ranks", [{}, MIXED, dict.fromkeys(MODULES, 64)])
@cases(
    "shape, page_tokens",
    case("plain", Shape(), 16),
    case("seven heads share keys, odd pages", Shape(heads=7, kv_heads=1), 5),
    case("heads of 256", Shape(heads=2, kv_heads=1, head_dim=256), 16),
    case("heads of 80", Shape(head_dim=80), 16),
    case("a window", Shape(window=7), 16),
    case("biases and own lm_head", Shape(has_bias=True, is_tied=False), 16),
    case(
        "norms and gelu",
        Shape(has_head_norms=True, has_out_norms=True, is_gelu=True, embedding_scale=8.0),
        16,
    ),
)
def test_logits_are_those_of_torch(
    shape: Shape, page_tokens: int, ranks: dict[str, int], dtype: torch.dtype
) -> None:
    weights = model(dataclasses.replace(shape, hidden=72, inner=104), dtype)
    memory = Memory(weights, page_tokens, content=float("nan"))
    owners: list[AdapterIndex | None] = [None, None, None]
    if ranks:
        owners = [memory.adapter(ranks, 1, scale=0.05), None, memory.adapter(ALL_RANKS, 2)]
    weights = on_cuda(weights)
    mine, twin = twins(memory)
    decoder, reference = graphed(weights), TorchDecoder(weights)
    for parts in STEPS:
        batch = step(memory, [dataclasses.replace(it, index=owners[it.sequence]) for it in parts])
        found, wanted = decoder.forward(batch, mine), reference.forward(batch, twin)
        error = float((found - wanted).abs().max() / wanted.abs().max())
        assert error <= TOLERANCES[dtype]
    assert decoder.warnings == ()
    assert {it.bucket for it in decoder.kinds} == {2}


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_a_replay_gives_what_the_launches_give(dtype: torch.dtype) -> None:
    """Bits are equal for equal numbers of rows, on which the sums of cuBLAS depend."""
    weights = model(Shape(), dtype)
    memory = Memory(weights)
    index = memory.adapter(MIXED, 1)
    weights = on_cuda(weights)
    mine, twin = twins(memory)
    decoder, eager = graphed(weights), cuda_decoder(weights)
    for at in range(6):
        owners = (None, None) if at % 2 else (index, None)
        parts = [
            Part(sequence=n, start=at, end=at + 1, index=owner) for n, owner in enumerate(owners)
        ]
        batch = step(memory, parts)
        found = decoder.forward(batch, mine).clone()
        assert torch.equal(found, eager.forward(batch, twin))
    assert torch.equal(mine.elements, twin.elements)
    assert {(it.bucket, it.has_adapters) for it in decoder.kinds} == {(2, False), (2, True)}


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_steps_with_prompts_are_replayed_once_all_graphs_are_captured(dtype: torch.dtype) -> None:
    weights = model(Shape(), dtype)
    memory = Memory(weights)
    owners = [memory.adapter(MIXED, 1), None, memory.adapter(ALL_RANKS, 2)]
    weights = on_cuda(weights)
    mine, twin = twins(memory)
    decoder, reference = graphed(weights, mixed_buckets=(16, 64)), TorchDecoder(weights)
    decoder.prepare(mine)
    kinds = decoder.kinds
    for parts in STEPS:
        batch = step(memory, [dataclasses.replace(it, index=owners[it.sequence]) for it in parts])
        batch = replace(batch, logit_rows_S=(batch.row_starts_B1[1:] - 1).astype(numpy.int32))
        found, wanted = decoder.forward(batch, mine), reference.forward(batch, twin)
        assert float((found - wanted).abs().max() / wanted.abs().max()) <= TOLERANCES[dtype]
    assert decoder.warnings == ()
    assert decoder.kinds == kinds


@pytest.fixture
def busy_copies() -> Iterator[None]:
    """Another thread copies pinned memory on its own stream and waits for it, without end."""
    stop = threading.Event()

    def copy() -> None:
        stream = torch.cuda.Stream(CUDA)  # type: ignore[no-untyped-call]
        target = torch.zeros(1 << 20, device=CUDA)
        while not stop.is_set():
            source = torch.zeros(1 << 20).pin_memory()
            with torch.cuda.stream(stream):
                target.copy_(source, non_blocking=True)
                done = torch.cuda.Event()  # type: ignore[no-untyped-call]
                done.record(stream)
            done.synchronize()

    thread = threading.Thread(target=copy)
    thread.start()
    yield
    stop.set()
    thread.join()


@pytest.mark.usefixtures("busy_copies")
def test_graphs_are_captured_while_adapters_are_copied() -> None:
    weights = model(Shape(), torch.bfloat16)
    memory = Memory(weights)
    weights = on_cuda(weights)
    mine, twin = twins(memory)
    decoder, reference = graphed(weights), TorchDecoder(weights)
    for at in range(12):
        batch = step(memory, first_tokens(1 + at % 6))
        found, wanted = decoder.forward(batch, mine), reference.forward(batch, twin)
        assert float((found - wanted).abs().max() / wanted.abs().max()) <= 4e-2
    assert decoder.warnings == ()


def first_tokens(rows: int) -> Sequence[Part]:
    """The first tokens of the sequences, repeated without end, for any number of rows."""
    return [Part(sequence=n, start=0, end=1) for n in range(rows)]


def test_a_replay_takes_the_adapter_that_lies_in_the_pages_now() -> None:
    """An adapter's pages are given to another one between two replays of one graph."""
    weights = model(Shape(), torch.float32)
    memory = Memory(weights)
    first = memory.adapter(ALL_RANKS, 1)
    other = memory.adapter(dict.fromkeys(MODULES, 5), 2)
    weights = on_cuda(weights)
    mine, twin = twins(memory)
    decoder, reference = graphed(weights), TorchDecoder(weights)
    upload = torch.cuda.Stream(CUDA)  # type: ignore[no-untyped-call]
    for at, index in enumerate([first, first, first, other, first, other]):
        batch = step(memory, [Part(sequence=0, start=at, end=at + 1, index=index)])
        found = decoder.forward(batch, mine).clone()
        torch.testing.assert_close(found, reference.forward(batch, twin), atol=1e-4, rtol=1e-4)
        queued = torch.cuda.Event()  # type: ignore[no-untyped-call]
        queued.record()
        changed = numpy.concatenate([first.down_offsets_R[:8], first.up_offsets_R[:8]])
        with torch.cuda.stream(upload):
            queued.wait(upload)
            for pool in (mine, twin):
                for offset in changed:
                    pool.elements[int(offset) : int(offset) + 8] += 0.1
        upload.synchronize()
    assert decoder.kinds == {GraphKind(1, True, False)}
