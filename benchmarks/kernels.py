"""All products of one step of SmolLM2-135M, by our packed kernels and by torch's bf16 linear.

Each product has a different weight, so that no weight comes from a cache. The head is computed for
at most 16 rows, as prompts need it for their last one only. Each figure sums the best time of each
product over the repeats, which other work on the machine disturbs least.

    python -m benchmarks.kernels [--threads N] [--repeats N] [--variant NAME]
"""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

from benchmarks.record import print_table, write_result
from hostelry.engine.kernels.native.gemm import KindName, PackedWeight
from hostelry.engine.kernels.native.library import NativeLibrary, NativeThreads

LAYERS = 30
LAYER_SHAPES = ((960, 576), (576, 576), (3072, 576), (576, 1536))  # (out, in)
HEAD_SHAPE = (49152, 576)
ROWS = (1, 16, 512)
HEAD_ROWS = 16
SEED = 0

Product = Callable[[torch.Tensor], Any]


def main() -> None:
    """Print the table and write it to bench-results/kernels.json."""
    arguments = parse_arguments()
    torch.manual_seed(SEED)
    torch.set_num_threads(arguments.threads)
    library = NativeLibrary.load(arguments.variant)
    threads = NativeThreads(library, arguments.threads)
    weights = [
        torch.randn(shape).mul_(0.02).bfloat16() for shape in (*LAYER_SHAPES * LAYERS, HEAD_SHAPE)
    ]
    table = [
        *measure_native(library, threads, weights, "bfloat16", arguments.repeats),
        *measure_native(library, threads, weights, "int8", arguments.repeats),
        *measure_torch(weights, arguments.repeats),
    ]
    overhead_us = threads.measure_overhead_s() * 1e6
    print_table(f"all products of a step, {arguments.threads} threads", table)
    print(f"dividing work among the threads takes {overhead_us:.2f} us")
    setting = f"{library.variant}, {arguments.threads} threads, best of {arguments.repeats}"
    write_result("kernels", setting, SEED, {"steps": table, "divide_us": overhead_us})


def parse_arguments() -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--variant", default=None, help="default: the fastest for this CPU")
    return parser.parse_args()


def measure_native(
    library: NativeLibrary,
    threads: NativeThreads,
    weights: Sequence[torch.Tensor],
    kind: KindName,
    repeats: int,
) -> list[dict[str, Any]]:
    """Measure our kernels for each number of rows."""
    started = time.perf_counter()
    packed = [PackedWeight(library, threads, weight, kind=kind) for weight in weights]
    print(f"packing as {kind} takes {time.perf_counter() - started:.3f} s")
    products: list[Product] = [
        lambda x_TI, weight=weight: weight.product(x_TI, threads)  # type: ignore[misc]
        for weight in packed
    ]
    num_bytes = sum(weight.num_bytes for weight in packed)
    name = f"{library.variant} {kind}"
    return [measure(name, products, weights, num_bytes, rows, repeats) for rows in ROWS]


def measure_torch(weights: Sequence[torch.Tensor], repeats: int) -> list[dict[str, Any]]:
    """Measure torch's linear on plain bf16 weights, with rows that are already in bf16."""
    products: list[Product] = [
        lambda x_TI, weight=weight: functional.linear(x_TI, weight)  # type: ignore[misc]
        for weight in weights
    ]
    num_bytes = sum(weight.nbytes for weight in weights)
    return [measure("torch bf16", products, weights, num_bytes, rows, repeats) for rows in ROWS]


def measure(
    name: str,
    products: Sequence[Product],
    weights: Sequence[torch.Tensor],
    num_bytes: int,
    num_rows: int,
    repeats: int,
) -> dict[str, Any]:
    """One line of the table."""
    rows = [num_rows] * (len(products) - 1) + [min(num_rows, HEAD_ROWS)]
    dtype = torch.bfloat16 if name.startswith("torch") else torch.float32
    inputs = {size: torch.randn(num_rows, size).to(dtype) for size in (576, 1536)}
    best_s = [float("inf")] * len(products)
    for _ in range(repeats):
        for number, product in enumerate(products):
            x_TI = inputs[weights[number].shape[1]][: rows[number]]
            started = time.perf_counter()
            product(x_TI)
            best_s[number] = min(best_s[number], time.perf_counter() - started)
    step_s = sum(best_s)
    flops = sum(2 * count * it.numel() for count, it in zip(rows, weights, strict=True))
    return {
        "kernel": name,
        "rows": num_rows,
        "step_ms": step_s * 1e3,
        "gb_per_s": num_bytes / step_s / 1e9,
        "gflop_per_s": flops / step_s / 1e9,
    }


if __name__ == "__main__":
    main()
