"""Memory for packed weights: huge pages where the system has them, aligned to 64-byte lines."""

import mmap

import numpy
from numpy.typing import NDArray

LINE_BYTES = 64
CHUNK_BYTES = 64 * 2**20


class LineMemory:
    """An allocator of consecutive arrays; memory that is never written costs nothing.

    Each step reads all weights from end to end; huge pages save an address lookup for every 4 KiB.
    """

    def __init__(self, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._chunk_bytes = chunk_bytes
        self._free: NDArray[numpy.uint8] = numpy.zeros(0, numpy.uint8)

    def take(self, num_bytes: int) -> NDArray[numpy.uint8]:
        """An array of that size, zero; keeps its memory alive."""
        rounded = -(-num_bytes // LINE_BYTES) * LINE_BYTES
        if rounded > len(self._free):
            self._free = large_pages(max(rounded, self._chunk_bytes))
        taken, self._free = self._free[:num_bytes], self._free[rounded:]
        return taken


def large_pages(num_bytes: int) -> NDArray[numpy.uint8]:
    """Zeroed memory that begins at a page, large ones if the system gives them."""
    memory = mmap.mmap(-1, max(num_bytes, 1))
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return numpy.frombuffer(memory, numpy.uint8)[:num_bytes]
