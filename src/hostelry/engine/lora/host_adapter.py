"""An adapter in host memory: in page form, ready to be copied into the pool."""

from collections.abc import Sequence
from dataclasses import dataclass

from hostelry.engine.kernels.batch import AdapterIndex
from hostelry.engine.kernels.pool import PoolTensor
from hostelry.engine.lora.image import PageImage
from hostelry.engine.lora.layout import AdapterLayout, AdapterScales, build_index


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSummary:
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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class HostAdapter:
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
