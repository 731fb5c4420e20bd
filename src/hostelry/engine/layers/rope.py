"""Rotary position embedding, with the frequency scalings of Llama checkpoints.

Source: RoFormer (arXiv:2104.09864); the llama3 and linear scalings as the config.json fields of
Hugging Face checkpoints define them.
"""

import math

import torch

# T tokens, N heads, D head dimension


def inverse_frequencies(
    head_dim: int,
    theta: float,
    *,
    kind: str = "default",
    factor: float = 1.0,
    low_freq_factor: float = 1.0,
    high_freq_factor: float = 4.0,
    original_max_len: int = 8192,
) -> torch.Tensor:
    """Radians a position advances each pair of dimensions; fp32, shape (head_dim / 2,)."""
    exponent = torch.arange(0, head_dim, 2, dtype=torch.int64).to(torch.float32) / head_dim
    frequencies = 1.0 / (theta**exponent)
    if kind == "linear":
        return frequencies / factor
    if kind == "llama3":
        wavelengths = 2 * math.pi / frequencies
        # 0 where a wavelength is longer than the trained context, 1 where far shorter.
        smooth = (original_max_len / wavelengths - low_freq_factor) / (
            high_freq_factor - low_freq_factor
        )
        smooth = smooth.clamp(0, 1)
        return (1 - smooth) * frequencies / factor + smooth * frequencies
    return frequencies


class RopeTable:
    """Cosines and sines of every position up to `max_len`, in the model's dtype."""

    def __init__(
        self, frequencies: torch.Tensor, max_len: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        angles = torch.outer(torch.arange(max_len, dtype=torch.float32), frequencies)
        self._cos = angles.cos().repeat(1, 2).to(dtype=dtype, device=device)
        # The first half carries the minus sign of the rotation.
        self._sin = torch.cat((-angles.sin(), angles.sin()), 1).to(dtype=dtype, device=device)

    def at(self, positions_T: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and signed sines (T, 1, D) of these positions."""
        return self._cos[positions_T].unsqueeze(1), self._sin[positions_T].unsqueeze(1)


def rotate(
    x_TND: torch.Tensor, cos_T1D: torch.Tensor, signed_sin_T1D: torch.Tensor
) -> torch.Tensor:
    """Rotate each pair (d, d + D/2) of every head by its position's angle."""
    half = x_TND.shape[-1] // 2
    swapped = torch.cat((x_TND[..., half:], x_TND[..., :half]), -1)
    return torch.addcmul(x_TND * cos_T1D, swapped, signed_sin_T1D)
