"""Many adapters on one GPU: decode steps of a random 7B Llama, against the memory's bound.

Prints the time of a decode step at several batch sizes, without adapters and with a different one
in each row out of 1 to 2,000 in the pool. It is a share of the bound: one reading of weights, keys,
values and adapters at a plain copy's bandwidth. Also prints the time to bring an adapter into the
pool from host memory and from disk, during steps and alone, and the time of PEFT's step.

--tiny runs on a CPU too, which only shows that the benchmark runs. The pool's default is for a
device of 141 GB. For a device of 80 GB, use --pool-gib 34.

``python -m benchmarks.gpu_multi_lora [--tiny] [--peft] [--pool-gib 90]``
"""

import argparse
import gc
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_model import (
    ATTENTION,
    PAGE_TOKENS,
    TINY,
    AdapterPages,
    Sizes,
    decode_batch,
    pool_layout,
    random_weights,
)
from benchmarks.gpu_peers import PeftPeer, saved_adapter
from benchmarks.record import print_table, write_result
from hostelry.base.clock import SystemClock
from hostelry.engine.kernels.batch import MODULES, AdapterIndex
from hostelry.engine.kernels.decoder import Decoder
from hostelry.engine.kernels.pool import PoolTensor
from hostelry.engine.lora.reader import AdapterReader, AdapterRules, BaseModel, PageForm
from hostelry.engine.lora.uploads import PoolUploader
from hostelry.engine.runner.graphs import GraphLimits, build_cuda_decoder, choose_cuda_kernels

