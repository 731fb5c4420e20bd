"""The low-rank update of a mixed batch, in plain torch; a faster kernel must match it.

# T tokens, I in-features, O out-features, N adapters of a run, M rows of each, R rank
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class LoraUp:
    """B of one module for the N adapters of a run, the scale folded in.

    `up_NRO` maps ranks [rank_start, rank_start + R) of the shrunk rows to output columns
    [out_start, out_start + O).
    """

    up_NRO: torch.Tensor
    rank_start: int
    out_start: int


@dataclass(frozen=True, slots=True)
class LoraWeights:
    """One site's weights for N adapters of equal ranks; fp32.

    `down_NIR` is A transposed, the modules packed into one projection (q, k, v; gate, up) side by
    side, so that their common input is read once.
    """

    down_NIR: torch.Tensor
    ups: Sequence[LoraUp]


@dataclass(frozen=True, slots=True)
class LoraRun:
    """Rows [row_start, row_start + N * rows_each) belong to N adapters in turn."""

    row_start: int
    rows_each: int
    weights: LoraWeights


def add_lora(y_TO: torch.Tensor, x_TI: torch.Tensor, runs: Sequence[LoraRun]) -> None:
    """Add each run's low-rank update to its rows of `y_TO`, in place.

    Semantics: for row t of adapter n, each up u:
    y[t, columns(u)] += (x[t] @ down[n])[ranks(u)] @ up[u, n].

    Runs never overlap; rows of no run (the base model's) are not touched. Both products are fp32
    whatever the dtype of y, which is rounded once, as PEFT does.
    Source: LoRA, arXiv:2106.09685; segments by adapter, Punica, arXiv:2310.18547.
    """
    for run in runs:
        down_NIR = run.weights.down_NIR
        num_adapters, width_in, _ = down_NIR.shape
        row_end = run.row_start + num_adapters * run.rows_each
        x_rows = x_TI[run.row_start : row_end].to(down_NIR.dtype)
        low_NMR = torch.bmm(x_rows.view(num_adapters, run.rows_each, width_in), down_NIR)
        y_rows = y_TO[run.row_start : row_end]
        for up in run.weights.ups:
            _, rank, width = up.up_NRO.shape
            low = low_NMR[..., up.rank_start : up.rank_start + rank]
            update = torch.bmm(low, up.up_NRO).view(-1, width)
            y_rows[:, up.out_start : up.out_start + width].add_(update)
