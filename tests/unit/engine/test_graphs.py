"""Steps that are replayed as graphs, and the contents of their block. Needs no device."""

from collections.abc import Sequence

import numpy
import pytest
import torch
from tests.cases import case, cases
from tests.unit.engine.native_model import Shape, model

from hostelry.base.clock import ManualClock
from hostelry.engine.kernels.batch import (
    AdapterIndex,
    ForwardBatch,
    Int64,
    LoraSegment,
    WideRows,
)
from hostelry.engine.kernels.decoder import LogitsDecoder
from hostelry.engine.kernels.pool import PoolLayout, PoolTensor
from hostelry.engine.kernels.triton.availability import why_unavailable
from hostelry.engine.kernels.triton.step import DeviceStep, StepBlock, get_step_sizes
from hostelry.engine.kernels.triton.tables import (
    HEADER_WORDS,
    AdapterTables,
    StepAdapters,
    build_adapter_table,
)
from hostelry.engine.layers.decoder import TorchDecoder
from hostelry.engine.runner.graphs import (
    Compute,
    GraphedDecoder,
    GraphKind,
    GraphLimits,
    build_cuda_decoder,
    choose_cuda_kernels,
)

CPU = torch.device("cpu")
LAYOUT = PoolLayout(num_layers=1, num_kv_heads=1, head_dim=2, page_tokens=4, dtype=torch.float32)


def adapter(rank: int = 2, *, first: int = 8, wide: bool = False) -> AdapterIndex:
    """An adapter of two modules, the second of them without rank."""
    rows: Int64 = numpy.arange(rank, dtype=numpy.int64) * 8 + first
    return AdapterIndex(
        ranks_M=numpy.array([rank, 0], numpy.int32),
        scales_M=numpy.array([0.5, 2.0], numpy.float32),
        firsts_M=numpy.array([0, rank], numpy.int32),
        down_offsets_R=rows,
        up_offsets_R=rows + 80,
        lm_head=WideRows(rank=1, scale=1.0, vocab_offsets_V=rows, hidden_offsets_R=rows[:1])
        if wide
        else None,
    )


def batch(
    counts: Sequence[int],
    owners: Sequence[AdapterIndex | None] = (),
    *,
    num_pages: int = 3,
    logit_rows: Sequence[int] | None = None,
) -> ForwardBatch:
    """Sequences with these numbers of rows. Tokens are 100, 101 and so on."""
    starts_B1 = numpy.cumsum([0, *counts]).astype(numpy.int32)
    num_rows = int(starts_B1[-1])
    return ForwardBatch(
        token_ids_T=numpy.arange(100, 100 + num_rows, dtype=numpy.int32),
        positions_T=numpy.arange(num_rows, dtype=numpy.int32),
        row_starts_B1=starts_B1,
        lengths_B=numpy.array(counts, numpy.int32),
        pages_BP=numpy.arange(len(counts) * num_pages, dtype=numpy.int32).reshape(-1, num_pages),
        logit_rows_S=numpy.array(
            range(num_rows) if logit_rows is None else logit_rows, numpy.int32
        ),
        segments=[
            LoraSegment(row_start=int(start), row_end=int(start) + count, index=owner)
            for start, count, owner in zip(starts_B1, counts, owners, strict=False)
            if owner is not None
        ],
    )


class CountingDecoder(LogitsDecoder):
    """Returns the rows' tokens as logits, and counts how they were computed."""

    device = CPU
    max_len = 12

    def __init__(self) -> None:
        self._tables = AdapterTables(CPU)
        self.num_eager = 0
        self.steps: list[DeviceStep] = []

    def adapters(self, segments: Sequence[LoraSegment]) -> StepAdapters:
        return self._tables.get(segments)

    def tile_rows(self, layout: PoolLayout) -> int:
        return 4

    def forward(self, batch: ForwardBatch, pool: PoolTensor) -> torch.Tensor:
        self.num_eager += 1
        return torch.from_numpy(batch.token_ids_T[batch.logit_rows_S]).float().unsqueeze(1)

    def compute(self, step: DeviceStep, pool: PoolTensor) -> torch.Tensor:
        self.steps.append(step)
        return step.token_ids_T[step.logit_rows_S.long()].float().unsqueeze(1)