SEED = 20261121
RANK = 16
PEFT_ADAPTERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The plan of the run. `adapters` are numbers of adapters and the modules they update."""

    sizes: Sizes
    batches: tuple[int, ...]
    adapters: tuple[tuple[int, tuple[str, ...]], ...]
    length: int
    steps: int
    loads: int
    peft_steps: int


FULL = Setting(
    sizes=Sizes(),
    batches=(1, 8, 16, 32, 64),
    adapters=(
        *((count, MODULES) for count in (1, 16, 100, 500, 1000)),
        *((count, ATTENTION) for count in (1, 100, 1000, 2000)),
    ),
    length=512,
    steps=50,
    loads=20,
    peft_steps=10,
)
SMOKE = Setting(
    sizes=TINY,
    batches=(1, 3),
    adapters=((1, MODULES), (4, ATTENTION)),
    length=20,
    steps=3,
    loads=2,
    peft_steps=2,
)


class Bench:
    """The model, its pool and its decoder on the device."""

    def __init__(self, setting: Setting, device: torch.device, pool_bytes: int) -> None:
        self.setting = setting
        self.device = device
        self.dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        sizes = setting.sizes
        layout = pool_layout(sizes, self.dtype)
        num_kv_pages = max(setting.batches) * -(-setting.length // PAGE_TOKENS)
        pool = PoolTensor(layout, num_kv_pages + pool_bytes // layout.page_bytes, device)
        self.pages = AdapterPages(sizes, pool, num_kv_pages)
        self.kernels, warning = choose_cuda_kernels(device)
        if warning is not None:
            print(warning)
        weights = random_weights(sizes, self.dtype, device)
        limits = GraphLimits(max_batch_size=max(setting.batches), max_lora_rank=64)
        self.decoder: Decoder = build_cuda_decoder(
            weights, self.kernels, limits=limits, clock=SystemClock()
        )
        self.random = random.Random(SEED)

    def synchronize(self) -> None:
        """Wait until all queued work is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def timed_ms(self, work: Callable[[], Any], count: int) -> list[float]:
        """Milliseconds that each of `count` calls takes until it is done."""
        times = []
        for _ in range(count):
            self.synchronize()
            started = time.perf_counter()
            work()
            self.synchronize()
            times.append((time.perf_counter() - started) * 1e3)
        return times

    def step(self, owners: Sequence[AdapterIndex | None]) -> None:
        """One decode step."""
        setting = self.setting
        batch = decode_batch(setting.length, owners, setting.sizes.vocab_size)
        self.decoder.forward(batch, self.pages.pool)

    def bytes_per_s(self) -> float:
        """Bytes a second that a plain copy in the device's memory reads and writes."""
        size = (4 << 30) if self.device.type == "cuda" else (16 << 20)
        source = torch.zeros(size, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        return 2 * size / (min(self.timed_ms(lambda: target.copy_(source), 5)) / 1e3)


def decode_rows(bench: Bench, bytes_per_s: float) -> list[dict[str, Any]]:
    """Steps of every batch size, without adapters and with a random one in each row."""
    rows = []
    sets = adapter_sets(bench)
    for batch in bench.setting.batches:
        base_owners: list[AdapterIndex | None] = [None] * batch
        base_ms = measured_step(bench, base_owners.copy)
        row = decode_row(bench, batch, base_ms, 0, bytes_per_s)
        rows.append({"adapters": 0, "modules": "-", **row, "over_base": 1.0})
        for adapters in sets:

            def owners(
                known: list[AdapterIndex] = adapters.known, batch: int = batch
            ) -> list[AdapterIndex | None]:
                distinct = bench.random.sample(known, min(batch, len(known)))
                return [distinct[row % len(distinct)] for row in range(batch)]

            step_ms = measured_step(bench, owners)
            count = len(adapters.known)
            lora_bytes = min(batch, count) * adapters.num_bytes
            row = decode_row(bench, batch, step_ms, lora_bytes, bytes_per_s)
            over_base = step_ms / base_ms
            rows.append(
                {"adapters": count, "modules": adapters.modules, **row, "over_base": over_base}
            )
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSet:
    """Adapters of one layout in the pool. Each takes `num_bytes`."""

    known: list[AdapterIndex]
    modules: str
    num_bytes: int


def adapter_sets(bench: Bench) -> list[AdapterSet]:
    """The setting's sets, each as large as the pool allows, with their tables on the device."""
    sets = []
    for wanted, modules in bench.setting.adapters:
        layout = bench.pages.layout(RANK, modules)
        count = min(wanted, bench.pages.room(layout))
        name = "all" if modules == MODULES else "attention"
        if (count, name) in {(len(it.known), it.modules) for it in sets}:
            continue
        known = [bench.pages.index(layout, number) for number in range(count)]
        most = max(bench.setting.batches)
        for start in range(0, count, most):
            bench.step(known[start : start + most])
        num_bytes = sum(layout.fills_P) * bench.dtype.itemsize
        sets.append(AdapterSet(known=known, modules=name, num_bytes=num_bytes))
    return sets


def measured_step(bench: Bench, owners: Callable[[], Sequence[AdapterIndex | None]]) -> float:
    """The median step in ms, where each step has newly drawn owners."""
    for _ in range(5):  # compiles kernels, captures graphs and sends tables
        bench.step(owners())
    return statistics.median(bench.timed_ms(lambda: bench.step(owners()), bench.setting.steps))


def decode_row(
    bench: Bench, batch: int, step_ms: float, lora_bytes: int, bytes_per_s: float
) -> dict[str, Any]:
    """A line of the table. The bound is the time of reading everything once."""
    sizes, item = bench.setting.sizes, bench.dtype.itemsize
    kv_elements = 2 * sizes.num_layers * sizes.num_kv_heads * sizes.head_dim
    kv_bytes = batch * bench.setting.length * kv_elements * item
    bound_ms = (sizes.step_parameters * item + kv_bytes + lora_bytes) / bytes_per_s * 1e3
    return {
        "batch": batch,
        "step_ms": step_ms,
        "tokens_per_s": batch / step_ms * 1e3,
        "share_of_bound": bound_ms / step_ms,
    }


def load_rows(bench: Bench, scratch: Path) -> list[dict[str, Any]]:
    """The time to the first step with an adapter that is in the pool, in host memory, on disk."""
    pages, pool = bench.pages, bench.pages.pool
    layout = pages.layout(RANK, MODULES)
    folder = saved_adapter(scratch / "adapter", pages.targets, RANK, bench.dtype, seed=SEED)
    reader = AdapterReader(
        BaseModel(targets=pages.targets),
        AdapterRules(),
        PageForm(
            page_elements=pool.layout.page_elements,
            dtype=bench.dtype,
            is_pinned=bench.device.type == "cuda",
        ),
    )
    uploader = PoolUploader(pool)
    adapter = reader.read(folder)
    known = adapter.index(pages.pages(layout, 0))

    def from_pool() -> None:
        bench.step([known])

    def newly_placed() -> None:
        bench.step([adapter.index(pages.pages(layout, 0))])

    def from_host() -> None:
        uploader.begin(adapter, pages.pages(layout, 0))()

    def from_disk() -> None:
        uploader.begin(reader.read(folder), pages.pages(layout, 0))()

    from_host()
    cases = {
        "a step, its adapter known": from_pool,
        "a step, its adapter newly placed (table sent)": newly_placed,
        "host memory to pool": from_host,
        "disk to pool (files in the page cache)": from_disk,
    }
    rows = []
    for name, work in cases.items():
        work()
        times = bench.timed_ms(work, bench.setting.loads)
        rows.append({"what": name, "median_ms": statistics.median(times), "max_ms": max(times)})
    return rows


def peft_rows(setting: Setting, device: torch.device, dtype: torch.dtype) -> list[dict[str, Any]]:
    """PEFT's steps of every batch size, without adapters and with some in turn."""
    peer = PeftPeer(setting.sizes, device, dtype, RANK)
    rows = []
    for count in (0, 1, PEFT_ADAPTERS):
        peer.add_adapters(count)
        for batch in setting.batches:
            step_ms = peer.step_ms(batch, setting.peft_steps)
            rows.append({"adapters": count, "batch": batch, "step_ms": step_ms})
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_multi_lora", description=__doc__
    )
    parser.add_argument("--tiny", action="store_true", help="a tiny model, on a CPU too")
    parser.add_argument("--peft", action="store_true", help="measure transformers and PEFT too")
    parser.add_argument("--pool-gib", type=float, default=90.0, help="of the pool, for adapters")
    arguments = parser.parse_args(argv)
    setting = SMOKE if arguments.tiny else FULL
    if not (arguments.tiny or torch.cuda.is_available()):
        parser.error("no CUDA device is here; --tiny runs on a CPU")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    pool_bytes = (8 << 20) if arguments.tiny else int(arguments.pool_gib * (1 << 30))
    with torch.inference_mode(), tempfile.TemporaryDirectory() as scratch:
        bench = Bench(setting, device, pool_bytes)
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        bytes_per_s = bench.bytes_per_s()
        print(f"{name}, {bench.kernels} kernels; a copy reaches {bytes_per_s / 1e9:.0f} GB/s")
        measured: dict[str, Any] = {
            "device": name,
            "kernels": bench.kernels,
            "copy_gb_per_s": bytes_per_s / 1e9,
            "decode": decode_rows(bench, bytes_per_s),
        }
        print_table("decode", measured["decode"])
        measured["loads"] = load_rows(bench, Path(scratch))
        print_table("adapters", measured["loads"])
        measured["warnings"] = list(getattr(bench.decoder, "warnings", []))
        for warning in measured["warnings"]:
            print(warning)
        dtype = bench.dtype
        del bench  # PEFT's model needs its memory
    if arguments.peft:
        gc.collect()
        torch.cuda.empty_cache()
        measured["peft"] = peft_rows(setting, device, dtype)
    print_table("transformers and PEFT", measured.get("peft", []))
    write_result("gpu_multi_lora", "tiny" if arguments.tiny else "full", SEED, measured)


if __name__ == "__main__":
    main()
