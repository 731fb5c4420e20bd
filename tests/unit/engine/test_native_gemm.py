"""Packed products in native code against the plain-torch twins, for every variant of this machine.

# T rows, I in-features, O out-features
"""

import ctypes
from collections.abc import Iterator

import numpy
import pytest
import torch
from tests.cases import case, cases
from tests.selection import thorough

from hostelry.engine.kernels.native.gemm import KindName, PackedWeight
from hostelry.engine.kernels.native.library import (
    LINE_BYTES,
    LineMemory,
    NativeLibrary,
    NativeThreads,
    available_variants,
)
from hostelry.engine.kernels.products import WeightKind, product, quantize_int8

VARIANTS = available_variants()
KINDS: tuple[KindName, ...] = ("float32", "bfloat16", "int8")
# The sum of 1,536 products in fp32, in another order than torch's.
TOLERANCE = 5e-6


@pytest.fixture(params=VARIANTS)
def library(request: pytest.FixtureRequest) -> NativeLibrary:
    return NativeLibrary.load(str(request.param))


@pytest.fixture
def threads(library: NativeLibrary) -> Iterator[NativeThreads]:
    threads = NativeThreads(library, 2)
    yield threads
    threads.close()


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Bitwise equality: zeros of different sign differ, equal nans do not."""
    return torch.equal(left.view(torch.int32), right.view(torch.int32))


def test_this_machine_has_a_variant_to_test() -> None:
    assert "portable" in VARIANTS


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        pytest.param("float32", torch.float32, id="fp32 as it is"),
        pytest.param("bfloat16", torch.bfloat16, id="bf16 as it is"),
        pytest.param("int8", torch.float32, id="int8 of fp32"),
        thorough("float32", torch.bfloat16, id="fp32 of bf16"),
        thorough("bfloat16", torch.float32, id="bf16 of fp32"),
        thorough("int8", torch.bfloat16, id="int8 of bf16"),
    ],
)
@cases(
    "num_out, num_in",
    case("one weight", 1, 1),
    case("one tile", 16, 32),
    case("one more than a tile", 17, 33),
    case("one less than a tile", 15, 31),
    case("a short depth", 100, 7),
    case("few outputs", 3, 1000),
    case("an odd number of blocks", 80, 128),
    case("SmolLM2's output projection", 576, 576),
    case("SmolLM2's depth of the down projection", 64, 1536),
)
def test_products_are_the_twins(
    library: NativeLibrary,
    threads: NativeThreads,
    kind: KindName,
    dtype: torch.dtype,
    num_out: int,
    num_in: int,
) -> None:
    weight_OI, bias_O = random(num_out, num_in, seed=1).to(dtype), random(num_out, seed=2)
    packed = PackedWeight(library, threads, weight_OI, kind=kind, bias_O=bias_O)
    for num_rows in (1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 48, 97, 100):
        x_TI = random(num_rows, num_in, seed=num_rows)
        wanted_TO = product(x_TI, weight_OI, bias_O, packed.kind)
        unit = product(x_TI.abs(), weight_OI.abs(), bias_O.abs(), packed.kind).amax()
        found_TO = packed.product(x_TI, threads)
        assert found_TO.shape == wanted_TO.shape
        assert (found_TO - wanted_TO).abs().amax() <= TOLERANCE * unit, num_rows


@pytest.mark.parametrize("kind", KINDS)
@cases("num_out, num_in", case("wide", 1000, 576), case("deep and odd", 50, 1530))
def test_a_row_is_the_same_alone_and_in_any_company(
    library: NativeLibrary, threads: NativeThreads, kind: KindName, num_out: int, num_in: int
) -> None:
    packed = PackedWeight(library, threads, random(num_out, num_in), kind=kind)
    one_thread, four_threads = NativeThreads(library, 1), NativeThreads(library, 4)
    x_TI = random(400, num_in, seed=3)
    together_TO = packed.product(x_TI, threads)
    for num_rows in (*range(1, 18), 31, 32, 33, 34, 49, 64, 100, 289):
        for first in (0, 400 - num_rows):
            rows = slice(first, first + num_rows)
            assert same_bits(packed.product(x_TI[rows], one_thread), together_TO[rows])
    assert same_bits(packed.product(x_TI, four_threads), together_TO)
    assert same_bits(packed.product(x_TI.flip(0), threads).flip(0), together_TO)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_rows", [1, 16, 40])
def test_products_are_added_to_what_is_there_and_leave_the_rest_alone(
    library: NativeLibrary, threads: NativeThreads, kind: KindName, num_rows: int
) -> None:
    packed = PackedWeight(library, threads, random(50, 96), kind=kind)
    x_TI, before_TO = random(num_rows, 96, seed=1), random(num_rows, 64, seed=2)
    prepared = LineMemory(1).take(
        library.functions.hostelry_prepared_bytes(packed.kind, num_rows, 96)
    )
    found_TO = before_TO.clone()
    library.functions.hostelry_gemm(
        threads.handle,
        ctypes.byref(packed.structure),
        x_TI.data_ptr(),
        96,
        num_rows,
        found_TO.data_ptr(),
        64,
        1,
        prepared.ctypes.data,
    )
    assert torch.equal(found_TO[:, :50], before_TO[:, :50] + packed.product(x_TI, threads))
    assert torch.equal(found_TO[:, 50:], before_TO[:, 50:])


@pytest.mark.parametrize("kind", KINDS)
def test_an_output_is_the_same_in_any_weight(
    library: NativeLibrary, threads: NativeThreads, kind: KindName
) -> None:
    weight_OI, x_TI = random(200, 96), random(20, 96, seed=1)
    whole_TO = PackedWeight(library, threads, weight_OI, kind=kind).product(x_TI, threads)
    for outputs in (slice(0, 1), slice(37, 90), slice(150, 200)):
        part = PackedWeight(library, threads, weight_OI[outputs], kind=kind)
        assert same_bits(part.product(x_TI, threads), whole_TO[:, outputs].contiguous())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_reaches_every_output_of_its_row_and_no_other(
    library: NativeLibrary, threads: NativeThreads, kind: KindName, value: float
) -> None:
    weight_OI, x_TI = random(40, 70).abs() + 0.5, random(37, 70, seed=1)
    packed = PackedWeight(library, threads, weight_OI, kind=kind)
    usual_TO = packed.product(x_TI, threads)
    x_TI[18, 69] = value
    found_TO = packed.product(x_TI, threads)
    others = torch.arange(37) != 18
    assert same_bits(found_TO[others], usual_TO[others])
    expected = torch.full((40,), value)
    assert torch.equal(found_TO[18].nan_to_num(7), expected.nan_to_num(7))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_is_not_hidden(
    library: NativeLibrary, threads: NativeThreads, kind: KindName, value: float
) -> None:
    weight_OI = random(20, 40)
    weight_OI[3, 39] = value
    packed = PackedWeight(library, threads, weight_OI, kind=kind)
    found_TO = packed.product(random(5, 40, seed=1), threads)
    strange = ~found_TO.isfinite()
    assert strange[:, 3].all()
    assert strange.sum() == 5


@pytest.mark.parametrize("kind", KINDS)
def test_no_rows_and_rows_of_zeros(
    library: NativeLibrary, threads: NativeThreads, kind: KindName
) -> None:
    bias_O = random(20, seed=1)
    packed = PackedWeight(library, threads, random(20, 40), kind=kind, bias_O=bias_O)
    assert packed.product(torch.empty(0, 40), threads).shape == (0, 20)
    assert torch.equal(packed.product(torch.zeros(3, 40), threads), bias_O.expand(3, 20))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_int8_numbers_and_scales_are_the_twins(
    library: NativeLibrary, threads: NativeThreads, dtype: torch.dtype
) -> None:
    weight_OI = random(33, 64).to(dtype)
    weight_OI[5] = 0
    weight_OI[6] = 1e-42  # so small that its scale is nothing
    codes_OI, scales_O = quantize_int8(weight_OI)
    packed = PackedWeight(library, threads, weight_OI, kind="int8")
    units_TO = packed.product(torch.eye(64), threads)  # one number times its scale each
    wanted_TO = codes_OI.float().T * scales_O
    assert torch.equal(units_TO[:, scales_O > 1e-30], wanted_TO[:, scales_O > 1e-30])
    assert not units_TO[:, 5].any()
    assert not units_TO[:, 6].abs().gt(1e-41).any()


def test_int8_is_within_half_a_step_of_the_weight() -> None:
    weight_OI = random(50, 300)
    codes_OI, scales_O = quantize_int8(weight_OI)
    assert codes_OI.abs().amax(dim=1).eq(127).all()
    error_OI = (codes_OI.float() * scales_O[:, None] - weight_OI).abs()
    assert (error_OI <= scales_O[:, None] * 0.5001).all()


def test_bf16_of_every_float_is_torchs(library: NativeLibrary, threads: NativeThreads) -> None:
    """As seen through a product with one: all upper halves, the ties between, and their sides."""
    halves = numpy.arange(0, 2**16, 7, dtype=numpy.uint32) << 16
    bits = numpy.concatenate([halves | low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])
    x_TI = torch.from_numpy(bits.astype(numpy.uint32).view(numpy.float32))[:, None].contiguous()
    normal = (x_TI.abs() >= 2.0**-125) | x_TI.isnan()  # below, AMX and dpbf16 know zero only
    x_TI = x_TI[normal][:, None]
    packed = PackedWeight(library, threads, torch.ones(1, 1), kind="bfloat16")
    wanted_TO = x_TI.bfloat16().float()
    found_TO = packed.product(x_TI, threads)
    assert torch.equal(found_TO.nan_to_num(5), wanted_TO.nan_to_num(5))


@cases(
    "weight_OI, bias_O, kind, message",
    case("a vector", torch.ones(3), None, "auto", r"shape \(3,\)"),
    case("no outputs", torch.ones(0, 4), None, "auto", r"shape \(0, 4\)"),
    case("no inputs", torch.ones(4, 0), None, "auto", r"shape \(4, 0\)"),
    case("half precision", torch.ones(2, 2).half(), None, "auto", "float16"),
    case("whole numbers", torch.ones(2, 2).int(), None, "auto", "int32"),
    case("elsewhere", torch.ones(2, 2, device="meta"), None, "auto", "meta"),
    case("another bias", torch.ones(2, 2), torch.ones(3), "auto", "bias"),
    case("an unknown kind", torch.ones(2, 2), None, "int4", "'int4'"),
)
def test_what_cannot_be_packed_is_refused(
    weight_OI: torch.Tensor, bias_O: torch.Tensor | None, kind: KindName, message: str
) -> None:
    library = NativeLibrary.load("portable")
    with pytest.raises(ValueError, match=message):
        PackedWeight(library, NativeThreads(library, 1), weight_OI, kind=kind, bias_O=bias_O)


@cases(
    "x_TI",
    case("of another width", torch.ones(2, 5)),
    case("a vector", torch.ones(4)),
    case("not fp32", torch.ones(2, 4).bfloat16()),
)
def test_rows_that_do_not_fit_are_refused(x_TI: torch.Tensor) -> None:
    library = NativeLibrary.load("portable")
    threads = NativeThreads(library, 1)
    packed = PackedWeight(library, threads, torch.ones(3, 4))
    with pytest.raises(ValueError, match="the weight takes"):
        packed.product(x_TI, threads)


def test_the_tensors_own_type_is_kept() -> None:
    library = NativeLibrary.load("portable")
    threads = NativeThreads(library, 1)
    assert PackedWeight(library, threads, torch.ones(2, 3)).kind is WeightKind.F32
    half = PackedWeight(library, threads, torch.ones(2, 3).bfloat16())
    assert half.kind is WeightKind.BF16
    assert half.num_bytes == 16 * 32 * 2


def test_int8_takes_one_byte_a_weight_and_one_scale_an_output() -> None:
    library = NativeLibrary.load("portable")
    packed = PackedWeight(library, NativeThreads(library, 1), torch.ones(2, 3), kind="int8")
    assert packed.num_bytes == 16 * 32 + 16 * 4


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_weight_need_not_be_neighbours(kind: KindName) -> None:
    library = NativeLibrary.load()
    threads = NativeThreads(library, 2)
    wide_OI, x_TI = random(40, 100), random(3, 30, seed=1)
    for view_OI in (wide_OI[:, 50:80], wide_OI.T[20:50, 3:33], wide_OI[::3, 7:37]):
        found_TO = PackedWeight(library, threads, view_OI, kind=kind).product(x_TI, threads)
        copied = PackedWeight(library, threads, view_OI.contiguous(), kind=kind)
        assert same_bits(found_TO, copied.product(x_TI, threads))


def test_many_more_threads_than_cpus_and_several_at_once() -> None:
    library = NativeLibrary.load()
    crowd, pinned = NativeThreads(library, 16), NativeThreads(library, 3, pin=True)
    packed = PackedWeight(library, crowd, random(300, 64))
    x_TI = random(50, 64, seed=1)
    first = packed.product(x_TI, crowd)
    for _ in range(50):
        assert same_bits(packed.product(x_TI, crowd), first)
        assert same_bits(packed.product(x_TI, pinned), first)
    assert crowd.measure_overhead_s(repeats=10) > 0
    pinned.close()
    pinned.close()


def test_no_threads_are_refused() -> None:
    with pytest.raises(ValueError, match="num_threads is 0"):
        NativeThreads(NativeLibrary.load("portable"), 0)


def test_memory_is_zero_begins_on_lines_and_is_not_given_twice() -> None:
    memory = LineMemory(chunk_bytes=4096)
    taken = [memory.take(num_bytes) for num_bytes in (1, 64, 65, 4000, 10_000, 0, 3)]
    for number, array in enumerate(taken):
        assert array.ctypes.data % LINE_BYTES == 0
        assert not array.any()
        array[:] = number
    assert [len(array) for array in taken] == [1, 64, 65, 4000, 10_000, 0, 3]
    assert all((array == number).all() for number, array in enumerate(taken))
