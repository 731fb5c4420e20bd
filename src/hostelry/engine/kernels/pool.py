"""The tensor behind the page pool: one allocation for keys, values and adapter weights.

As a page of the KV cache, a page holds, for each layer in turn, the keys of its tokens as (K, D, S)
and then the values as (K, S, D): the same dimension of consecutive keys is contiguous, so that the
scores of a whole page are computed with whole vectors. As a page of an adapter it holds rows of A
and columns of B one after another (see `kernels.batch.AdapterIndex`). Elements have the model's
dtype in both cases. Those beyond a sequence's end are left from a former owner, nan included.

# N pages, S tokens of a page, K key-value heads, D head dimension
"""

import mmap
from contextlib import suppress

import msgspec
import torch


class PoolLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The layout of a page."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    page_tokens: int
    dtype: torch.dtype

    @property
    def half_elements(self) -> int:
        """Elements of the keys, or of the values, of one layer in one page."""
        return self.num_kv_heads * self.head_dim * self.page_tokens

    @property
    def page_elements(self) -> int:
        """Elements of a page."""
        return 2 * self.num_layers * self.half_elements

    @property
    def page_bytes(self) -> int:
        """Bytes of a page."""
        return self.page_elements * self.dtype.itemsize


class PoolTensor:
    """`num_pages` pages on one device. On a CPU the kernel allocates memory at the first write."""

    def __init__(self, layout: PoolLayout, num_pages: int, device: torch.device) -> None:
        self.layout = layout
        self.num_pages = num_pages
        self.elements = _zeros(num_pages * layout.page_elements, layout.dtype, device)
        heads, width, tokens = layout.num_kv_heads, layout.head_dim, layout.page_tokens
        pages = self.elements.view(num_pages, layout.num_layers, 2, heads, width * tokens)
        self._keys = pages[:, :, 0].view(num_pages, layout.num_layers, heads, width, tokens)
        self._values = pages[:, :, 1].view(num_pages, layout.num_layers, heads, tokens, width)

    @property
    def num_bytes(self) -> int:
        """Bytes of all pages."""
        return self.num_pages * self.layout.page_bytes

    def keys(self, layer: int) -> torch.Tensor:
        """Keys of one layer, a view (N, K, D, S)."""
        return self._keys[:, layer]

    def values(self, layer: int) -> torch.Tensor:
        """Values of one layer, a view (N, K, S, D)."""
        return self._values[:, layer]


def _zeros(num_elements: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros. On a CPU in huge pages if available, as each step reads whole adapters."""
    if device.type != "cpu":
        return torch.zeros(num_elements, dtype=dtype, device=device)
    memory = mmap.mmap(-1, num_elements * dtype.itemsize, flags=mmap.MAP_PRIVATE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype)
