"""The page pool's use as runs of cells, small enough to draw."""

import sys
from array import array
from collections import Counter
from itertools import groupby
from typing import Any

MAX_CELLS = 4096


def page_map(codes: bytes, max_cells: int = MAX_CELLS) -> dict[str, Any]:
    """`runs` of [code, cells], each cell of `pages_per_cell` pages with their most frequent code.

    `codes` are two bytes a page, little-endian; at most `max_cells` cells come of them.
    """
    pages = array("H")
    pages.frombytes(codes)
    if sys.byteorder == "big":
        pages.byteswap()
    width = max(1, -(-len(pages) // max_cells))
    cells = pages if width == 1 else _cells(pages, width)
    runs = [[code, sum(1 for _ in run)] for code, run in groupby(cells)]
    return {"pages_per_cell": width, "runs": runs}


def _cells(pages: "array[int]", width: int) -> list[int]:
    slices = (pages[start : start + width] for start in range(0, len(pages), width))
    return [Counter(it).most_common(1)[0][0] for it in slices]
