"""An adapter's weights in page form: what lies in its pages, byte for byte.

Kept in host memory as it is, so that bringing an adapter into the pool is copying pages.

# I in-features, O out-features, R rank, V vocabulary, H hidden
"""

from collections.abc import Sequence

import numpy
import torch

from hostelry.engine.kernels.pool import PoolTensor
from hostelry.engine.lora.layout import AdapterLayout, ModuleRuns, Run, Runs

_PART = 1 << 16
# The exponent bits of a number, all of which are set in nan and infinity alone.
_EXPONENTS = {
    torch.float32: (numpy.uint32, 0x7F80_0000),
    torch.bfloat16: (numpy.uint16, 0x7F80),
    torch.float16: (numpy.uint16, 0x7C00),
}


class PageImage:
    """Pages one after another, the last one cut where it is empty; `dtype` is the pool's.

    `is_pinned` asks for memory that a GPU can read while the CPU does something else.
    """

    def __init__(
        self, layout: AdapterLayout, dtype: torch.dtype, *, is_pinned: bool = False
    ) -> None:
        self.layout = layout
        size = layout.page_elements * (layout.num_pages - 1) + layout.fills_P[-1]
        self.elements = torch.zeros(size, dtype=dtype, pin_memory=is_pinned)

    @property
    def num_bytes(self) -> int:
        """Bytes held."""
        return self.elements.nbytes

    @property
    def content(self) -> memoryview:
        """The bytes themselves, which may be written to."""
        return self.elements.view(torch.uint8).numpy().data

    @property
    def is_finite(self) -> bool:
        """Whether no number is nan or infinite."""
        bits, exponent = _EXPONENTS[self.elements.dtype]
        words = self.elements.view(torch.uint8).numpy().view(bits)
        # A part at a time stays in the processor's cache; plain numpy leaves other cores alone.
        return not any(
            ((words[start : start + _PART] & exponent) == exponent).any()
            for start in range(0, len(words), _PART)
        )

    def fill(self, runs: ModuleRuns, first: torch.Tensor, second: torch.Tensor) -> None:
        """Lay out one module: a tensor whose rows are the first half's, and the second half's.

        Linear: A (R, I) and B transposed (R, O). Embedding: A transposed (V, R) and B transposed
        (R, H); lm_head: B (V, R) and A (R, H). Rounds where the pool's dtype is narrower.
        """
        for half, rows in ((runs.first, first), (runs.second, second)):
            for run in half:
                part = rows if run.count == len(rows) else rows[run.row : run.row + run.count]
                self._rows(run).copy_(part)

    def rows(self, runs: Runs) -> Sequence[torch.Tensor]:
        """One half of a module as views (rows, width) of the image, in order."""
        return [self._rows(run) for run in runs]

    def write(self, pool: PoolTensor, page_numbers: Sequence[int]) -> None:
        """Copy the image into these pages of the pool; on a GPU queued on the current stream."""
        layout = self.layout
        width = layout.page_elements
        for ordinal, (number, fill) in enumerate(zip(page_numbers, layout.fills_P, strict=True)):
            source = self.elements[ordinal * width : ordinal * width + fill]
            pool.elements[number * width : number * width + fill].copy_(source, non_blocking=True)

    def _rows(self, run: Run) -> torch.Tensor:
        start = run.page * self.layout.page_elements + run.element
        return self.elements.as_strided((run.count, run.width), (run.width, 1), start)
