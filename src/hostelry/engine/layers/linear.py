"""A linear projection, several fused into one where they read the same input."""

import torch

from hostelry.engine.kernels.linear import DenseWeight
from hostelry.engine.kernels.lora import add_lora
from hostelry.engine.lora.batch import LoraBatch
from hostelry.engine.lora.shapes import Site

# T tokens, I in-features, O out-features


class Linear:
    """y = x @ weight.T + bias, and the low-rank update of the rows that have an adapter.

    The base product is computed once for all rows; a step without adapter rows does nothing more.
    """

    def __init__(self, weight_OI: torch.Tensor, bias_O: torch.Tensor | None, site: Site) -> None:
        self._weight = DenseWeight(weight_OI, bias_O)
        self._site = site

    def __call__(self, x_TI: torch.Tensor, lora: LoraBatch | None) -> torch.Tensor:
        """The projected rows (T, O)."""
        y_TO = self._weight(x_TI)
        if lora is not None:
            add_lora(y_TO, x_TI, lora.runs(self._site))
        return y_TO
