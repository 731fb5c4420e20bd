"""A decoder's weights as plain tensors. Each decoder may repack them.

# V vocabulary, H hidden, O fused output columns, I in-features, D head dimension, P positions
"""

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import torch

Activation = Literal["silu", "gelu_tanh"]


class Projection(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One product. Modules that read the same input are fused. `bias_O` may be absent."""

    weight_OI: torch.Tensor
    bias_O: torch.Tensor | None = None


class LayerWeights(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One decoder layer. Norm weights are final: an architecture that computes 1 + w stores 1 + w.

    h += attn_out_norm(o(attention(rope(q_norm(q)), rope(k_norm(k)), v)))
    with q, k, v = qkv(input_norm(h)).
    h += mlp_out_norm(down(act(gate) * up)) with gate, up = gate_up(mlp_norm(h)).
    A norm of None is skipped. With `window` a token sees the last `window` positions, itself
    included (None: all). `rope` is an index into DecoderWeights.ropes.
    """

    input_norm_H: torch.Tensor
    qkv: Projection
    q_norm_D: torch.Tensor | None
    k_norm_D: torch.Tensor | None
    o: Projection
    attn_out_norm_H: torch.Tensor | None
    mlp_norm_H: torch.Tensor
    gate_up: Projection
    down: Projection
    mlp_out_norm_H: torch.Tensor | None
    window: int | None
    rope: int


class RopeTables(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Cosines and sines by position, fp32 (P, D / 2). Element i turns with element i + D / 2."""

    cos_PD: torch.Tensor
    sin_PD: torch.Tensor


class DecoderWeights(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """All weights of a decoder.

    `lm_head_VH` may be the embedding itself (tied). `layer(i)` reads layer i when it is called, so
    that at most one layer is held twice while a decoder repacks it. It is called once for each
    layer.
    """

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    intermediate_size: int
    norm_eps: float
    attention_scale: float
    activation: Activation
    embedding_scale: float
    embedding_VH: torch.Tensor
    lm_head_VH: torch.Tensor
    final_norm_H: torch.Tensor
    ropes: Sequence[RopeTables]
    layer: Callable[[int], LayerWeights]
    dtype: torch.dtype
