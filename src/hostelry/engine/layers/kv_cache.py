"""The tensors behind the page pool: keys and values of every layer."""

from collections.abc import Sequence

import numpy
import torch

# N pages, S tokens a page, K key-value heads, D head dimension


class KvCache:
    """`num_pages` pages and one more, always zero, that fills up tables of shorter requests."""

    def __init__(
        self,
        *,
        num_layers: int,
        num_pages: int,
        page_tokens: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shape = (num_layers, 2, num_pages + 1, page_tokens, num_kv_heads, head_dim)
        self._kv = _zeros(shape, dtype, device)
        self.layers = [(layer[0], layer[1]) for layer in self._kv]
        self.page_tokens = page_tokens
        self.dtype = dtype
        self.zero_page = num_pages
        self.num_bytes = self._kv.numel() * self._kv.element_size()

    def clear(self, pages: Sequence[int]) -> None:
        """Zero pages that are given out anew.

        Attention multiplies what lies beyond a request's end by 0; a former owner's nan or inf
        would come through that.
        """
        if pages:
            index = torch.tensor(pages, device=self._kv.device)
            self._kv.index_fill_(2, index, 0)

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values (N, S, K, D) of one layer."""
        return self.layers[index]


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A zeroed tensor; on a CPU its memory is taken only as pages are first written."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    num_bytes = int(numpy.prod(shape)) * dtype.itemsize
    return torch.from_numpy(numpy.zeros(num_bytes, numpy.uint8)).view(dtype).view(shape)
