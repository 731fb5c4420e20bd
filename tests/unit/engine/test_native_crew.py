"""The number of computing threads, from plain numbers, and equal bits on a busy machine."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

import numpy
import pytest
import torch
from tests.cases import case, cases
from tests.unit.engine.native_model import ALL_RANKS, Memory, Part, Shape, model, native, step

from hostelry.engine.kernels.native.library import NativeLibrary

MS = 1_000_000
WHOLE, HALF = (50, 50), (50, 25)  # ms of a step, and how long its caller ran
LEAST_STEPS, MOST_STEPS = 300, 20_000


def sizes(num_threads: int, steps: Sequence[tuple[float, float]]) -> list[int]:
    wall_ns, cpu_ns = (
        numpy.array([int(it * MS) for it in column]) for column in zip(*steps, strict=True)
    )
    found = numpy.zeros(len(steps), numpy.int32)
    NativeLibrary.load().functions.hostelry_crew_sizes(
        num_threads,
        len(steps),
        wall_ns.ctypes.data,
        cpu_ns.ctypes.data,
        found.ctypes.data,
    )
    return [int(it) for it in found]


@cases(
    "num_threads, steps, expected",
    case("alone on the machine all compute", 2, [WHOLE] * 4, [2, 2, 2, 2]),
    case("two steps of lost time, and one computes", 2, [HALF] * 3, [2, 1, 1]),
    case("less than a fourth lost is borne", 2, [(100, 75.1)], [2]),
    case("more than a fourth is not", 2, [(100, 74.9)], [1]),
    case("a short pause alone decides nothing", 2, [(25, 0)], [2]),
    case("one of more than a fourth of the window decides at once", 2, [(26, 0)], [1]),
    case("a long step may lose as much as a fourth of it", 2, [(400, 350)], [2]),
    case("the more threads, the more go", 8, [(100, 0)] * 7, [6, 5, 4, 3, 2, 1, 1]),
    case("after a rest all are tried again", 2, [(100, 0), (100, 100)], [1, 2]),
    case(
        "a trial that fails doubles the rest",
        2,
        [(100, 0), (100, 100), (100, 0), (100, 100), (100, 100)],
        [1, 2, 1, 1, 2],
    ),
    case("without a whole CPU for one nothing is tried", 2, [(100, 0)] * 100, [1] * 100),
    case("one thread stays one", 1, [HALF] * 9, [1] * 9),
    case("a clock that runs ahead loses nothing", 2, [(100, 101)] * 2, [2, 2]),
)
def test_how_many_threads_compute(
    num_threads: int, steps: Sequence[tuple[float, float]], expected: list[int]
) -> None:
    assert sizes(num_threads, steps) == expected


def test_the_rest_after_failures_is_bounded() -> None:
    rests: list[int] = []
    rest = 0
    steps: list[tuple[float, float]] = [(100, 0)]
    while len(rests) < 8:
        found = sizes(2, steps)
        rest += 1
        if found[-1] == 2:
            rests.append(rest)
            rest = 0
        steps.append((100, 0) if found[-1] == 2 else (100, 100))
    assert rests[-1] == rests[-2] == 1 + 16


@contextlib.contextmanager
def busy_neighbours(count: int) -> Iterator[None]:
    """Processes that take all the time they get."""
    command = [sys.executable, "-S", "-c", "while True: pass"]
    busy = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_the_bits_stay_while_neighbours_take_the_cpus(dtype: torch.dtype) -> None:
    cpus = len(os.sched_getaffinity(0))
    weights = model(Shape(hidden=72), dtype)
    memory = Memory(weights)
    index = memory.adapter(ALL_RANKS, 1)
    batch = step(
        memory,
        [Part(sequence=0, start=0, end=40, index=index), Part(sequence=1, start=0, end=7)],
    )
    alone = native(weights, num_threads=1).forward(batch, memory.pool).clone()
    crowds = [native(weights, num_threads=n, pin_threads=n == cpus) for n in {2, 4 * cpus, cpus}]
    seen = set()
    with busy_neighbours(2 * cpus):
        for number in range(MOST_STEPS):
            for decoder in crowds:
                assert torch.equal(decoder.forward(batch, memory.pool), alone)
            seen.add(min(it.num_active_threads for it in crowds))
            if 1 in seen and number > LEAST_STEPS:
                break
    assert 1 in seen
