"""Root-mean-square norm. Source: arXiv:1910.07467."""

import torch
from torch.nn import functional


class RmsNorm:
    """x / rms(x) * weight, computed in fp32 and rounded once."""

    def __init__(self, weight_H: torch.Tensor, eps: float) -> None:
        self._weight_H = weight_H
        self._shape = tuple(weight_H.shape)
        self._eps = eps

    def __call__(self, x_TH: torch.Tensor) -> torch.Tensor:
        """The normed rows, in the dtype of `x_TH`."""
        return functional.rms_norm(x_TH, self._shape, self._weight_H, self._eps)
