"""The dense product of a step's rows with one weight.

# T tokens, I in-features, O out-features
"""

import torch
from torch.nn import functional

_PACKED_FOR_ROWS = 16  # a hint only; packed weights serve any number of rows


class DenseWeight:
    """A weight laid out for many products.

    Semantics: y = x @ weight.T + bias. On a CPU the weight is kept in oneDNN's blocked layout, from
    which a few rows are computed up to twice as fast as from the plain one; `is_packed` tells.
    """

    def __init__(self, weight_OI: torch.Tensor, bias_O: torch.Tensor | None = None) -> None:
        self.is_packed = _can_pack(weight_OI)
        self._bias_O = bias_O
        self._weight = (
            torch.ops.mkldnn._reorder_linear_weight(weight_OI, _PACKED_FOR_ROWS)
            if self.is_packed
            else weight_OI
        )

    def __call__(self, x_TI: torch.Tensor) -> torch.Tensor:
        """The rows (T, O)."""
        if not self.is_packed:
            return functional.linear(x_TI, self._weight, self._bias_O)
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            x_TI, self._weight, self._bias_O, "none", [], ""
        )
        return product


def plain_reason(device_type: str, *, has_operator: bool) -> str | None:
    """Why products run on plain weights though a CPU computes them; None where nothing is lost."""
    if device_type != "cpu" or has_operator:
        return None
    return (
        "this build of torch lacks oneDNN's packed linear operator; products of few rows run on "
        "plain weights, up to half as fast"
    )


def has_packed_operator() -> bool:
    """Whether this build of torch computes from oneDNN's blocked layout."""
    return hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _can_pack(weight_OI: torch.Tensor) -> bool:
    """Whether this build of torch and this CPU compute from the blocked layout."""
    if weight_OI.device.type != "cpu" or not has_packed_operator():
        return False
    if weight_OI.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight_OI.dtype == torch.float32
