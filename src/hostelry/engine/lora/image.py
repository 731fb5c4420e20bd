"""An adapter's weights in page form: the contents of its pages, byte for byte.

Host memory keeps adapters in this form, so that loading one into the pool copies pages.

# I in-features, O out-features, R rank, V vocabulary, H hidden
"""

from collections.abc import Sequence

import msgspec
import numpy
import torch

from hostelry.engine.kernels.batch import AdapterIndex
from hostelry.engine.kernels.pool import PoolTensor
from hostelry.engine.lora.layout import (
    AdapterLayout,
    AdapterScales,
    ModuleRuns,
    Run,
    Runs,
    build_index,
)

_PART = 1 << 16
# The exponent bits of a number. All are set in nan and infinity alone.
_EXPONENTS = {
    torch.float32: (numpy.uint32, 0x7F80_0000),
    torch.bfloat16: (numpy.uint16, 0x7F80),
    torch.float16: (numpy.uint16, 0x7C00),
}


# A larger copy makes torch start a team of threads for each calling thread. They would compete with
# the engine's threads for CPUs.
_ALONE_ELEMENTS = 1 << 14
_WORDS = {2: torch.int16, 4: torch.int32}


def copy_alone(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy between tensors of one shape in host memory, on the calling thread only.

    Rounds if the target's dtype is narrower. Releases the interpreter's lock.
    """
    if target.dtype == source.dtype:
        words = _WORDS[target.itemsize]
        numpy.copyto(target.view(words).numpy(), source.view(words).numpy())
        return
    step = max(1, _ALONE_ELEMENTS * len(target) // max(1, target.numel()))
    for start in range(0, len(target), step):
        target[start : start + step].copy_(source[start : start + step])


class PageImage:
    """Pages one after another, the last page cut at its empty part.

    `dtype` is the pool's. `is_pinned` asks for memory that a GPU can read while the CPU does
    something else.
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
        # A part at a time stays in the CPU's cache; plain numpy uses no other cores.
        return not any(
            ((words[start : start + _PART] & exponent) == exponent).any()
            for start in range(0, len(words), _PART)
        )

    def fill(self, runs: ModuleRuns, first: torch.Tensor, second: torch.Tensor) -> None:
        """Lay out one module, from two tensors with the rows of its two halves.

        A linear module has A (R, I) and B transposed (R, O). The embedding has A transposed (V, R)
        and B transposed (R, H). lm_head has B (V, R) and A (R, H). Rounds if the pool's dtype is
        narrower.
        """
        for half, rows in ((runs.first, first), (runs.second, second)):
            for run in half:
                part = rows if run.count == len(rows) else rows[run.row : run.row + run.count]
                copy_alone(self._rows(run), part)

    def rows(self, runs: Runs) -> Sequence[torch.Tensor]:
        """One half of a module as views (rows, width) of the image, in order."""
        return [self._rows(run) for run in runs]

    def is_zero(self, runs: Runs) -> bool:
        """Whether one half of a module holds nothing but zeros."""
        words = _WORDS[self.elements.itemsize]
        parts = (rows.view(words).numpy() for rows in self.rows(runs))
        return not any((part << 1).any() for part in parts)  # the sign of a zero does not matter

    def write(self, pool: PoolTensor, page_numbers: Sequence[int]) -> None:
        """Copy the image into these pages of the pool. A GPU queues it on the current stream."""
        layout = self.layout
        width = layout.page_elements
        for ordinal, (number, fill) in enumerate(zip(page_numbers, layout.fills_P, strict=True)):
            source = self.elements[ordinal * width : ordinal * width + fill]
            target = pool.elements[number * width : number * width + fill]
            if target.device.type == "cpu":
                copy_alone(target, source)
            else:
                target.copy_(source, non_blocking=True)

    def _rows(self, run: Run) -> torch.Tensor:
        start = run.page * self.layout.page_elements + run.element
        return self.elements.as_strided((run.count, run.width), (run.width, 1), start)


class AdapterSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of an adapter's content, under any name.

    `rank` is the largest of its modules, `content_id` a hash of its weights and their use: equal
    for two adapters only if they compute the same. `num_bytes` is its size in host memory,
    `num_pages` in the pool.
    """

    content_id: str
    rank: int
    target_modules: tuple[str, ...]
    num_bytes: int
    num_pages: int


class HostAdapter(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A checked adapter. `warnings` name differences from its author's intent."""

    summary: AdapterSummary
    layout: AdapterLayout
    scales: AdapterScales
    image: PageImage
    warnings: tuple[str, ...] = ()

    @property
    def content_id(self) -> str:
        """The hash of its weights and their use."""
        return self.summary.content_id

    @property
    def num_bytes(self) -> int:
        """Bytes of host memory."""
        return self.summary.num_bytes

    def index(self, page_numbers: Sequence[int]) -> AdapterIndex:
        """The index of its rows once it is in those pages of the pool."""
        return build_index(self.layout, self.scales, page_numbers)

    def write(self, pool: PoolTensor, page_numbers: Sequence[int]) -> None:
        """Copy it into those pages of the pool."""
        self.image.write(pool, page_numbers)
