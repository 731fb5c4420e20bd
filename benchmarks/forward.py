"""Claim: one step of the native decoder takes as long as reading its weights, adapters included.

Milliseconds of a step of SmolLM2-135M-Instruct in bf16, without an engine around it: decoding with
one or sixteen sequences of 64 to 128 tokens, without adapters, with one of rank 16, with sixteen of
rank 16 (all seven targets), and a prompt of 512 tokens. The phases have separate times.
"""

import argparse
import os
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy
import torch

from benchmarks.record import print_table, write_result
from hostelry.cli.demo import demo_model_folder
from hostelry.engine.kernels.batch import MODULES, AdapterIndex, ForwardBatch, LoraSegment
from hostelry.engine.kernels.native.decoder import NativeDecoder
from hostelry.engine.kernels.pool import PoolLayout, PoolTensor
from hostelry.engine.models.registry import load_decoder, load_spec

PAGE_TOKENS, MAX_TOKENS, PROMPT_TOKENS, RANK, SEED = 16, 1024, 512, 16, 0


class Bench:
    """The model, and a pool with sixteen adapters behind the sequences' pages."""

    def __init__(self, num_threads: int, weight_kind: Any, variant: str | None) -> None:
        folder = demo_model_folder()
        self.spec = spec = load_spec(folder)
        weights = load_decoder(
            folder,
            spec,
            max_len=MAX_TOKENS,
            dtype=torch.bfloat16,
            device=torch.device("cpu"),
        )
        self.decoder = NativeDecoder(
            weights,
            max_rows=PROMPT_TOKENS,
            num_threads=num_threads,
            pin_threads=True,
            weight_kind=weight_kind,
            variant=variant,
        )
        self._layout = PoolLayout(
            num_layers=spec.num_layers,
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            page_tokens=PAGE_TOKENS,
            dtype=torch.bfloat16,
        )
        self._pages_each = MAX_TOKENS // PAGE_TOKENS
        self._sequence_pages = 16 * self._pages_each
        adapter_pages = 16 * (12 * 2**20) // self._layout.page_bytes
        num_pages = self._sequence_pages + adapter_pages
        self.pool = PoolTensor(self._layout, num_pages, torch.device("cpu"))
        generator = torch.Generator().manual_seed(SEED)
        self.pool.elements.normal_(0.0, 0.02, generator=generator)
        self._at = self._sequence_pages * self._layout.page_elements
        self.adapters = [self._adapter() for _ in range(16)]

    def _adapter(self) -> AdapterIndex:
        spec = self.spec
        query, key = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        hidden, inner = spec.hidden_size, spec.intermediate_size
        widths = (
            (hidden, query),
            (hidden, key),
            (hidden, key),
            (query, hidden),
            (hidden, inner),
            (hidden, inner),
            (inner, hidden),
        )
        down: list[int] = []
        up: list[int] = []
        for _ in range(spec.num_layers):
            for in_features, out_features in widths:
                down.extend(self._row(in_features) for _ in range(RANK))
                up.extend(self._row(out_features) for _ in range(RANK))
        num_modules = spec.num_layers * len(MODULES)
        return AdapterIndex(
            ranks_M=numpy.full(num_modules, RANK, numpy.int32),
            scales_M=numpy.full(num_modules, 2.0, numpy.float32),
            firsts_M=numpy.arange(0, num_modules * RANK, RANK, dtype=numpy.int32),
            down_offsets_R=numpy.array(down, numpy.int64),
            up_offsets_R=numpy.array(up, numpy.int64),
        )

    def _row(self, width: int) -> int:
        left = self._layout.page_elements - self._at % self._layout.page_elements
        start = self._at if width <= left else self._at + left
        self._at = start + width
        return start

    def decode(self, num_rows: int, segments: Sequence[LoraSegment]) -> ForwardBatch:
        """One token of each sequence, after 64 to 128 others."""
        lengths = [64 + 4 * row + 1 for row in range(num_rows)]
        return self._batch([(length - 1, length) for length in lengths], segments)

    def prefill(self, segments: Sequence[LoraSegment]) -> ForwardBatch:
        """A whole prompt."""
        return self._batch([(0, PROMPT_TOKENS)], segments)

    def _batch(
        self, spans: Sequence[tuple[int, int]], segments: Sequence[LoraSegment]
    ) -> ForwardBatch:
        starts = numpy.cumsum([0, *(end - start for start, end in spans)])
        drawn = numpy.random.default_rng(SEED).integers(0, self.spec.vocab_size, starts[-1])
        pages = numpy.arange(len(spans) * self._pages_each).reshape(len(spans), -1)
        return ForwardBatch(
            token_ids_T=drawn.astype(numpy.int32),
            positions_T=numpy.concatenate(
                [numpy.arange(start, end, dtype=numpy.int32) for start, end in spans]
            ),
            row_starts_B1=starts.astype(numpy.int32),
            lengths_B=numpy.array([end for _, end in spans], numpy.int32),
            pages_BP=pages.astype(numpy.int32),
            logit_rows_S=(starts[1:] - 1).astype(numpy.int32),
            segments=segments,
        )

    def cases(self) -> dict[str, ForwardBatch]:
        """Steps by name."""
        one, each = self.adapters[0], self.adapters

        def whole(rows: int) -> list[LoraSegment]:
            return [LoraSegment(row_start=0, row_end=rows, index=one)]

        different = [LoraSegment(row_start=n, row_end=n + 1, index=each[n]) for n in range(16)]
        return {
            "1 row": self.decode(1, ()),
            "1 row, adapter": self.decode(1, whole(1)),
            "16 rows": self.decode(16, ()),
            "16 rows, one adapter": self.decode(16, whole(16)),
            "16 rows, 16 adapters": self.decode(16, different),
            "prompt of 512": self.prefill(()),
            "prompt of 512, adapter": self.prefill(whole(PROMPT_TOKENS)),
        }

    def measure(self, batch: ForwardBatch, repeats: int) -> dict[str, float]:
        """Milliseconds: median and minimum of the whole step, and means of its phases."""
        for _ in range(3):
            self.decoder.forward(batch, self.pool)
        before, times = self.decoder.phase_seconds, []
        for _ in range(repeats):
            started = time.perf_counter()
            self.decoder.forward(batch, self.pool)
            times.append(1e3 * (time.perf_counter() - started))
        after = self.decoder.phase_seconds
        phases = {name: 1e3 * (after[name] - before[name]) / repeats for name in after}
        return {
            "median_ms": statistics.median(times),
            "least_ms": min(times),
            **phases,
            "around": statistics.mean(times) - sum(phases.values()),
        }


def main() -> None:
    """Measure each case in turn, in several rounds, and print the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forward", description=__doc__)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--weights", choices=("auto", "int8"), default="auto")
    parser.add_argument("--variant", help="of the native library; default the fastest")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    bench = Bench(options.threads, options.weights, options.variant)
    cases = bench.cases()
    rounds = [
        {
            name: bench.measure(batch, max(options.repeats // (batch.num_rows // 16 + 1), 2))
            for name, batch in cases.items()
        }
        for _ in range(options.rounds)
    ]
    rows = [
        {
            "step": name,
            **{key: statistics.median(it[name][key] for it in rounds) for key in rounds[0][name]},
        }
        for name in cases
    ]
    print_table(f"ms a step, {options.threads} threads, weights {options.weights}", rows)
    write_result("forward", "short", SEED, {"weights": options.weights, "steps": rows})


if __name__ == "__main__":
    main()