class FakeCapture:
    """Captures by keeping the work. Each graph takes `bytes_each` and `seconds_each`."""

    def __init__(self, clock: ManualClock, bytes_each: int = 10, seconds_each: float = 1.0) -> None:
        self._clock = clock
        self._bytes = 0
        self._bytes_each, self._seconds_each = bytes_each, seconds_each
        self.error: str | None = None
        self.num_captures = 0

    def __call__(self, compute: Compute) -> Compute:
        if self.error is not None:
            raise RuntimeError(self.error)
        compute()
        self.num_captures += 1
        self._bytes += self._bytes_each
        self._clock.advance(self._seconds_each)
        return compute

    def num_bytes(self) -> int:
        return self._bytes


class Bench:
    """A graphed decoder and its parts."""

    def __init__(self, limits: GraphLimits | None = None, **costs: float) -> None:
        clock = ManualClock()
        self.decoder = CountingDecoder()
        self.capture = FakeCapture(clock, **costs)  # type: ignore[arg-type]
        limits = limits or GraphLimits(max_batch_size=6, max_lora_rank=16, mixed_buckets=(4, 8))
        self.graphed = GraphedDecoder(self.decoder, limits, self.capture, clock)
        self.pool = PoolTensor(LAYOUT, 8, CPU)

    def run(self, step: ForwardBatch, times: int = 1, pool: PoolTensor | None = None) -> None:
        for _ in range(times):
            logits = self.graphed.forward(step, pool or self.pool)
            wanted = step.token_ids_T[step.logit_rows_S].tolist()
            assert logits[:, 0].tolist() == wanted


@pytest.mark.parametrize(
    ("max_batch_size", "buckets"),
    [
        (1, (1,)),
        (3, (1, 2, 3)),
        (32, (1, 2, 4, 8, 16, 32)),
        (100, (1, 2, 4, 8, 16, 32, 64, 96, 100)),
    ],
)
def test_buckets_end_with_the_largest_batch(max_batch_size: int, buckets: tuple[int, ...]) -> None:
    limits = GraphLimits(max_batch_size=max_batch_size, max_lora_rank=8)
    assert limits.buckets == buckets
    for rows in range(1, max_batch_size + 1):
        assert limits.bucket(rows) == min(it for it in buckets if it >= rows)
    assert limits.bucket(max_batch_size + 1) is None


@cases(
    "step, kind",
    case("one row", batch([1]), GraphKind(1, False, True)),
    case("rows of the next bucket", batch([1, 1, 1]), GraphKind(4, False, True)),
    case("a row with an adapter", batch([1, 1], [None, adapter()]), GraphKind(2, True, True)),
    case(
        "an adapter whose rows begin anywhere",
        batch([1, 1], [None, adapter(first=3)]),
        GraphKind(2, True, False),
    ),
    case("an adapter of nothing", batch([1, 1], [adapter(rank=0)]), GraphKind(2, False, True)),
    case(
        "logits of some rows in another order",
        batch([1, 1, 1], logit_rows=[2, 0]),
        GraphKind(4, False, True),
    ),
    case("a prompt", batch([2], logit_rows=[1]), GraphKind(4, False, True, True)),
    case(
        "a prompt and a decoding row",
        batch([1, 3], logit_rows=[0, 3]),
        GraphKind(4, False, True, True),
    ),
    case(
        "a prompt with an adapter",
        batch([1, 6], [None, adapter()], logit_rows=[0, 6]),
        GraphKind(8, True, True, True),
    ),
)
def test_steps_are_captured_when_they_come_again(step: ForwardBatch, kind: GraphKind) -> None:
    bench = Bench()
    bench.run(step)
    assert (bench.decoder.num_eager, bench.graphed.kinds) == (1, frozenset())
    bench.run(step, times=3)
    assert bench.decoder.num_eager == 1
    assert bench.graphed.kinds == {kind}
    assert bench.capture.num_captures == 1
    assert bench.decoder.steps[0].max_rank == (16 if kind.has_adapters else 0)
    assert not bench.graphed.warnings


