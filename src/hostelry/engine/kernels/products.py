"""Products of rows with a weight in plain torch: the reference of each kind of packed weight.

# T rows, I in-features, O out-features
"""

from enum import IntEnum

import torch
from torch.nn import functional

INT8_LARGEST = 127


class WeightKind(IntEnum):
    """The format in which a weight is stored and multiplied. Numbers as in cpp/gemm.h."""

    F32 = 0
    BF16 = 1
    INT8 = 2


def product(
    x_TI: torch.Tensor,
    weight_OI: torch.Tensor,
    bias_O: torch.Tensor | None = None,
    kind: WeightKind = WeightKind.F32,
) -> torch.Tensor:
    """The rows x @ weight.T + bias, fp32 (T, O), sums in fp32.

    F32: in fp32. BF16: weight and rows rounded to bf16 before. INT8: rows rounded to bf16, the
    weight to whole numbers with a scale an output (see `quantize_int8`), which multiplies the sum.
    """
    x_TI = x_TI.float()
    if kind is not WeightKind.F32:
        x_TI = x_TI.bfloat16().float()
    if kind is WeightKind.INT8:
        codes_OI, scales_O = quantize_int8(weight_OI)
        y_TO = functional.linear(x_TI, codes_OI.float()) * scales_O
    elif kind is WeightKind.BF16:
        y_TO = functional.linear(x_TI, weight_OI.bfloat16().float())
    else:
        y_TO = functional.linear(x_TI, weight_OI.float())
    return y_TO if bias_O is None else y_TO + bias_O.float()


def quantize_int8(weight_OI: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Whole numbers in [-127, 127], int8 (O, I), and scales, fp32 (O): weight ~ number x scale.

    An output's scale is its largest magnitude / 127. Numbers are the nearest, ties to even. An
    output of zeros has the scale 0.
    """
    weight_OI = weight_OI.float()
    scales_O = weight_OI.abs().amax(dim=1) / INT8_LARGEST
    divisors_O = torch.where(scales_O > 0, scales_O, torch.ones_like(scales_O))
    codes_OI = torch.round(weight_OI / divisors_O[:, None]).clamp(-INT8_LARGEST, INT8_LARGEST)
    return codes_OI.to(torch.int8), scales_O
