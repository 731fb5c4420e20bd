"""Rotary position embedding, with the frequency scalings of Llama checkpoints.

Source: RoFormer (arXiv:2104.09864). The llama3 and linear scalings as the config.json fields of
Hugging Face checkpoints define them.

# T tokens, N heads, D head dimension, P positions
"""

import math

import torch

from hostelry.engine.kernels.weights import RopeTables


def compute_inverse_frequencies(
    head_dim: int,
    theta: float,
    *,
    kind: str = "default",
    factor: float = 1.0,
    low_freq_factor: float = 1.0,
    high_freq_factor: float = 4.0,
    original_max_len: int = 8192,
) -> torch.Tensor:
    """Radians that each pair of dimensions advances per position, fp32 (D / 2,)."""
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


def build_rope_tables(frequencies: torch.Tensor, max_len: int, device: torch.device) -> RopeTables:
    """Cosines and sines (P, D / 2) of every position below `max_len`, fp32."""
    angles = torch.outer(torch.arange(max_len, dtype=torch.float32), frequencies)
    return RopeTables(cos_PD=angles.cos().to(device), sin_PD=angles.sin_().to(device))


def rotate(x_TND: torch.Tensor, cos_T1D: torch.Tensor, sin_T1D: torch.Tensor) -> torch.Tensor:
    """Rotate each pair (d, d + D / 2) of every head by cosines and sines (T, 1, D / 2)."""
    first, second = x_TND.chunk(2, -1)
    return torch.cat((first * cos_T1D - second * sin_T1D, second * cos_T1D + first * sin_T1D), -1)