@cases(
    "step",
    case("a prompt of more rows than the largest bucket", batch([9], logit_rows=[8])),
    case("a prompt whose rows all give logits", batch([7])),
    case("more sequences than the largest batch", batch([1] * 6 + [2], logit_rows=[0])),
    case("more rows than the largest batch", batch([1] * 7)),
    case("more pages than the longest sequence has", batch([1], num_pages=4)),
    case("a rank beyond the limit", batch([1], [adapter(rank=17)])),
    case("an update of the vocabulary", batch([1], [adapter(wide=True)])),
    case("more logits than rows", batch([1], logit_rows=[0, 0, 0])),
)
def test_other_steps_are_computed_at_once(step: ForwardBatch) -> None:
    bench = Bench()
    bench.run(step, times=4)
    assert bench.decoder.num_eager == 4
    assert bench.graphed.kinds == frozenset()


def test_all_graphs_are_captured_before_the_first_step() -> None:
    bench = Bench()
    bench.graphed.prepare(bench.pool)
    kinds = bench.graphed.kinds
    assert kinds == set(
        GraphLimits(max_batch_size=6, max_lora_rank=16, mixed_buckets=(4, 8)).list_kinds()
    )
    assert len(kinds) == 3 * (4 + 2), "buckets of 1, 2, 4, 6 rows, and of 4 and 8 with prompts"
    for step in (batch([1] * 5), batch([1, 3], logit_rows=[0, 3]), batch([1], [adapter(first=3)])):
        bench.run(step)
    bench.run(batch([9], logit_rows=[8]), times=3)
    assert bench.decoder.num_eager == 3
    assert bench.graphed.kinds == kinds
    assert bench.capture.num_captures == len(kinds)


def test_a_failed_capture_before_the_first_step_leaves_the_other_steps() -> None:
    bench = Bench(GraphLimits(max_batch_size=6, max_lora_rank=16, max_bytes=25))
    bench.graphed.prepare(bench.pool)
    bench.run(batch([1]), times=2)
    bench.run(batch([1] * 5), times=3)
    assert (bench.decoder.num_eager, bench.capture.num_captures) == (2, 3), "the largest are first"


def test_a_mixed_step_has_room_for_the_most_tiles() -> None:
    bench = Bench()
    bench.graphed.prepare(bench.pool)
    owners = [adapter(), adapter(rank=3), adapter(rank=4), adapter(rank=5)]
    bench.run(batch([2, 2, 2, 2], owners, logit_rows=[1, 3, 5, 7]))
    bench.run(batch([5, 3], owners[:2], logit_rows=[4, 7]))
    step = bench.decoder.steps[-1]
    assert step.is_tiled
    assert step.prefill_tiles_F3[:3].tolist() == [[0, 4, 0], [4, 1, 0], [5, 3, 1]]
    assert not step.prefill_tiles_F3[3:].any()
    assert step.lora_tiles_L2[:2].tolist() == [[0, 5], [5, 3]]


def test_graphs_belong_to_one_pool() -> None:
    bench = Bench()
    bench.run(batch([1]), times=3)
    bench.run(batch([1]), pool=PoolTensor(LAYOUT, 8, CPU))
    assert bench.decoder.num_eager == 2


def test_steps_with_and_without_adapters_have_graphs_of_their_own() -> None:
    bench = Bench()
    for owners in ([None, None], [adapter(), None], [adapter(rank=5), adapter(rank=16)]):
        bench.run(batch([1, 1], owners), times=2)
    assert bench.graphed.kinds == {GraphKind(2, False, True), GraphKind(2, True, True)}


def test_a_failed_capture_is_a_warning_and_not_tried_again() -> None:
    bench = Bench()
    bench.run(batch([1]), times=2)
    bench.capture.error = "out of memory"
    bench.run(batch([1, 1]), times=4)
    bench.run(batch([1] * 4), times=4)
    bench.run(batch([1]), times=2)
    assert bench.decoder.num_eager == 1 + 4 + 4
    (warning,) = bench.graphed.warnings
    assert "2 rows could not be captured (RuntimeError: out of memory)" in warning


