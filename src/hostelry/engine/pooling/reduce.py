"""From hidden states to one vector per text.

# B texts, L tokens of the longest, H hidden, P pooled, S texts' rows, C classes
"""

from collections.abc import Sequence

import msgspec
import torch
from torch.nn import functional

from hostelry.engine.kernels.weights import Projection
from hostelry.engine.models.checkpoint import TensorFiles
from hostelry.engine.models.pooling_files import DenseFiles
from hostelry.engine.sampling.results import Sampled

NOT_FINITE = "the model's hidden states are not finite"


class DenseLayer(msgspec.Struct, frozen=True, eq=False):
    """A dense layer after pooling."""

    projection: Projection
    has_tanh: bool


def load_dense(files: Sequence[DenseFiles], device: torch.device) -> tuple[DenseLayer, ...]:
    """The layers, fp32. Raises UnsupportedModelError for tensors that are missing or unexpected."""
    layers = []
    for each in files:
        shapes: dict[str, tuple[int, ...]] = {
            "linear.weight": (each.out_features, each.in_features)
        }
        if each.has_bias:
            shapes["linear.bias"] = (each.out_features,)
        stored = TensorFiles(each.folder)
        stored.expect(shapes.items())
        stored.finish()
        read = {name: it.to(device, torch.float32) for name, it in stored.read(shapes).items()}
        projection = Projection(weight_OI=read["linear.weight"], bias_O=read.get("linear.bias"))
        layers.append(DenseLayer(projection, each.activation == "tanh"))
    return tuple(layers)


def pool_states(
    hidden_BLH: torch.Tensor, seen_BL: torch.Tensor, modes: Sequence[str]
) -> torch.Tensor:
    """The vectors of all `modes` side by side, (B, P) fp32.

    Source: the modes of sentence-transformers' Pooling.
    """
    return torch.cat([_pool_by_mode(hidden_BLH, seen_BL, mode) for mode in modes], 1)


def _pool_by_mode(hidden_BLH: torch.Tensor, seen_BL: torch.Tensor, mode: str) -> torch.Tensor:
    if mode == "cls":
        return hidden_BLH[:, 0]
    lengths_B = seen_BL.sum(1)
    if mode == "lasttoken":
        return hidden_BLH[torch.arange(len(hidden_BLH), device=hidden_BLH.device), lengths_B - 1]
    if mode == "max":
        return hidden_BLH.masked_fill(~seen_BL.unsqueeze(2), -torch.inf).amax(1)
    weights_BL = seen_BL.float()
    if mode == "weightedmean":
        weights_BL = weights_BL * torch.arange(1, seen_BL.shape[1] + 1, device=seen_BL.device)
    sums_BH = (hidden_BLH * weights_BL.unsqueeze(2)).sum(1)
    total_B1 = weights_BL.sum(1, keepdim=True)
    return sums_BH / (total_B1.sqrt() if mode == "mean_sqrt_len" else total_B1)


def finish_vectors(vectors_BP: torch.Tensor, dense: Sequence[DenseLayer]) -> list[Sampled]:
    """The vectors after the dense layers, or an error for a vector that is not finite."""
    for layer in dense:
        vectors_BP = functional.linear(
            vectors_BP, layer.projection.weight_OI, layer.projection.bias_O
        )
        if layer.has_tanh:
            vectors_BP = torch.tanh(vectors_BP)
    on_host = vectors_BP.float().cpu()
    finite_B = torch.isfinite(on_host).all(1).tolist()
    rows = on_host.numpy().astype("<f4", copy=False)
    return [
        Sampled(None, vector=row.tobytes()) if finite else Sampled(None, error=NOT_FINITE)
        for row, finite in zip(rows, finite_B, strict=True)
    ]