@cases(
    "limits, text",
    case("memory", {"max_bytes": 15}, "20 bytes of at most 15"),
    case("time", {"max_capture_s": 1.5}, "2.0 s of at most 1.5 s"),
)
def test_captures_are_bounded(limits: dict[str, float], text: str) -> None:
    bench = Bench(GraphLimits(max_batch_size=8, max_lora_rank=16, **limits))  # type: ignore[arg-type]
    for rows in (1, 2, 4, 8):
        bench.run(batch([1] * rows), times=3)
    assert bench.capture.num_captures == 2
    (warning,) = bench.graphed.warnings
    assert text in warning


def test_a_smaller_step_leaves_nothing_of_a_larger_one() -> None:
    bench = Bench()
    owners = [adapter(), adapter(rank=3), adapter(rank=4)]
    bench.run(batch([1, 1, 1, 1], owners), times=2)
    bench.run(batch([1, 1, 1], [None, None, adapter()]))
    step = bench.decoder.steps[-1]
    assert step.sequences_T.tolist() == [0, 1, 2, -1]
    assert step.decode_tiles_D3.tolist() == [[0, 1, 0], [1, 1, 1], [2, 1, 2], [0, 0, 0]]
    assert [it != 0 for it in step.tables_T.tolist()] == [False, False, True, False]
    assert step.pages_PB[:, :3].T.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_a_mixed_step_is_cut_into_tiles() -> None:
    step = batch([1, 9, 1], [None, adapter(), adapter(rank=3)])
    adapters = AdapterTables(CPU).get(step.segments)
    block = StepBlock(get_step_sizes(step, tile_rows=4, is_tiled=True), CPU)
    block.send(step, adapters, tile_rows=4)
    view = block.view(max_rank=3, is_aligned=True, is_tiled=True)
    assert view.decode_tiles_D3.tolist() == [[0, 1, 0], [10, 1, 2]]
    assert view.prefill_tiles_F3.tolist() == [[1, 4, 1], [5, 4, 1], [9, 1, 1]]
    assert view.lora_tiles_L2.tolist() == [[1, 9], [10, 1]]
    assert view.sequences_T.tolist() == [0] + [1] * 9 + [2]
    assert view.positions_T.tolist() == list(range(11))
    assert view.tables_T.tolist() == [0] + [adapters.addresses[0]] * 9 + [adapters.addresses[1]]


def test_a_table_has_the_offsets_of_rows() -> None:
    words = build_adapter_table(adapter(rank=3))
    header = words[: 2 * HEADER_WORDS].reshape(2, HEADER_WORDS)
    assert header[:, 0].tolist() == [3, 0]
    assert header[:, 1].astype(numpy.int32).view(numpy.float32).tolist() == [0.5, 2.0]
    down_at, up_at = header[0, 2:]
    assert words[down_at : down_at + 3].tolist() == [8, 16, 24]
    assert words[up_at : up_at + 3].tolist() == [88, 96, 104]


def test_tables_are_sent_once_and_the_oldest_go() -> None:
    tables = AdapterTables(CPU, most_bytes=3 * len(build_adapter_table(adapter())) * 8)
    indices = [adapter() for _ in range(4)]

    def address(*chosen: int) -> tuple[int, ...]:
        return tables.get(
            batch([1] * len(chosen), [indices[it] for it in chosen]).segments
        ).addresses

    first = address(0, 1)
    assert address(0, 1) == first
    assert len(set(address(0, 1, 2, 3))) == 4  # the inputs of a step exist in any case
    assert tables.num_bytes == 4 * len(build_adapter_table(indices[0])) * 8
    address(3)
    assert tables.num_bytes == 3 * len(build_adapter_table(indices[0])) * 8


def test_on_a_cpu_the_reason_is_that_triton_is_for_cuda() -> None:
    assert why_unavailable(CPU) == "Triton's kernels are for CUDA devices; this is cpu"


def test_where_triton_is_missing_torch_computes_with_a_warning() -> None:
    kernels, warning = choose_cuda_kernels(CPU)
    assert kernels == "torch"
    assert warning is not None
    assert warning.endswith("Triton's kernels are for CUDA devices; this is cpu")
    limits = GraphLimits(max_batch_size=1, max_lora_rank=8)
    weights = model(Shape(), torch.float32)
    decoder = build_cuda_decoder(weights, kernels, limits=limits, clock=ManualClock())
    assert isinstance(decoder, TorchDecoder)
